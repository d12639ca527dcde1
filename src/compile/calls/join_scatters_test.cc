// Pointwise regions that add up scattered rows themselves: when they do, what stays apart, and that the
// results and errors are those of two kernels.
#include <gtest/gtest.h>

#include "codegen/testing/needs_nvrtc.h"
#include "compile/testing/row_join.h"
#include "compile/testing/selected_calls.h"

namespace aicf::testing {
namespace {

constexpr RowJoin kScatterJoin = {"join_scatters", "tile_scattered"};

struct ScatterCase {
  DType dtype, index;
  Shape table;    // rows, then what a row is
  Shape indices;  // of updates
  RowReaders readers = RowReaders::kRegion;
  double zero = 0;  // what the updates are added to
  std::string reduction = "add";
};

// A row of one index for each update.
Shape column_of(const ScatterCase& c) {
  Shape column = c.indices;
  column.push_back(Dim(1));
  return column;
}

// (table + scattered) * other, where rows of zeros have got the updates that go to them.
Program scatter_network(const ScatterCase& c) {
  Program program;
  Graph graph("main");
  Shape rows = c.indices;
  rows.insert(rows.end(), c.table.begin() + 1, c.table.end());
  const ValueId table = graph.add_input("table", {c.dtype, c.table});
  const ValueId other = graph.add_input("other", {c.dtype, c.table});
  const ValueId indices = graph.add_input("indices", {c.index, column_of(c)});
  const ValueId updates = graph.add_input("updates", {c.dtype, rows});
  const ValueId scalar = graph.add_constant(Array::scalar_f64(c.dtype, c.zero));
  const ValueId zeros = graph.add(Op::broadcast_to, {scalar}, {{"shape", c.table}});
  const ValueId sums = graph.add(Op::scatter_nd, {zeros, indices, updates}, {{"reduction", c.reduction}});
  graph.add_output(graph.add(Op::mul, {graph.add(Op::add, {table, sums}), other}), "y");
  add_other_readers(graph, sums, c.readers);
  program.entries.push_back(std::move(graph));
  return program;
}

TEST(JoinScatters, OnlyWhereOnePointwiseRegionReadsSumsFromZero) {
  AICF_NEEDS_NVRTC();
  const ScatterCase words{DType::f32, DType::i64, {Dim(1000), Dim(384)}, {Dim(4), Dim(32)}};
  kScatterJoin.check_readers([&](RowReaders readers) {
    ScatterCase read = words;
    read.readers = readers;
    return scatter_network(read);
  });
  for (const char* reduction : {"none", "mul", "max", "min"}) {
    ScatterCase other = words;
    other.reduction = reduction;
    EXPECT_EQ(kScatterJoin.count(scatter_network(other)), 0u) << reduction;
  }
  for (const double zero : {1.0, -0.0}) {
    ScatterCase other = words;
    other.zero = zero;
    EXPECT_EQ(kScatterJoin.count(scatter_network(other)), 0u) << zero;
  }
  for (const Shape& table : {Shape{Dim(1), Dim(7)}, Shape{Dim(9), Dim(1)}, Shape{Dim(9), Dim(1), Dim(1)}}) {
    ScatterCase other = words;
    other.table = table;
    EXPECT_EQ(kScatterJoin.count(scatter_network(other)), 0u) << to_string(table);
  }
}

TEST(JoinScatters, SaysWhy) {
  ScatterCase words{DType::f32, DType::i64, {Dim(1000), Dim(384)}, {Dim(4), Dim(32)}};
  expect_told(told("join_scatters", scatter_network(words)), "taken", "adds up scattered rows itself");
  words.readers = RowReaders::kTwoRegions;
  expect_told(told("join_scatters", scatter_network(words)), "refused", " is read by ");
}

const ScatterCase kScatterCases[] = {
    {DType::f32, DType::i64, {Dim(1000), Dim(384)}, {Dim(4), Dim(32)}},
    {DType::bf16, DType::i32, {Dim(77), Dim(768)}, {Dim(3), Dim(5)}},
    {DType::f16, DType::i64, {Dim(3), Dim(64)}, {Dim(700)}},
    {DType::f32, DType::i64, {Dim(9), Dim(33)}, {Dim(2), Dim(3), Dim(7)}},
    {DType::f32, DType::i64, {Dim(50), Dim(3), Dim(40)}, {Dim(5000)}},
    {DType::f64, DType::i32, {Dim(2), Dim(7)}, {Dim(20)}},
    {DType::f16, DType::i64, {Dim(7), Dim(1), Dim(9)}, {Dim(90)}},
};

// From both ends, the first one many times.
Array scattered_indices(const ScatterCase& c) {
  Array indices(c.index, evaluate(column_of(c), {}));
  const int64_t rows = *c.table[0].constant();
  for (int64_t i = 0; i < indices.count(); ++i)
    indices.set_i64(i, i % 3 == 0 ? 0 : i * 7919 % (2 * rows) - rows);
  return indices;
}

TEST(JoinScatters, HasTheBitsAndErrorsOfTwoKernels) {
  AICF_NEEDS_NVRTC();
  for (const ScatterCase& c : kScatterCases)
    kScatterJoin.check(scatter_network(c), scattered_indices(c), *c.table[0].constant());
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
  const auto ways = kScatterJoin.both(program, 2);
  if (ways == nullptr) return;
  auto inputs = normal_inputs(program, 3);
  Array& indices = inputs.at("i");
  for (int64_t i = 0; i < indices.count(); ++i) indices.set_i64(i, i * i % 31);
  for (int round = 0; round < 2; ++round)
    EXPECT_EQ(ways->first.run("main", inputs).at("y"), ways->second.run("main", inputs).at("y")) << round;
}

}  // namespace
}  // namespace aicf::testing
