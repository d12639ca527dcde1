// Regions that read the rows of a table themselves: when they do, what stays apart, and that the results and
// errors are those of two kernels.
#include "build/join_gathers.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "build/testing/needs_nvrtc.h"
#include "compile/testing/random_arrays.h"
#include "compile/testing/two_ways.h"
#include "ir/text.h"

namespace aicf::testing {
namespace {

enum class Readers { kNorm, kCaller, kTwo };

struct Case {
  DType dtype, index;
  Shape table;  // rows, then what a row is
  Shape indices;
  Readers readers = Readers::kNorm;
};

// norm(table[indices] + places), over rows of the table's last axis.
Program network(const Case& c) {
  Program program;
  Graph graph("main");
  const ValueId table = graph.add_input("table", {c.dtype, c.table});
  const ValueId indices = graph.add_input("indices", {c.index, c.indices});
  const ValueId places = graph.add_input("places", {c.dtype, {c.indices.back(), c.table.back()}});
  const ValueId scale = graph.add_input("scale", {c.dtype, {c.table.back()}});
  const ValueId rows = graph.add(Op::gather, {table, indices}, {{"axis", int64_t{0}}});
  const ValueId x = graph.add(Op::add, {rows, places});
  graph.add_output(graph.add(Op::layer_norm, {x, scale, scale}, {{"axis", int64_t{-1}}, {"epsilon", 1e-5}}),
                   "y");
  if (c.readers == Readers::kCaller) graph.add_output(rows, "rows");
  if (c.readers == Readers::kTwo)
    graph.add_output(graph.add(Op::softmax, {rows}, {{"axis", int64_t{-1}}}), "shares");
  program.entries.push_back(std::move(graph));
  return program;
}

Artifact compiled(const Program& program, bool joins, const char* target = "sm_90") {
  return compiled_with(kJoinGathers, joins, program, target, {"bundle_calls"});
}

size_t joined(const Case& c, const char* target = "sm_90") {
  return count_steps(compiled(network(c), true, target), "tile_gathered");
}

TEST(JoinGathers, OnlyWhereOneRegionOverRowsReadsThem) {
  AICF_NEEDS_NVRTC();
  const Case words{DType::f16, DType::i64, {Dim(1000), Dim(384)}, {Dim(4), Dim(32)}};
  EXPECT_EQ(joined(words), 1u);
  EXPECT_EQ(joined(words, "sm_80"), 1u);
  EXPECT_EQ(joined(words, "cpu"), 0u);
  Case other = words;
  other.readers = Readers::kCaller;
  EXPECT_EQ(joined(other), 0u);
  other.readers = Readers::kTwo;
  EXPECT_EQ(joined(other), 0u);
}

const Case kCases[] = {
    {DType::f16, DType::i64, {Dim(1000), Dim(384)}, {Dim(4), Dim(32)}},
    {DType::bf16, DType::i32, {Dim(77), Dim(768)}, {Dim(3), Dim(5)}},
    {DType::f32, DType::i64, {Dim(9), Dim(33)}, {Dim(2), Dim(3), Dim(7)}},
    {DType::f32, DType::i64, {Dim(50), Dim(4099)}, {Dim(6)}},
    {DType::f16, DType::i32, {Dim(20), Dim(40000)}, {Dim(24)}},
    {DType::f16, DType::i64, {Dim(5), Dim(64)}, {Dim(1), Dim(1)}},
};

// Indices from both ends.
Array indices_of(const Case& c, const Array& like) {
  Array indices(like.dtype(), like.sizes());
  const int64_t rows = *c.table[0].constant();
  for (int64_t i = 0; i < indices.count(); ++i) {
    const int64_t index = i * 7919 % (2 * rows) - rows;
    indices.set_i64(i, index);
  }
  return indices;
}

TEST(JoinGathers, HasTheBitsAndErrorsOfTwoKernels) {
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

}  // namespace
}  // namespace aicf::testing
