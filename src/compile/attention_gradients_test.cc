// Attention and its gradients through the whole compiler, beside the reference in f64; AICF_TEST_DEVICE as in
// testing/test_device.h. And what the two say to each other on a GPU.
#include <gtest/gtest.h>

#include <cmath>

#include "compile/compile.h"
#include "compile/testing/compiled.h"
#include "compile/testing/random_arrays.h"
#include "compile/testing/selected_calls.h"
#include "ir/reference/evaluator.h"
#include "ir/text.h"

namespace aicf::testing::attention_gradients_test {
namespace {

struct Case {
  const char* name;
  DType dtype;
  int64_t batch, heads, kv_heads, queries, keys, depth, value_depth;
  bool causal;
  int64_t window = 0;
  bool mask = false, lse = false;
};

// Norms of the error over that of the gradient: a few roundings of the type.
double tolerance(DType dtype) {
  return dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 2e-6 : dtype == DType::f16 ? 1e-3 : 6e-3;
}

Program program_of(const Case& c) {
  Graph graph("main");
  const auto input = [&](const char* name, int64_t heads, int64_t rows, int64_t depth) {
    return graph.add_input(name, {c.dtype, {Dim(c.batch), Dim(heads), Dim(rows), Dim(depth)}});
  };
  const ValueId q = input("q", c.heads, c.queries, c.depth), k = input("k", c.kv_heads, c.keys, c.depth),
                v = input("v", c.kv_heads, c.keys, c.value_depth),
                dout = input("dout", c.heads, c.queries, c.value_depth);
  const Attrs attrs = {
      {"scale", 1 / std::sqrt(static_cast<double>(c.depth))}, {"causal", c.causal}, {"window", c.window}};
  ValueId mask = kNoValue;
  if (c.mask) {
    const ValueId noise =
        graph.add_input("noise", {DType::f32, {Dim(c.batch), 1, Dim(c.queries), Dim(c.keys)}});
    mask = graph.add(Op::gt, {noise, graph.add_constant(Array::scalar_f64(DType::f32, -1))}, {});
  }
  const NodeId forward = graph.add_node(c.lse ? Op::attention_lse : Op::attention, {q, k, v, mask}, attrs);
  const ValueId out = graph.node(forward).results[0];
  const NodeId gradients = graph.add_node(Op::attention_backward, {q, k, v, out, dout, mask}, attrs);
  graph.add_output(out, "out");
  if (c.lse) graph.add_output(graph.node(forward).results[1], "lse");
  const char* const names[] = {"dq", "dk", "dv"};
  for (size_t i = 0; i < 3; ++i) graph.add_output(graph.node(gradients).results[i], names[i]);
  Program program;
  program.entries.push_back(std::move(graph));
  return program;
}

constexpr Case kCases[] = {
    {"causal_grouped", DType::bf16, 2, 4, 2, 200, 200, 128, 128, true},
    {"more_keys", DType::bf16, 1, 3, 3, 130, 300, 64, 64, false},
    {"odd_length", DType::f16, 2, 2, 1, 257, 257, 64, 64, true},
    {"rows_without_keys", DType::bf16, 1, 2, 2, 300, 200, 80, 64, true},
    {"shallow", DType::bf16, 1, 2, 2, 150, 150, 32, 32, true},
    {"deep", DType::bf16, 1, 2, 1, 60, 60, 160, 160, true},
    {"many_short", DType::bf16, 12, 12, 4, 70, 100, 64, 48, true},
    {"many_short_shallow", DType::f16, 12, 12, 12, 128, 80, 32, 24, true},
    // More tiles than a GPU has multiprocessors: blocks take several.
    {"many_tiles", DType::bf16, 1, 70, 70, 257, 257, 64, 64, false},
    {"many_tiles_causal", DType::f16, 2, 68, 68, 130, 130, 64, 64, true},
    {"single", DType::f32, 2, 4, 2, 70, 90, 32, 48, true},
    {"single_masked", DType::f32, 2, 4, 2, 130, 117, 80, 80, false, 0, true},
    {"single_one_query", DType::f32, 3, 4, 4, 1, 17, 64, 64, false},
    {"single_long", DType::f32, 2, 3, 3, 512, 512, 64, 64, false},
    {"single_deep", DType::f32, 1, 2, 1, 60, 60, 256, 256, true},
    {"single_odd", DType::f32, 1, 3, 3, 100, 197, 7, 50, false},
    {"half_masked", DType::bf16, 1, 4, 2, 130, 130, 64, 64, false, 0, true},
    {"double", DType::f64, 1, 2, 1, 40, 50, 20, 24, true},
};

// Of every kernel (wgmma in both tile heights, short, mma in registers and with deep heads, split in one
// block, a cluster and the workspace, simt): windows of one key, that end inside and at tiles of keys, wider
// than all keys; causal and on both sides, more keys than queries and fewer; grouped heads, masks.
constexpr Case kWindows[] = {
    {"wgmma", DType::bf16, 1, 24, 6, 400, 400, 128, 128, true, 100, false, true},
    {"wgmma_one_key", DType::bf16, 1, 24, 24, 300, 300, 64, 64, true, 1},
    {"wgmma_tile", DType::f16, 1, 20, 5, 400, 600, 128, 64, true, 256, false, true},
    {"wgmma_both_sides", DType::bf16, 1, 24, 12, 300, 700, 64, 128, false, 130, false, true},
    {"wgmma_more_queries", DType::bf16, 1, 16, 8, 600, 300, 64, 64, false, 70},
    {"wgmma_wide", DType::bf16, 1, 24, 24, 300, 300, 64, 64, true, 300, false, true},
    {"wgmma_masked", DType::bf16, 1, 20, 5, 400, 400, 64, 64, true, 150, true, true},
    {"wgmma_tall", DType::f16, 1, 132, 132, 192, 250, 64, 64, false, 60, false, true},
    {"wgmma_long", DType::bf16, 1, 4, 2, 2200, 2200, 64, 64, true, 1000, false, true},
    {"many_tiles", DType::bf16, 1, 70, 70, 257, 300, 64, 64, true, 65},
    {"unseen_keys", DType::bf16, 1, 4, 2, 130, 900, 64, 64, true, 100, false, true},
    {"short", DType::bf16, 12, 12, 4, 70, 100, 64, 48, true, 33, false, true},
    {"short_both_sides", DType::f16, 12, 12, 12, 128, 128, 32, 24, false, 5, true, true},
    {"deep", DType::bf16, 1, 2, 1, 260, 260, 160, 256, true, 90, false, true},
    {"few_blocks", DType::f16, 1, 2, 2, 500, 500, 96, 96, false, 64, true, true},
    {"odd_depth", DType::bf16, 1, 3, 3, 300, 300, 20, 33, true, 17, false, true},
    {"one_query", DType::bf16, 4, 32, 8, 1, 1500, 64, 64, true, 700, false, true},
    {"one_query_one_key", DType::bf16, 4, 32, 8, 1, 1500, 64, 64, true, 1, false, true},
    {"one_query_long", DType::bf16, 1, 8, 2, 1, 20000, 128, 128, true, 9001, false, true},
    {"few_queries", DType::f16, 1, 4, 2, 7, 6000, 64, 64, true, 2000, false, true},
    {"few_queries_masked", DType::f16, 2, 4, 2, 5, 3000, 64, 64, false, 40, true, true},
    {"more_queries", DType::bf16, 1, 2, 2, 300, 200, 80, 64, true, 50},
    {"single", DType::f32, 2, 4, 2, 150, 190, 32, 48, true, 40, false, true},
    {"single_both_sides", DType::f32, 1, 2, 2, 190, 150, 64, 64, false, 40, true},
    {"double", DType::f64, 1, 2, 1, 140, 150, 20, 24, true, 31, false, true},
};

// As relative_error; infinity where one of them is not finite and the other differs. A window of one key
// gives gradients of 0: numbers count as a thousandth at least.
double error_of(const Array& got, const Array& want) {
  double error = 0, size = 1e-6 * static_cast<double>(want.count());
  for (int64_t i = 0; i < want.count(); ++i) {
    const double x = got.get_f64(i), y = want.get_f64(i);
    if (!std::isfinite(y) && x == y) continue;
    error += (x - y) * (x - y);
    size += y * y;
  }
  return std::isfinite(error) ? std::sqrt(error / size) : HUGE_VAL;
}

class AttentionGradients : public ::testing::TestWithParam<Case> {};

TEST_P(AttentionGradients, AreThoseOfTheReference) {
  const Program program = program_of(GetParam());
  const auto inputs = normal_inputs(program, 3);
  const std::unique_ptr<Executable> exe = compiled(program);
  if (exe == nullptr) return;
  const auto got = exe->run("", inputs), again = exe->run("", inputs);
  EXPECT_EQ(got, again) << "two runs differ";
  for (const auto& [name, want] : evaluate(program, program.entries[0], {inputs, {}}, {false}).outputs)
    EXPECT_LT(error_of(got.at(name), want), tolerance(got.at(name).dtype())) << name;
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionGradients, ::testing::ValuesIn(kCases), case_name);
INSTANTIATE_TEST_SUITE_P(Windows, AttentionGradients, ::testing::ValuesIn(kWindows), case_name);

// The forward kernel leaves the sums of its rows, and the gradients' kernel reads them, but for f64.
TEST(AttentionSums, AreSharedWhereAKernelCanUseThem) {
  const auto selected = [](const Case& c, const char* target) {
    return to_string(select_calls(program_of(c), target).calls);
  };
  const std::string sums = "in  f32 %8 attention sums [2, 4, 200]";
  EXPECT_NE(selected(kCases[0], "sm_90").find(sums), std::string::npos);
  EXPECT_NE(selected(kCases[0], "sm_80").find(sums), std::string::npos);
  Case other = kCases[0];
  other.dtype = DType::f32;
  EXPECT_NE(selected(other, "sm_90").find(sums), std::string::npos);
  other.mask = true;
  EXPECT_NE(selected(other, "sm_90").find("attention sums [2, 4, 200]"), std::string::npos);
  other.dtype = DType::f64;
  EXPECT_EQ(selected(other, "sm_90").find("attention sums"), std::string::npos);
  // Those that attention_lse gives are the same.
  EXPECT_NE(selected(kWindows[0], "sm_90").find("in  f32 %5 [1, 24, 400]"), std::string::npos);
}

}  // namespace
}  // namespace aicf::testing::attention_gradients_test
