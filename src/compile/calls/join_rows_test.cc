// Products that take in the region over their rows: when they do, what stays, and that the results are those
// of two kernels.
#include <gtest/gtest.h>

#include <algorithm>

#include "compile/testing/random_arrays.h"
#include "compile/testing/selected_calls.h"
#include "compile/testing/two_ways.h"
#include "ir/text.h"

namespace aicf::testing {
namespace {

enum class Rows { kLayerNorm, kRmsNorm, kSoftmax };

// What the network does with the sum x · w + bias + residual beside the rows.
enum class Sum { kDropped, kReturned };

Program row_network(DType dtype, const Shape& batch, int64_t rows, int64_t columns, int64_t depth, Rows kind,
                    Sum sum) {
  Program program;
  Graph graph("main");
  const auto shape = [&](int64_t last) {
    Shape sizes = batch;
    sizes.insert(sizes.end(), {Dim(rows), Dim(last)});
    return sizes;
  };
  const ValueId x = graph.add_input("x", {dtype, shape(depth)});
  const ValueId w = graph.add_input("w", {dtype, {Dim(depth), Dim(columns)}});
  const ValueId bias = graph.add_input("bias", {dtype, {Dim(columns)}});
  const ValueId residual = graph.add_input("residual", {dtype, shape(columns)});
  const ValueId scale = graph.add_input("scale", {dtype, {Dim(columns)}});
  const ValueId product = graph.add(Op::matmul, {x, w});
  const ValueId all = graph.add(Op::add, {graph.add(Op::add, {product, bias}), residual});
  ValueId y = kNoValue;
  if (kind == Rows::kLayerNorm) {
    y = graph.add(Op::layer_norm, {all, scale, bias}, {{"axis", int64_t{-1}}, {"epsilon", 1e-5}});
  } else if (kind == Rows::kRmsNorm) {
    y = graph.add(Op::rms_norm, {all, scale}, {{"axis", int64_t{-1}}, {"epsilon", 1e-5}});
  } else {
    y = graph.add(Op::softmax, {all}, {{"axis", int64_t{-1}}});
  }
  graph.add_output(y, "y");
  if (sum == Sum::kReturned) graph.add_output(all, "sum");
  program.entries.push_back(std::move(graph));
  return program;
}

Program large(Sum sum) { return row_network(DType::f16, {}, 8192, 384, 384, Rows::kLayerNorm, sum); }

// The calls of the entry as compile() has them, by name.
std::vector<KernelCall> row_calls(const Program& program, const char* target,
                                  std::vector<ForcedChoice> forced = {}, const Records* records = nullptr) {
  SelectedCalls s = select_calls(program, target, std::move(forced), records);
  run_rule("join_rows", s);
  return s.calls.calls;
}

size_t rows_joined(const std::vector<KernelCall>& calls) {
  return static_cast<size_t>(std::count_if(
      calls.begin(), calls.end(), [](const KernelCall& call) { return is_row(call, "matmul_rows"); }));
}

TEST(JoinRows, WhereClustersCoverRowsAndItPays) {
  const std::vector<KernelCall> calls = row_calls(large(Sum::kDropped), "sm_90");
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(row_call(calls[0])->row, "matmul_rows");
  EXPECT_EQ(calls[0].inputs.size(), 6u);
  EXPECT_EQ(calls[0].outputs.size(), 1u);
  for (const char* target : {"sm_80", "sm_89"})
    EXPECT_EQ(rows_joined(row_calls(large(Sum::kDropped), target)), 0u);
  // Few rows want many small tiles; rows of 8 KiB no cluster covers, nor those of 100 columns.
  EXPECT_EQ(rows_joined(row_calls(row_network(DType::f16, {}, 128, 768, 768, Rows::kLayerNorm, Sum::kDropped),
                                  "sm_90")),
            0u);
  const std::vector<ForcedChoice> forced = {{"*", "matmul_rows"}};
  for (const int64_t columns : {4096, 104})
    EXPECT_EQ(rows_joined(
                  row_calls(row_network(DType::f16, {}, 4096, columns, 768, Rows::kLayerNorm, Sum::kDropped),
                            "sm_90", forced)),
              0u);
  EXPECT_EQ(
      rows_joined(row_calls(row_network(DType::f32, {}, 4096, 768, 768, Rows::kLayerNorm, Sum::kDropped),
                            "sm_90", forced)),
      0u);
}

TEST(JoinRows, ASumThatIsReadElsewhereIsStored) {
  const std::vector<KernelCall> calls = row_calls(large(Sum::kReturned), "sm_90", {{"*", "matmul_rows"}});
  ASSERT_EQ(rows_joined(calls), 1u);
  EXPECT_EQ(calls[0].outputs.size(), 2u);
}

// What the rows of a product update is a matrix of the product, which all of its blocks read.
TEST(JoinRows, NoRowsInTheMemoryOfAMatrix) {
  Program program;
  Graph graph("main");
  const TensorType y{DType::f16, {Dim(1024), Dim(256)}};
  program.variables["y"] = {"y", Role::kState, y, {}};
  const ValueId state = graph.add_state("y", y);
  const ValueId x = graph.add_input("x", {DType::f16, {Dim(1024), Dim(1024)}});
  const ValueId rows = graph.add(Op::softmax, {graph.add(Op::matmul, {x, state})}, {{"axis", int64_t{-1}}});
  graph.add_update(state, rows);
  program.entries.push_back(std::move(graph));
  EXPECT_EQ(row_calls(program, "sm_90", {{"*", "matmul_rows"}}).size(), 2u);
  expect_told(told("join_rows", program, {{"*", "matmul_rows"}}), "refused", " overwrites what ");
}

TEST(JoinRows, ChoicesDecide) {
  const ForcedChoice apart{"matmul", "matmul_tensor_core/wgmma 128x192 stages 5 warpgroups 2"};
  EXPECT_EQ(rows_joined(row_calls(large(Sum::kDropped), "sm_90", {apart})), 0u);
  const Program small = row_network(DType::bf16, {}, 100, 768, 64, Rows::kRmsNorm, Sum::kDropped);
  EXPECT_EQ(rows_joined(row_calls(small, "sm_90")), 0u);
  const std::vector<KernelCall> calls = row_calls(small, "sm_90", {{"*", "matmul_rows"}});
  ASSERT_EQ(rows_joined(calls), 1u);
  EXPECT_EQ(calls[0].choice.source, ChoiceSource::kForced);
  EXPECT_EQ(row_call(calls[0])->way, calls[0].choice.candidates[calls[0].choice.chosen].way);
}

TEST(JoinRows, SaysWhy) {
  expect_told(told("join_rows", large(Sum::kDropped)), "taken", "a product and its rows in one kernel");
  const Program few = row_network(DType::f16, {}, 128, 768, 768, Rows::kLayerNorm, Sum::kDropped);
  expect_told(told("join_rows", few), "refused", " us together, ");
  const Program wide = row_network(DType::f16, {}, 4096, 4096, 768, Rows::kLayerNorm, Sum::kDropped);
  expect_told(told("join_rows", wide), "refused", "matmul_rows has no way to do both");
  const ForcedChoice apart{"matmul", "matmul_tensor_core/wgmma 128x192 stages 5 warpgroups 2"};
  expect_told(told("join_rows", large(Sum::kDropped), {apart}), "refused",
              "legal, but the caller's choice wants");
  const KernelCall product = select_calls(large(Sum::kDropped), "sm_90").calls.calls[0];
  Records records;
  records.add_layer("test", {{product.choice.key.value(), apart.candidate, 1, 2, ""}});
  expect_told(told("join_rows", large(Sum::kDropped), {}, {}, &records), "refused",
              "legal, but the record of");
}

// The price of the product, whatever measured it, decides, and its estimate nothing; a report shows
// estimates.
TEST(JoinRows, PricesDecideAndReportsShowEstimates) {
  const auto report = [](double estimate, double price) {
    SelectedCalls s = select_calls(large(Sum::kDropped), "sm_90");
    for (KernelCall& call : s.calls.calls)
      for (Candidate& candidate : call.choice.candidates)
        candidate.estimate_us = estimate, candidate.price_us = price;
    return run_rule("join_rows", s).at(0);
  };
  const CallReport apart = report(1e6, 0), rows_joined = report(0, 1e6);
  EXPECT_FALSE(apart.taken) << to_string(apart);
  EXPECT_TRUE(rows_joined.taken) << to_string(rows_joined);
  EXPECT_EQ(apart.microseconds, rows_joined.microseconds);
  EXPECT_GT(apart.microseconds, 0);
}

// A record of the product's problem decides: one of the joined kernel joins where estimates would not, one of
// the product's own kernels keeps apart where they would join.
TEST(JoinRows, RecordsDecide) {
  const auto recorded = [](const Program& program, const std::string& choice) {
    const KernelCall product = row_calls(program, "sm_90")[0];
    Records records;
    records.add_layer("test", {{product.choice.key.value(), choice, 1, 2, ""}});
    return row_calls(program, "sm_90", {}, &records);
  };
  const Program small = row_network(DType::bf16, {}, 100, 768, 64, Rows::kRmsNorm, Sum::kDropped);
  ASSERT_EQ(rows_joined(row_calls(small, "sm_90")), 0u);
  const std::vector<KernelCall> calls = recorded(small, "matmul_rows");
  ASSERT_EQ(rows_joined(calls), 1u);
  EXPECT_EQ(calls[0].choice.source, ChoiceSource::kRecord);
  EXPECT_NE(calls[0].reason.find("recorded"), std::string::npos);
  const Choice& choice = calls[0].choice;
  for (size_t i = 0; i < choice.candidates.size(); ++i) {
    EXPECT_EQ(choice.candidates[i].price_us, i == choice.chosen ? 1 : choice.candidates[i].estimate_us);
    EXPECT_NE(choice.candidates[i].estimate_us, 1);
  }
  const std::string variant = to_string(calls[0].choice.candidates.back());
  EXPECT_EQ(to_string(recorded(small, variant)[0].choice.candidates.back()), variant);
  EXPECT_EQ(recorded(small, variant)[0].choice.chosen, calls[0].choice.candidates.size() - 1);
  EXPECT_EQ(rows_joined(recorded(small, "matmul_attention")), 0u);
  EXPECT_EQ(
      rows_joined(recorded(large(Sum::kDropped), "matmul_tensor_core/wgmma 128x192 stages 5 warpgroups 2")),
      0u);
}

struct RowCase {
  DType dtype;
  Shape batch;
  int64_t rows, columns, depth;
  Rows kind;
  Sum sum;
};

const std::vector<RowCase>& row_cases() {
  static const std::vector<RowCase> list = {
      {DType::f16, {}, 300, 768, 192, Rows::kLayerNorm, Sum::kDropped},
      {DType::bf16, {}, 129, 384, 64, Rows::kLayerNorm, Sum::kReturned},
      {DType::f16, {Dim(3)}, 50, 1024, 72, Rows::kRmsNorm, Sum::kReturned},
      {DType::bf16, {Dim(2), Dim(5)}, 7, 2048, 136, Rows::kRmsNorm, Sum::kDropped},
      {DType::f16, {}, 1, 128, 8, Rows::kSoftmax, Sum::kDropped},
      {DType::f16, {}, 260, 320, 320, Rows::kSoftmax, Sum::kReturned},
      {DType::bf16, {}, 64, 1536, 200, Rows::kLayerNorm, Sum::kReturned},
  };
  return list;
}

// A candidate of the product that adds in the order of the joined kernel.
std::string unsplit(const Program& program) {
  for (const KernelCall& call : row_calls(program, "sm_90", {{"matmul", "matmul_tensor_core"}}))
    for (const Candidate& candidate : call.choice.candidates) {
      const auto* way = std::get_if<MatmulWay>(&candidate.way);
      if (is_row(call, "matmul_tensor_core") && way != nullptr && is_wgmma(*way) && split_parts(*way) == 1)
        return to_string(candidate);
    }
  return "";
}

// The sums have the bits of two kernels; the statistics are added in another order.
TEST(JoinRows, HasTheResultsOfTwoKernels) {
  if (!TestDevice::get().has_clusters()) GTEST_SKIP() << "kernels over rows run on GPUs with clusters";
  for (const RowCase& c : row_cases()) {
    const Program program = row_network(c.dtype, c.batch, c.rows, c.columns, c.depth, c.kind, c.sum);
    SCOPED_TRACE(print(program));
    CompileOptions joint, apart;
    joint.target = apart.target = TestDevice::get().target;
    joint.forced = {{"*", "matmul_rows"}};
    apart.skip_passes.insert("join_rows");
    apart.forced = {{"matmul", unsplit(program)}};
    Artifact one = compile(program, joint), two = compile(program, apart);
    EXPECT_EQ(steps_of(one).size() + 1, steps_of(two).size());
    if (!TestDevice::get().runs) continue;
    const auto [got, want] = TwoWays(std::move(one), std::move(two)).run(normal_inputs(program, 5));
    EXPECT_LT(relative_error(got.at("y"), want.at("y")), c.dtype == DType::f16 ? 1e-4 : 8e-4);
    if (c.sum == Sum::kReturned) {
      EXPECT_EQ(got.at("sum"), want.at("sum"));
    }
  }
}

}  // namespace
}  // namespace aicf::testing
