#include <gtest/gtest.h>

#include "base/custom_op.h"
#include "ir/reference/testing/op_case.h"

namespace aicf {
namespace {

// x -> x + y by a body of two inputs.
Graph add_body() {
  Graph body("add");
  const ValueId x = body.add_input("x", {DType::i64, {}}), y = body.add_input("y", {DType::i64, {}});
  body.add_output(body.add(Op::add, {x, y}), "sum");
  return body;
}

Graph mul_body() {
  Graph body("mul");
  const ValueId x = body.add_input("x", {DType::i64, {}}), y = body.add_input("y", {DType::i64, {}});
  body.add_output(body.add(Op::mul, {x, y}), "product");
  return body;
}

// (count, value): while count > 0, value doubles.
Graph count_is_positive() {
  Graph body("condition");
  const ValueId count = body.add_input("count", {DType::i64, {}});
  body.add_input("value", {DType::i64, {}});
  body.add_output(body.add(Op::gt, {count, body.add_constant(Array::scalar_i64(DType::i64, 0))}), "go");
  return body;
}

Graph count_down() {
  Graph body("step");
  const ValueId count = body.add_input("count", {DType::i64, {}}),
                value = body.add_input("value", {DType::i64, {}});
  body.add_output(body.add(Op::sub, {count, body.add_constant(Array::scalar_i64(DType::i64, 1))}), "count");
  body.add_output(body.add(Op::add, {value, value}), "value");
  return body;
}

// (sum, row) -> (sum + row, 10 * sum): the per-step result shows the order of the steps.
Graph running_sum() {
  Graph body("running");
  const ValueId sum = body.add_input("sum", {DType::i64, {}}), row = body.add_input("row", {DType::i64, {}});
  body.add_output(body.add(Op::add, {sum, row}), "sum");
  body.add_output(body.add(Op::mul, {sum, body.add_constant(Array::scalar_i64(DType::i64, 10))}), "before");
  return body;
}

// Walks rows only and gives each row negated.
Graph negate_row() {
  Graph body("negate");
  const ValueId row = body.add_input("row", {DType::i64, {2}});
  body.add_output(body.add(Op::neg, {row}), "out");
  return body;
}

// A body that hands back an input and a constant.
Graph pass_through() {
  Graph body("pass");
  const ValueId x = body.add_input("x", {DType::i64, {}});
  body.add_input("unused", {DType::i64, {}});
  body.add_output(x, "x");
  body.add_output(body.add_constant(Array::scalar_i64(DType::i64, 9)), "nine");
  return body;
}

CaseTensor n(double value) { return i64({}, {value}); }

// i64 vectors: a x + b of the whole attributes, and how many elements there were.
void affine(const CustomTensor* in, int32_t, const CustomTensor* out, int32_t, const int64_t* params,
            const double*, void*) {
  for (int64_t i = 0; i < in[0].sizes[0]; ++i)
    static_cast<int64_t*>(out[0].data)[i] =
        static_cast<const int64_t*>(in[0].data)[i] * params[0] + params[1];
  *static_cast<int64_t*>(out[1].data) = in[0].sizes[0];
}

OpCase custom_case() {
  register_custom_op("test::affine", custom_op(affine, nullptr));
  const Attrs attrs = {{"name", std::string("test::affine")},
                       {"dtypes", std::string("i64,i64")},
                       {"ranks", Ints{1, 0}},
                       {"sizes", Shape{Dim(3)}},
                       {"params", Ints{10, 1}}};
  return {Op::custom, {i64({3}, {1, 2, 3})}, attrs, {i64({3}, {11, 21, 31}), n(3)}};
}

Attrs scan(int64_t carried, bool reverse) { return {{"carried", carried}, {"reverse", reverse}}; }

}  // namespace

std::vector<OpCase> control_flow_cases() {
  const CaseTensor rows = i64({3}, {1, 2, 3});
  return {
      {Op::if_else, {boolean({}, {1}), n(3), n(4)}, {}, {n(7)}, {}, {add_body(), mul_body()}},
      {Op::if_else, {boolean({}, {0}), n(3), n(4)}, {}, {n(12)}, {}, {add_body(), mul_body()}},
      {Op::while_loop, {n(3), n(5)}, {}, {n(0), n(40)}, {}, {count_is_positive(), count_down()}},
      {Op::while_loop, {n(0), n(5)}, {}, {n(0), n(5)}, {}, {count_is_positive(), count_down()}},
      {Op::scan, {n(0), rows}, scan(1, false), {n(6), i64({3}, {0, 10, 30})}, {}, {running_sum()}},
      {Op::scan, {n(0), rows}, scan(1, true), {n(6), i64({3}, {50, 30, 0})}, {}, {running_sum()}},
      {Op::scan, {n(4), i64({0}, {})}, scan(1, false), {n(4), i64({0}, {})}, {}, {running_sum()}},
      {Op::scan,
       {i64({2, 2}, {1, 2, 3, 4})},
       scan(0, true),
       {i64({2, 2}, {-1, -2, -3, -4})},
       {},
       {negate_row()}},
      {Op::fused, {n(3), n(4)}, {{"kind", std::string("k")}}, {n(7)}, {}, {add_body()}},
      {Op::call, {n(3), n(4)}, {{"name", std::string("f")}}, {n(12)}, {}, {mul_body()}},
      custom_case(),
      {Op::call, {n(3), n(4)}, {{"name", std::string("f")}}, {n(3), n(9)}, {}, {pass_through()}},
  };
}

}  // namespace aicf
