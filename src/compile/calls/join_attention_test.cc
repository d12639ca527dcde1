// Attention that takes in the product of its queries, keys and values: when it does, and that the results are
// those of two kernels.
#include <gtest/gtest.h>

#include <algorithm>

#include "calls/call_forms.h"
#include "compile/testing/random_arrays.h"
#include "compile/testing/selected_calls.h"
#include "compile/testing/two_ways.h"
#include "ir/text.h"

namespace aicf::testing::join_attention_test {
namespace {

struct Case {
  DType dtype = DType::f16;
  int64_t batch = 64, positions = 128, heads = 12, depth = 32, width = 384;
  bool bias = true, mask = true, causal = false, returned = false;
};

// softmax(q k^T · scale + mask) v of x · w + bias, which holds q, k and v of all heads beside each other.
Program network(const Case& c) {
  Program program;
  Graph graph("main");
  const int64_t columns = c.heads * c.depth;
  const ValueId x = graph.add_input("x", {c.dtype, {Dim(c.batch), Dim(c.positions), Dim(c.width)}});
  const ValueId w = graph.add_input("w", {c.dtype, {Dim(c.width), Dim(3 * columns)}});
  const ValueId bias = graph.add_input("bias", {c.dtype, {Dim(3 * columns)}});
  const ValueId mask = graph.add_input("mask", {c.dtype, {Dim(c.batch), Dim(1), Dim(1), Dim(c.positions)}});
  ValueId all = graph.add(Op::matmul, {x, w});
  if (c.bias) all = graph.add(Op::add, {all, bias});
  std::vector<ValueId> operands;
  for (int64_t part = 0; part < 3; ++part) {
    const ValueId own =
        graph.add(Op::slice, {all},
                  {{"starts", Shape{Dim(0), Dim(0), Dim(part * columns)}},
                   {"limits", Shape{Dim(c.batch), Dim(c.positions), Dim((part + 1) * columns)}},
                   {"steps", std::vector<int64_t>{1, 1, 1}}});
    const ValueId split = graph.add(
        Op::reshape, {own}, {{"shape", Shape{Dim(c.batch), Dim(c.positions), Dim(c.heads), Dim(c.depth)}}});
    operands.push_back(graph.add(Op::transpose, {split}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}}));
  }
  if (c.mask) operands.push_back(mask);
  const ValueId attended =
      graph.add(Op::attention, operands, {{"causal", c.causal}, {"scale", 0.2}, {"softcap", 0.0}});
  graph.add_output(attended, "y");
  if (c.returned) graph.add_output(all, "projected");
  program.entries.push_back(std::move(graph));
  return program;
}

std::vector<KernelCall> calls_of(const Case& c, const char* target, std::vector<ForcedChoice> forced = {}) {
  SelectedCalls s = select_calls(network(c), target, std::move(forced));
  run_rule("join_attention", s);
  return s.calls.calls;
}

bool joined(const std::vector<KernelCall>& calls) {
  return std::any_of(calls.begin(), calls.end(),
                     [](const KernelCall& call) { return is_row(call, "matmul_attention"); });
}

// BERT-base's and one whose heads are shallow, 32 and 64 sequences.
const Case kDeep{.batch = 32, .depth = 64, .width = 768};
const std::vector<ForcedChoice> kForced = {{"*", "matmul_attention"}};

TEST(JoinAttention, WhereATileIsASequenceAndItPays) {
  EXPECT_TRUE(joined(calls_of(kDeep, "sm_90")));
  EXPECT_FALSE(joined(calls_of({}, "sm_90"))) << "of shallow heads attention takes longer than the product";
  EXPECT_FALSE(joined(calls_of({.batch = 1, .depth = 64, .width = 768}, "sm_90")))
      << "few tiles of long products";
  EXPECT_TRUE(joined(calls_of({}, "sm_90", kForced)));
  EXPECT_FALSE(joined(calls_of({}, "sm_80", kForced)));
  EXPECT_FALSE(joined(calls_of({.dtype = DType::f32}, "sm_90", kForced)));
  EXPECT_FALSE(joined(calls_of({.positions = 64}, "sm_90", kForced)));
  EXPECT_FALSE(joined(calls_of({.depth = 48}, "sm_90", kForced)));
  EXPECT_FALSE(joined(calls_of({.heads = 3}, "sm_90", kForced))) << "a tile has two heads";
  EXPECT_FALSE(joined(calls_of({.returned = true}, "sm_90", kForced))) << "who else reads q, k and v";
}

// The joined kernel adds the bias: a program that stores anything else is not its own.
TEST(JoinAttention, TheSumWithTheBiasIsWhatIsStored) {
  SelectedCalls s = select_calls(network(kDeep), "sm_90");
  const auto product = std::find_if(s.calls.calls.begin(), s.calls.calls.end(), is_product);
  ASSERT_NE(product, s.calls.calls.end());
  const int program = row_call(*product)->programs.at(0).index;
  std::vector<TileInstr>& code = s.calls.programs[static_cast<size_t>(program)].stages[0];
  ASSERT_EQ(code.size(), 5U);
  code[4].a = code[1].dst;
  run_rule("join_attention", s);
  EXPECT_FALSE(joined(s.calls.calls));
}

TEST(JoinAttention, ChoicesDecide) {
  const Case few{.batch = 1, .depth = 64, .width = 768};
  const std::vector<KernelCall> calls = calls_of(few, "sm_90", kForced);
  ASSERT_TRUE(joined(calls));
  EXPECT_FALSE(joined(calls_of(kDeep, "sm_90", {{"attention", "attention_wgmma"}})));
  EXPECT_FALSE(joined(calls_of(kDeep, "sm_90", {{"matmul", "matmul_tensor_core"}})));
}

TEST(JoinAttention, SaysWhy) {
  expect_told(told("join_attention", network(kDeep)), "taken", "a product and its attention in one kernel");
  expect_told(told("join_attention", network({.returned = true})), "refused", "is kept after the run");
  expect_told(told("join_attention", network({})), "refused", " us together, ");
  expect_told(told("join_attention", network({.positions = 64})), "refused", "has no way to do both");
  expect_told(told("join_attention", network(kDeep), {{"attention", "attention_wgmma"}}), "refused",
              "legal, but the caller's choice wants");
}

TEST(JoinAttention, HasTheResultsOfTwoKernels) {
  if (!TestDevice::get().has_clusters()) GTEST_SKIP() << "the joined kernel needs wgmma";
  for (const Case& c :
       {Case{}, Case{.batch = 3, .heads = 5, .depth = 64, .width = 200, .bias = false},
        Case{.dtype = DType::bf16, .batch = 40, .heads = 4, .width = 136, .mask = false, .causal = true},
        Case{.dtype = DType::bf16, .batch = 32, .depth = 64, .width = 768}}) {
    const Program program = network(c);
    SCOPED_TRACE(print(program));
    CompileOptions joint, apart;
    joint.target = apart.target = TestDevice::get().target;
    joint.forced = {{"*", "matmul_attention"}};
    apart.skip_passes.insert("join_attention");
    Artifact one = compile(program, joint), two = compile(program, apart);
    EXPECT_EQ(steps_of(one).size() + 1, steps_of(two).size());
    if (!TestDevice::get().runs) continue;
    const auto [got, want] = TwoWays(std::move(one), std::move(two)).run(normal_inputs(program, 5));
    EXPECT_LT(relative_error(got.at("y"), want.at("y")), c.dtype == DType::f16 ? 1e-4 : 8e-4);
  }
}

}  // namespace
}  // namespace aicf::testing::join_attention_test
