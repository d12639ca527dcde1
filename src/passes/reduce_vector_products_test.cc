// Products with one row or column as sums: which, and that they mean the same.
#include <gtest/gtest.h>

#include "passes/testing/run_pass.h"

namespace aicf {
namespace {

using testing::count_ops;
using testing::expect_equal_meaning;

struct Product {
  Shape x, y;
  bool transpose_x = false, transpose_y = false;
  DType dtype = DType::f64;
  bool tf32 = false;
};

Program program_with(const Product& product) {
  Program program;
  program.sizes["n"] = {1, 9};
  Graph graph("main");
  const ValueId x = graph.add_input("x", {product.dtype, product.x}),
                y = graph.add_input("y", {product.dtype, product.y});
  graph.add_output(graph.add(Op::matmul, {x, y},
                             {{"transpose_x", product.transpose_x},
                              {"transpose_y", product.transpose_y},
                              {"tf32", product.tf32}}),
                   "z");
  program.entries.push_back(std::move(graph));
  return program;
}

Graph reduced(const Program& program) {
  static const Target gpu = Target::from_name("sm_90");
  return testing::run_pass(reduce_vector_products, program, gpu);
}

TEST(ReduceVectorProducts, OneRowOrColumnBecomesASum) {
  const Dim n = Dim::symbol("n");
  const std::vector<Product> products = {
      {{1, 5}, {5, 7}},
      {{5, 1}, {5, 7}, true},
      {{1, 5}, {7, 5}, false, true},
      {{5, 1}, {n, 5}, true, true},
      {{7, 5}, {5, 1}},
      {{5, n}, {5, 1}, true},
      {{7, n}, {1, n}, false, true},
      {{5, 7}, {1, 5}, true, true},
      {{1, 5}, {5, 1}},
      {{1, 1}, {1, 6}},
      {{2, 1, 4, 1, 5}, {3, 1, 5, 7}},
      {{3, 1, 5, 7}, {2, 3, 4, 7, 1}},
      {{4, 1, 0}, {4, 0, 3}},
      {{3, 4}, {4, 1}, false, false, DType::f32, true},
      {{7, 5}, {5, 1}, false, false, DType::f16},
      {{2, 5, n}, {1, 5}, true, true, DType::bf16},
  };
  for (const Product& product : products) {
    const Program program = program_with(product);
    const Graph graph = reduced(program);
    EXPECT_EQ(count_ops(graph, Op::matmul), 0) << print(program);
    EXPECT_EQ(count_ops(graph, Op::reduce_sum), 1) << print(graph);
    EXPECT_EQ(count_ops(graph, Op::round_tf32), product.tf32 ? 2 : 0);
    expect_equal_meaning(program, graph, {{"n", 3}});
  }
}

TEST(ReduceVectorProducts, MatricesRowsOfHalvesAndIntegersStay) {
  for (const Product& product :
       {Product{{2, 5}, {5, 7}}, Product{{1, 5}, {5, 7}, false, false, DType::f16},
        Product{{1, 5}, {5, 1}, false, false, DType::f16}, Product{{1, 5}, {5, 7}, false, false, DType::i32},
        Product{{Dim::symbol("n"), 5}, {5, 7}}})
    EXPECT_EQ(count_ops(reduced(program_with(product)), Op::matmul), 1);
}

}  // namespace
}  // namespace aicf
