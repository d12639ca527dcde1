// Attention and its gradients through the whole compiler, beside the reference in f64; AICF_TEST_DEVICE as in
// testing/test_device.h. And what the two say to each other on a GPU.
#include <gtest/gtest.h>

#include <cmath>

#include "compile/compile.h"
#include "compile/testing/compiled.h"
#include "compile/testing/random_arrays.h"
#include "ir/reference/evaluator.h"
#include "ir/text.h"

namespace aicf::testing {
namespace {

struct Case {
  const char* name;
  DType dtype;
  int64_t batch, heads, kv_heads, queries, keys, depth, value_depth;
  bool causal;
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
  const Attrs attrs = {{"scale", 1 / std::sqrt(static_cast<double>(c.depth))}, {"causal", c.causal}};
  const ValueId out = graph.add(Op::attention, {q, k, v, kNoValue}, attrs);
  const NodeId gradients = graph.add_node(Op::attention_backward, {q, k, v, out, dout, kNoValue}, attrs);
  graph.add_output(out, "out");
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
    {"double", DType::f64, 1, 2, 1, 40, 50, 20, 24, true},
};

class AttentionGradients : public ::testing::TestWithParam<Case> {};

TEST_P(AttentionGradients, AreThoseOfTheReference) {
  const Program program = program_of(GetParam());
  const auto inputs = normal_inputs(program, 3);
  const std::unique_ptr<Executable> exe = compiled(program);
  if (exe == nullptr) return;
  const auto got = exe->run("", inputs), again = exe->run("", inputs);
  EXPECT_EQ(got, again) << "two runs differ";
  for (const auto& [name, want] : evaluate(program, program.entries[0], {inputs, {}}, {false}).outputs)
    EXPECT_LT(relative_error(got.at(name), want), tolerance(GetParam().dtype)) << name;
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionGradients, ::testing::ValuesIn(kCases), case_name);

// On sm_90 the forward kernel leaves the sums of its rows, and the gradients' kernel reads them.
TEST(AttentionSums, AreSharedWhereAKernelCanUseThem) {
  const auto selected = [](const Case& c, const char* target) {
    CompileOptions options;
    options.target = target;
    return printed_stage(program_of(c), "select", options);
  };
  const std::string sums = ", %8[2, 4, 200])";
  EXPECT_NE(selected(kCases[0], "sm_90").find(sums), std::string::npos);
  EXPECT_EQ(selected(kCases[0], "sm_80").find(sums), std::string::npos);
}

}  // namespace
}  // namespace aicf::testing
