// Rewrites that only make graphs smaller, and the pipeline that runs all passes.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "passes/testing/run_pass.h"

namespace aicf {
namespace {

using testing::count_ops;
using testing::expect_equal_meaning;
using testing::kCpu;
using testing::run_pass;

TEST(Simplify, SelectsWhatAConstantDecides) {
  for (const bool keeps : {true, false}) {
    const std::string all = keeps ? "true, true" : "false, false";
    const Program program = parse(R"(program {
  entry main(%a: f32[2, 3], %b: f32[3]) {
    %c = constant bool[2, 1] = [)" +
                                  all + R"(]
    %m = constant bool[2, 1] = [true, false]
    %0 = select(%c, %a, %b) : f32[2, 3]
    %1 = select(%m, %a, %b) : f32[2, 3]
    return "y" = %0, "z" = %1
  }
})");
    const Graph simple = run_pass(simplify, program);
    EXPECT_EQ(count_ops(simple, Op::select), 1) << print(simple);
    EXPECT_EQ(count_ops(simple, Op::broadcast_to), keeps ? 0 : 1);
    testing::expect_equal_meaning(program, simple, {});
  }
}

// What two transposes that undo each other stand around is made of what came before them.
TEST(Simplify, TransposesAroundPointwiseOpsAreDropped) {
  const Program program = parse(R"(program {
  size n in 1..64
  entry main(%x: f32[n, 3, 5], %g: f32[n, 3, 5], %b: f32[3], %s: f32[]) {
    %0 = transpose(%x) {perm = [2, 0, 1]} : f32[5, n, 3]
    %1 = tanh(%0) : f32[5, n, 3]
    %2 = mul(%1, %1) : f32[5, n, 3]
    %3 = transpose(%g) {perm = [2, 0, 1]} : f32[5, n, 3]
    %4 = mul(%2, %3) : f32[5, n, 3]
    %5 = mul(%4, %s) : f32[5, n, 3]
    %6 = transpose(%5) {perm = [1, 2, 0]} : f32[n, 3, 5]
    %7 = transpose(%5) {perm = [2, 0, 1]} : f32[3, 5, n]
    %8 = add(%5, %b) : f32[5, n, 3]
    %9 = transpose(%8) {perm = [1, 2, 0]} : f32[n, 3, 5]
    return "back" = %6, "other" = %7, "row" = %9
  }
}
)");
  const Graph graph = eliminate_dead_code(run_pass(simplify, program));
  EXPECT_EQ(graph.producer(graph.outputs()[0])->op, Op::mul) << print(graph);
  EXPECT_EQ(graph.producer(graph.outputs()[1])->op, Op::transpose);  // they do not undo each other
  EXPECT_EQ(graph.producer(graph.outputs()[2])->op, Op::transpose);  // a row lies along another axis
  EXPECT_EQ(count_ops(graph, Op::transpose), 4);
  testing::expect_equal_meaning(program, graph, {{"n", 4}});
}

// A long chain is not walked to its end for every transpose behind it, nor by as many calls.
TEST(Simplify, TransposesAroundLongChainsStay) {
  std::string text =
      "program {\n  entry main(%x: f32[2, 3]) {\n    %0 = transpose(%x) {perm = [1, 0]} : f32[3, 2]\n";
  constexpr int kLength = 100000;
  for (int i = 0; i < kLength; ++i)
    text += "    %" + std::to_string(i + 1) + " = tanh(%" + std::to_string(i) + ") : f32[3, 2]\n";
  const std::string last = std::to_string(kLength), end = std::to_string(kLength + 1);
  text += "    %" + end + " = transpose(%" + last + ") {perm = [1, 0]} : f32[2, 3]\n    return \"y\" = %" +
          end + "\n  }\n}\n";
  EXPECT_EQ(count_ops(run_pass(simplify, parse(text)), Op::transpose), 2);
}

// What is sliced of what was joined or padded is made of the part alone.
TEST(Simplify, SlicesOfPartsComeBeforePointwiseOps) {
  const Program program = parse(R"(program {
  size n in 1..64
  entry main(%a: f32[n, 3], %b: f32[n, 4], %p: f32[5, 6], %s: f32[]) {
    %0 = concat(%a, %b) {axis = 1} : f32[n, 7]
    %1 = cos(%0) : f32[n, 7]
    %2 = mul(%1, %s) : f32[n, 7]
    %3 = mul(%2, %2) : f32[n, 7]
    %4 = slice(%3) {starts = [0, 0], limits = [n, 3], steps = [1, 1]} : f32[n, 3]
    %5 = slice(%3) {starts = [0, 4], limits = [n, 7], steps = [1, 2]} : f32[n, 2]
    %6 = slice(%3) {starts = [0, 2], limits = [n, 5], steps = [1, 1]} : f32[n, 3]
    %7 = pad(%p) {low = [1, 2], high = [0, 1], mode = "edge"} : f32[6, 9]
    %8 = exp(%7) : f32[6, 9]
    %9 = slice(%8) {starts = [1, 2], limits = [6, 8], steps = [1, 1]} : f32[5, 6]
    %10 = slice(%8) {starts = [0, 2], limits = [6, 8], steps = [1, 1]} : f32[6, 6]
    return "whole" = %3, "first" = %4, "second" = %5, "both" = %6, "inside" = %9, "border" = %10
  }
}
)");
  const Graph graph = eliminate_dead_code(run_pass(simplify, program));
  const auto source = [&](size_t output) {
    const Node* node = graph.producer(graph.outputs()[output]);
    while (node != nullptr && node->op != Op::slice && node->op != Op::pad && node->op != Op::concat) {
      const Node* next = graph.producer(node->operands[0]);
      if (next == nullptr) return node->operands[0];
      node = next;
    }
    return node->results[0];
  };
  EXPECT_EQ(source(1), graph.inputs()[0]);
  EXPECT_EQ(graph.producer(source(2))->operands[0], graph.inputs()[1]);
  EXPECT_EQ(graph.producer(graph.outputs()[3])->op, Op::slice);
  EXPECT_EQ(source(4), graph.inputs()[2]);
  EXPECT_EQ(graph.producer(graph.outputs()[5])->op, Op::slice);
  expect_equal_meaning(program, graph, {{"n", 5}});
}

// Whether one element is repeated by a view or stands there many times.
TEST(Simplify, DropsFactorsThatAreOneEverywhere) {
  const Program program = parse(R"(program {
  entry main(%x: f32[3]) {
    %a = constant f32[] = [1]
    %b = constant f32[3] = [1, 1, 1]
    %c = constant f32[3] = [1, 1, 2]
    %0 = broadcast_to(%a) {shape = [3]} : f32[3]
    %1 = mul(%0, %x) : f32[3]
    %2 = mul(%x, %b) : f32[3]
    %3 = mul(%x, %c) : f32[3]
    return "p" = %1, "q" = %2, "r" = %3
  }
})");
  const Graph simple = run_pass(simplify, program);
  EXPECT_EQ(count_ops(simple, Op::mul), 1) << print(simple);
  expect_equal_meaning(program, simple, {});
}

TEST(Simplify, NarrowingCastsComeBeforeViewsAndUndoWideningOnes) {
  const Program program = parse(R"(program {
  entry main(%x: f16[4, 6], %y: f32[4, 6]) {
    %0 = cast(%x) {dtype = f32} : f32[4, 6]
    %1 = reshape(%0) {shape = [4, 2, 3]} : f32[4, 2, 3]
    %2 = transpose(%1) {perm = [1, 0, 2]} : f32[2, 4, 3]
    %3 = cast(%2) {dtype = f16} : f16[2, 4, 3]
    %4 = reshape(%y) {shape = [24]} : f32[24]
    %5 = cast(%4) {dtype = f16} : f16[24]
    %6 = cast(%4) {dtype = i32} : i32[24]
    return "a" = %3, "b" = %5, "c" = %6
  }
}
)");
  const Graph graph = eliminate_dead_code(run_pass(simplify, program));
  EXPECT_EQ(count_ops(graph, Op::cast), 2);
  EXPECT_EQ(graph.producer(graph.outputs()[1])->op, Op::reshape);
  EXPECT_EQ(graph.producer(graph.outputs()[2])->op, Op::cast);
  expect_equal_meaning(program, graph, {});
}

// What is made of whole rows and a value of each is picked before it is made.
TEST(Simplify, GathersComeBeforeWhatRowsTakeAlong) {
  const Program program = parse(R"(program {
  entry main(%x: f64[4, 6], %i: i64[4, 2], %j: i64[3, 2], %s: f64[]) {
    %0 = reduce_max(%x) {axes = [1], keepdims = true} : f64[4, 1]
    %1 = sub(%x, %0) : f64[4, 6]
    %2 = exp(%1) : f64[4, 6]
    %3 = reduce_sum(%2) {axes = [1], keepdims = true} : f64[4, 1]
    %4 = log(%3) : f64[4, 1]
    %5 = sub(%1, %4) : f64[4, 6]
    %6 = gather_elements(%5, %i) {axis = 1} : f64[4, 2]
    %7 = mul(%x, %s) : f64[4, 6]
    %8 = gather_elements(%7, %i) {axis = 1} : f64[4, 2]
    %9 = gather_elements(%5, %j) {axis = 1} : f64[3, 2]
    return "a" = %6, "b" = %8, "c" = %9
  }
}
)");
  const Graph graph = run_pass(simplify, program);
  const auto gathered = [&](size_t output) {
    const Node* node = graph.producer(graph.outputs()[output]);
    while (node->op == Op::sub) node = graph.producer(node->operands[0]);
    EXPECT_EQ(node->op, Op::gather_elements);
    return node->operands[0];
  };
  EXPECT_EQ(gathered(0), graph.inputs()[0]);
  EXPECT_EQ(graph.producer(gathered(1))->op, Op::mul);  // a factor of all reads no rows
  EXPECT_EQ(graph.producer(gathered(2))->op, Op::sub);  // of fewer rows than there are
}

TEST(Simplify, ChainsOfViewsAndIdentitiesCollapse) {
  const Program program = parse(R"(program {
  size n in 1..9
  entry main(%x: f32[n, 4]) {
    %0 = transpose(%x) {perm = [1, 0]} : f32[4, n]
    %1 = transpose(%0) {perm = [1, 0]} : f32[n, 4]
    %2 = reshape(%1) {shape = [n, 2, 2]} : f32[n, 2, 2]
    %3 = reshape(%2) {shape = [n, 4]} : f32[n, 4]
    %4 = constant f32[] = [1]
    %5 = mul(%3, %4) : f32[n, 4]
    %6 = neg(%5) : f32[n, 4]
    %7 = neg(%6) : f32[n, 4]
    return "y" = %7
  }
})");
  const Graph simplified = run_pass(simplify, program);
  EXPECT_EQ(simplified.nodes().size(), 0u) << print(simplified);
  expect_equal_meaning(program, simplified, {{"n", 3}});
}

// As of a triangle: what counts its rows and columns is not of its size.
TEST(Simplify, CountsAlongOneAxisOnce) {
  const Program program = parse(R"(program {
  size n in 1..9
  entry main(%x: f32[n, 7]) {
    %0 = iota() {shape = [n, 7], axis = 0, dtype = i64} : i64[n, 7]
    %1 = iota() {shape = [n, 7], axis = 1, dtype = i64} : i64[n, 7]
    %2 = ge(%0, %1) : bool[n, 7]
    %3 = iota() {shape = [1, 7], axis = 1, dtype = f32} : f32[1, 7]
    %4 = select(%2, %x, %3) : f32[n, 7]
    return "y" = %4
  }
})");
  const Graph simplified = run_pass(simplify, program);
  EXPECT_EQ(count_ops(simplified, Op::broadcast_to), 2);
  for (const Node& node : simplified.nodes())
    if (node.op == Op::iota) {
      const Shape& shape = simplified.shape(node.results[0]);
      EXPECT_TRUE(shape[0] == Dim(1) || shape[1] == Dim(1)) << print(simplified);
    }
  expect_equal_meaning(program, simplified, {{"n", 3}});
}

TEST(EliminateCommonSubexpressions, EqualNodesAreComputedOnce) {
  const Program program = parse(R"(program {
  entry main(%x: f32[4]) {
    %0 = exp(%x) : f32[4]
    %1 = exp(%x) : f32[4]
    %2 = add(%0, %1) : f32[4]
    return "y" = %2
  }
})");
  const Graph merged = run_pass(eliminate_common_subexpressions, program);
  EXPECT_EQ(count_ops(merged, Op::exp), 1);
  expect_equal_meaning(program, merged, {});
}

TEST(FoldConstants, CountsAFewAndLeavesRepeatsAsViews) {
  const Program program = parse(R"(program {
  entry main(%x: f32[10], %y: f32[70000]) {
    %0 = iota() {shape = [10], axis = 0, dtype = f32} : f32[10]
    %1 = constant f32[] = [2]
    %2 = broadcast_to(%1) {shape = [70000]} : f32[70000]
    %3 = add(%x, %0) : f32[10]
    %4 = add(%y, %2) : f32[70000]
    return "a" = %3, "b" = %4
  }
})");
  const Graph folded = run_pass(fold_constants, program);
  EXPECT_EQ(count_ops(folded, Op::iota), 0);
  EXPECT_EQ(count_ops(folded, Op::broadcast_to), 1);
  expect_equal_meaning(program, folded, {});
}

// What moves or picks numbers has the evaluator's bits; a function has those of the kernel that computes it.
TEST(FoldConstants, ComputesWhatHasOneResultWhoeverComputesIt) {
  Program program;
  Graph graph("main");
  const ValueId x = graph.add_constant(testing::random_array({DType::f32, {2, 3}}, {}, 1));
  const ValueId turned = graph.add(Op::transpose, {x}, {{"perm", Ints{1, 0}}});
  const ValueId most = graph.add(Op::max, {graph.add(Op::neg, {turned}), turned});
  graph.add_output(most, "y");
  graph.add_output(graph.add(Op::exp, {most}), "z");
  program.entries.push_back(std::move(graph));
  const Graph folded = run_pass(fold_constants, program);
  EXPECT_EQ(count_ops(folded, Op::transpose) + count_ops(folded, Op::neg) + count_ops(folded, Op::max), 0);
  EXPECT_EQ(count_ops(folded, Op::exp), 1);
  expect_equal_meaning(program, folded, {});
}

TEST(FoldConstants, LeavesNansToTheMachineThatComputesThem) {
  for (const double divisor : {0.0, 2.0}) {
    Program program;
    Graph graph("main");
    const ValueId x = graph.add_constant(Array::scalar_f64(DType::f32, 0));
    const ValueId y = graph.add_constant(Array::scalar_f64(DType::f32, divisor));
    graph.add_output(graph.add(Op::div, {x, y}, {}), "y");
    program.entries.push_back(std::move(graph));
    EXPECT_EQ(count_ops(run_pass(fold_constants, program), Op::div), divisor == 0 ? 1 : 0);
  }
}

// Whole numbers have one result whoever computes them, but the evaluator would take minutes for it.
TEST(FoldConstants, LeavesLongProductsToTheKernels) {
  for (const int64_t size : {8, 1024}) {
    Program program;
    Graph graph("main");
    const ValueId x = graph.add_constant(Array(DType::i64, {size, size}));
    graph.add_output(graph.add(Op::matmul, {x, x}, {}), "y");
    program.entries.push_back(std::move(graph));
    EXPECT_EQ(count_ops(run_pass(fold_constants, program), Op::matmul), size == 8 ? 0 : 1);
  }
}

// Below their level, optimisations run only where they may decide what is rounded: around what may be part of
// an attention or a gelu, in halves.
TEST(Pipeline, LeavesProgramsAsWrittenBelowALevel) {
  const auto simplified = [](DType dtype, Op op) {
    Program program;
    Graph graph("main");
    const ValueId x = graph.add_input("x", {dtype, {4, 8}});
    const Attrs attrs = op == Op::softmax ? Attrs{{"axis", int64_t{1}}} : Attrs{};
    graph.add_output(graph.add(op, {x}, attrs), "y");
    program.entries.push_back(std::move(graph));
    PipelineOptions options;
    options.opt_level = 0;
    std::vector<PassRecord> records;
    run_pipeline(std::move(program), kCpu, options, &records);
    return std::any_of(records.begin(), records.end(),
                       [](const PassRecord& record) { return record.name == "simplify"; });
  };
  for (const Op op : {Op::softmax, Op::erf}) {
    EXPECT_TRUE(simplified(DType::bf16, op));
    EXPECT_FALSE(simplified(DType::f32, op));
  }
  EXPECT_FALSE(simplified(DType::bf16, Op::neg));
}

TEST(Pipeline, RefusesToSkipARequiredPass) {
  PipelineOptions options;
  options.skip = {"decompose_composites"};
  EXPECT_THROW(run_pipeline({}, kCpu, options, nullptr), UserError);
  options.skip = {"no_such_pass"};
  EXPECT_THROW(run_pipeline({}, kCpu, options, nullptr), UserError);
}

}  // namespace
}  // namespace aicf
