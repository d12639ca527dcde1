// Regions that read the rows of a table themselves: when they do, what stays apart, and that the results and
// errors are those of two kernels.
#include <gtest/gtest.h>

#include "codegen/testing/needs_nvrtc.h"
#include "compile/testing/row_join.h"
#include "compile/testing/selected_calls.h"

namespace aicf::testing {
namespace {

constexpr RowJoin kGatherJoin = {"join_gathers", "tile_gathered"};

struct GatherCase {
  DType dtype, index;
  Shape table;  // rows, then what a row is
  Shape indices;
  RowReaders readers = RowReaders::kRegion;
};

// norm(table[indices] + places), over rows of the table's last axis.
Program gather_network(const GatherCase& c) {
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
  add_other_readers(graph, rows, c.readers);
  program.entries.push_back(std::move(graph));
  return program;
}

TEST(JoinGathers, OnlyWhereOneRegionOverRowsReadsThem) {
  AICF_NEEDS_NVRTC();
  const GatherCase words{DType::f16, DType::i64, {Dim(1000), Dim(384)}, {Dim(4), Dim(32)}};
  kGatherJoin.check_readers([&](RowReaders readers) {
    GatherCase read = words;
    read.readers = readers;
    return gather_network(read);
  });
}

TEST(JoinGathers, SaysWhy) {
  GatherCase words{DType::f16, DType::i64, {Dim(1000), Dim(384)}, {Dim(4), Dim(32)}};
  expect_told(told("join_gathers", gather_network(words)), "taken", "reads the rows of a table itself");
  words.readers = RowReaders::kTwoRegions;
  expect_told(told("join_gathers", gather_network(words)), "refused", " is read by ");
  words.readers = RowReaders::kCaller;
  expect_told(told("join_gathers", gather_network(words)), "refused", " is kept after the run");
}

const GatherCase kGatherCases[] = {
    {DType::f16, DType::i64, {Dim(1000), Dim(384)}, {Dim(4), Dim(32)}},
    {DType::bf16, DType::i32, {Dim(77), Dim(768)}, {Dim(3), Dim(5)}},
    {DType::f32, DType::i64, {Dim(9), Dim(33)}, {Dim(2), Dim(3), Dim(7)}},
    {DType::f32, DType::i64, {Dim(50), Dim(4099)}, {Dim(6)}},
    {DType::f16, DType::i32, {Dim(20), Dim(40000)}, {Dim(24)}},
    {DType::f16, DType::i64, {Dim(5), Dim(64)}, {Dim(1), Dim(1)}},
};

// From both ends.
Array gathered_indices(const GatherCase& c) {
  Array indices(c.index, evaluate(c.indices, {}));
  const int64_t rows = *c.table[0].constant();
  for (int64_t i = 0; i < indices.count(); ++i) indices.set_i64(i, i * 7919 % (2 * rows) - rows);
  return indices;
}

TEST(JoinGathers, HasTheBitsAndErrorsOfTwoKernels) {
  AICF_NEEDS_NVRTC();
  for (const GatherCase& c : kGatherCases)
    kGatherJoin.check(gather_network(c), gathered_indices(c), *c.table[0].constant());
}

}  // namespace
}  // namespace aicf::testing
