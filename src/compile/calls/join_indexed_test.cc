// Pointwise regions that read elements at indices themselves: when they do, what stays apart, and that the
// results and errors are those of gathers and a region.
#include <gtest/gtest.h>

#include "codegen/testing/needs_nvrtc.h"
#include "compile/testing/row_join.h"
#include "compile/testing/selected_calls.h"
#include "ir/text.h"

namespace aicf::testing {
namespace {

constexpr RowJoin kIndexedJoin = {"join_indexed", "tile_indexed"};

struct IndexedCase {
  DType dtype, index;
  Shape table;
  int64_t axis;
  Shape indices;  // of gather_elements as many axes as the table, each as long or 1
  bool elements = false;
  RowReaders readers = RowReaders::kRegion;
};

Shape shape_of(const IndexedCase& c) {
  Shape shape = c.table;
  if (c.elements) {
    shape[static_cast<size_t>(c.axis)] = c.indices[static_cast<size_t>(c.axis)];
    return shape;
  }
  shape.erase(shape.begin() + c.axis);
  shape.insert(shape.begin() + c.axis, c.indices.begin(), c.indices.end());
  return shape;
}

// table at indices × weights + table at indices 0.
Program indexed_network(const IndexedCase& c) {
  Program program;
  Graph graph("main");
  const Shape shape = shape_of(c);
  const ValueId table = graph.add_input("table", {c.dtype, c.table});
  const ValueId indices = graph.add_input("indices", {c.index, c.indices});
  const ValueId weights = graph.add_input("weights", {c.dtype, {shape.back()}});
  const ValueId zero = graph.add_constant(Array::scalar_i64(c.index, 0));
  const auto read = [&](ValueId at) {
    if (!c.elements) return graph.add(Op::gather, {table, at}, {{"axis", c.axis}});
    const ValueId all = graph.add(Op::broadcast_to, {at}, {{"shape", shape}});
    return graph.add(Op::gather_elements, {table, all}, {{"axis", c.axis}});
  };
  const ValueId part = read(indices), other = read(graph.add(Op::mul, {indices, zero}));
  graph.add_output(graph.add(Op::add, {graph.add(Op::mul, {part, weights}), other}), "y");
  add_other_readers(graph, part, c.readers);
  program.entries.push_back(std::move(graph));
  return program;
}

const IndexedCase kImages{DType::f16, DType::i64, {Dim(3), Dim(5), Dim(77)}, 2, {Dim(3), Dim(1), Dim(50)},
                          true};

size_t steps_with(const Program& program, const char* target = "sm_90") {
  return count_steps(kIndexedJoin.compiled(program, true, target), "tile_indexed");
}

TEST(JoinIndexed, OneRegionReadsAllItsGathers) {
  AICF_NEEDS_NVRTC();
  const Program program = indexed_network(kImages);
  const Artifact joined = kIndexedJoin.compiled(program, true), apart = kIndexedJoin.compiled(program, false);
  EXPECT_EQ(count_steps(joined, "tile_indexed"), 1u);
  EXPECT_EQ(count_steps(joined, "gather_elements"), 0u);
  EXPECT_EQ(count_steps(apart, "gather_elements"), 2u);
  EXPECT_EQ(steps_with(program, "sm_80"), 1u);
  EXPECT_EQ(steps_with(program, "cpu"), 0u);
}

TEST(JoinIndexed, WhatOthersReadStaysInMemory) {
  AICF_NEEDS_NVRTC();
  IndexedCase read = kImages;
  read.readers = RowReaders::kCaller;
  EXPECT_EQ(count_steps(kIndexedJoin.compiled(indexed_network(read), true), "gather_elements"), 1u);
}

// Rows and what is made of them are parts of one value, which a region beside them reads.
TEST(JoinIndexed, PartsOfAValueThatOthersReadAreWritten) {
  AICF_NEEDS_NVRTC();
  const Program program = parse(R"(program {
  entry main(%t: f32[40, 64], %i: i64[8, 20], %q: f32[8, 20, 64], %w: f32[192, 64]) {
    %h = gather(%t, %i) {axis = 0} : f32[8, 20, 64]
    %d = sub(%q, %h) : f32[8, 20, 64]
    %c = concat(%h, %d, %q) {axis = 2} : f32[8, 20, 192]
    %y = matmul(%c, %w) : f32[8, 20, 64]
    return "y" = %y
  }
})");
  EXPECT_EQ(steps_with(program), 0u);
  expect_told(told("join_indexed", program), "refused", "");
}

TEST(JoinIndexed, SaysWhy) {
  expect_told(told("join_indexed", indexed_network(kImages)), "taken", "reads elements at indices itself");
  IndexedCase read = kImages;
  read.readers = RowReaders::kCaller;
  expect_told(told("join_indexed", indexed_network(read)), "refused", " is kept after the run");
}

// A variable is overwritten where its old elements may still be wanted.
TEST(JoinIndexed, WhatTheRegionOverwritesIsReadBefore) {
  AICF_NEEDS_NVRTC();
  const Program program = parse(R"(program {
  param "w" : f32[40, 96]
  entry main(%i: i64[40]) {
    %0 = param "w" : f32[40, 96]
    %1 = gather(%0, %i) {axis = 0} : f32[40, 96]
    %2 = add(%0, %1) : f32[40, 96]
    update "w" = %2
    return "y" = %2
  }
})");
  const Artifact artifact = kIndexedJoin.compiled(program, true);
  for (const Step& step : steps_of(artifact)) {
    if (step.kernel != "tile_indexed") continue;
    for (const TensorRef& out : step.outputs) EXPECT_NE(out.buffer, step.inputs[1].buffer);
  }
}

const IndexedCase kIndexedCases[] = {
    kImages,
    {DType::f32, DType::i64, {Dim(200), Dim(32), Dim(289)}, 2, {Dim(200), Dim(1), Dim(289)}, true},
    {DType::f32, DType::i32, {Dim(7), Dim(13), Dim(64)}, 2, {Dim(128)}},
    {DType::bf16, DType::i64, {Dim(7), Dim(13), Dim(64)}, 1, {Dim(5), Dim(9)}},
    {DType::f64, DType::i32, {Dim(9)}, 0, {Dim(33), Dim(3)}},
    {DType::f16, DType::i64, {Dim(9), Dim(70)}, 0, {Dim(21), Dim(70)}, true},
    {DType::f32, DType::i64, {Dim(5), Dim(4096)}, 0, {Dim(1), Dim(1)}},
    {DType::f32, DType::i64, {Dim(1), Dim(1)}, 1, {Dim(1)}},
};

TEST(JoinIndexed, HasTheBitsAndErrorsOfKernelsApart) {
  AICF_NEEDS_NVRTC();
  for (const IndexedCase& c : kIndexedCases) {
    const Program program = indexed_network(c);
    SCOPED_TRACE(print(program));
    Artifact joined = kIndexedJoin.compiled(program, true);
    EXPECT_EQ(count_steps(joined, "tile_indexed"), 1u);
    EXPECT_EQ(count_steps(joined, "gather") + count_steps(joined, "gather_elements"), 0u);
    if (!TestDevice::get().runs_clusters()) continue;
    TwoWays ways(std::move(joined), kIndexedJoin.compiled(program, false));
    const int64_t size = *c.table[static_cast<size_t>(c.axis)].constant();
    auto inputs = normal_inputs(program, 7);
    Array& indices = inputs.at("indices");
    for (int64_t i = 0; i < indices.count(); ++i) indices.set_i64(i, i * 7919 % (2 * size) - size);
    const auto [got, want] = ways.run(inputs);
    EXPECT_EQ(got.at("y"), want.at("y"));
    indices.set_i64(0, size);
    EXPECT_THROW(ways.first.run("main", inputs), UserError);
  }
}

}  // namespace
}  // namespace aicf::testing
