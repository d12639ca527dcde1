// Pointwise regions that add up scattered rows themselves: when they do, what stays apart, and that the
// results and errors are those of two kernels.
#include "build/join_scatters.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "build/testing/needs_nvrtc.h"
#include "compile/testing/random_arrays.h"
#include "compile/testing/two_ways.h"
#include "ir/text.h"

namespace aicf::testing {
namespace {

enum class Readers { kRegion, kCaller, kTwo };

struct Case {
  DType dtype, index;
  Shape table;    // rows, then what a row is
  Shape indices;  // of updates
  Readers readers = Readers::kRegion;
  double zero = 0;  // what the updates are added to
};

// (table + scattered) * other, where rows of zeros have got the updates that go to them.
Program network(const Case& c) {
  Program program;
  Graph graph("main");
  Shape column = c.indices, rows = c.indices;
  column.push_back(Dim(1));
  rows.insert(rows.end(), c.table.begin() + 1, c.table.end());
  const ValueId table = graph.add_input("table", {c.dtype, c.table});
  const ValueId other = graph.add_input("other", {c.dtype, c.table});
  const ValueId indices = graph.add_input("indices", {c.index, column});
  const ValueId updates = graph.add_input("updates", {c.dtype, rows});
  const ValueId scalar = graph.add_constant(Array::scalar_f64(c.dtype, c.zero));
  const ValueId zeros = graph.add(Op::broadcast_to, {scalar}, {{"shape", c.table}});
  const ValueId sums =
      graph.add(Op::scatter_nd, {zeros, indices, updates}, {{"reduction", std::string("add")}});
  graph.add_output(graph.add(Op::mul, {graph.add(Op::add, {table, sums}), other}), "y");
  if (c.readers == Readers::kCaller) graph.add_output(sums, "sums");
  if (c.readers == Readers::kTwo)
    graph.add_output(graph.add(Op::softmax, {sums}, {{"axis", int64_t{-1}}}), "shares");
  program.entries.push_back(std::move(graph));
  return program;
}

Artifact compiled(const Program& program, bool joins, const char* target = "sm_90") {
  return compiled_with(kJoinScatters, joins, program, target, {"bundle_calls"});
}

size_t joined(const Case& c, const char* target = "sm_90") {
  return count_steps(compiled(network(c), true, target), "tile_scattered");
}

TEST(JoinScatters, OnlyWhereOnePointwiseRegionReadsSumsFromZero) {
  AICF_NEEDS_NVRTC();
  const Case words{DType::f32, DType::i64, {Dim(1000), Dim(384)}, {Dim(4), Dim(32)}};
  EXPECT_EQ(joined(words), 1u);
  EXPECT_EQ(joined(words, "sm_80"), 1u);
  EXPECT_EQ(joined(words, "cpu"), 0u);
  Case other = words;
  other.readers = Readers::kCaller;
  EXPECT_EQ(joined(other), 0u);
  other.readers = Readers::kTwo;
  EXPECT_EQ(joined(other), 0u);
  other = words;
  for (const double zero : {1.0, -0.0}) {
    other = words;
    other.zero = zero;
    EXPECT_EQ(joined(other), 0u) << zero;
  }
  for (const Shape& table : {Shape{Dim(1), Dim(7)}, Shape{Dim(9), Dim(1)}, Shape{Dim(9), Dim(1), Dim(1)}}) {
    other = words;
    other.table = table;
    EXPECT_EQ(joined(other), 0u) << to_string(table);
  }
}

const Case kCases[] = {
    {DType::f32, DType::i64, {Dim(1000), Dim(384)}, {Dim(4), Dim(32)}},
    {DType::bf16, DType::i32, {Dim(77), Dim(768)}, {Dim(3), Dim(5)}},
    {DType::f16, DType::i64, {Dim(3), Dim(64)}, {Dim(700)}},
    {DType::f32, DType::i64, {Dim(9), Dim(33)}, {Dim(2), Dim(3), Dim(7)}},
    {DType::f32, DType::i64, {Dim(50), Dim(3), Dim(40)}, {Dim(5000)}},
    {DType::f64, DType::i32, {Dim(2), Dim(7)}, {Dim(20)}},
    {DType::f16, DType::i64, {Dim(7), Dim(1), Dim(9)}, {Dim(90)}},
};

// Indices from both ends, the first ones many times.
Array indices_of(const Case& c, const Array& like) {
  Array indices(like.dtype(), like.sizes());
  const int64_t rows = *c.table[0].constant();
  for (int64_t i = 0; i < indices.count(); ++i)
    indices.set_i64(i, i % 3 == 0 ? 0 : i * 7919 % (2 * rows) - rows);
  return indices;
}

TEST(JoinScatters, HasTheBitsAndErrorsOfTwoKernels) {
  AICF_NEEDS_NVRTC();
  for (const Case& c : kCases) {
    const Program program = network(c);
    SCOPED_TRACE(print(program));
    const auto ways = joined_and_apart([&](bool joins) { return compiled(program, joins); }, 1, 2);
    if (ways == nullptr) continue;
    auto inputs = normal_inputs(program, 7);
    inputs.at("indices") = indices_of(c, inputs.at("indices"));
    const auto [got, want] = ways->run(inputs);
    EXPECT_EQ(got.at("y"), want.at("y"));
    inputs.at("indices").set_i64(0, *c.table[0].constant());
    EXPECT_THROW(ways->first.run("main", inputs), UserError);
  }
}

// The region writes what it reads: the second run sees what the first one wrote.
TEST(JoinScatters, UpdatesAVariableInPlace) {
  AICF_NEEDS_NVRTC();
  const Program program = parse(R"(program {
  param "w" : bf16[40, 96]
  entry main(%g: bf16[40, 96], %i: i64[64, 1], %u: bf16[64, 96]) {
    %0 = param "w" : bf16[40, 96]
    %1 = constant f32[] = [0]
    %2 = broadcast_to(%1) {shape = [40, 96]} : f32[40, 96]
    %3 = cast(%u) {dtype = f32} : f32[64, 96]
    %4 = scatter_nd(%2, %i, %3) {reduction = "add"} : f32[40, 96]
    %5 = cast(%4) {dtype = bf16} : bf16[40, 96]
    %6 = add(%g, %5) : bf16[40, 96]
    %7 = sub(%0, %6) : bf16[40, 96]
    update "w" = %7
    return "y" = %6
  }
})");
  const auto ways = joined_and_apart([&](bool joins) { return compiled(program, joins); }, 2, 3);
  if (ways == nullptr) return;
  auto inputs = normal_inputs(program, 3);
  Array& indices = inputs.at("i");
  for (int64_t i = 0; i < indices.count(); ++i) indices.set_i64(i, i * i % 31);
  for (int round = 0; round < 2; ++round)
    EXPECT_EQ(ways->first.run("main", inputs).at("y"), ways->second.run("main", inputs).at("y")) << round;
}

}  // namespace
}  // namespace aicf::testing
