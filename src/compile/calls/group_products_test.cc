// Products of one shape that share a launch: when they do, what stays apart, and that results stay.
#include "calls/call_code.h"

#include <gtest/gtest.h>

#include "codegen/testing/needs_nvrtc.h"
#include "compile/testing/random_arrays.h"
#include "compile/testing/selected_calls.h"
#include "compile/testing/two_ways.h"

namespace aicf::testing::group_products_test {
namespace {

constexpr int64_t kRows = 2048, kWidth = 1024, kColumns = 768;

enum class Operands { kInputs, kTemps, kOneAfterAnother };

// x_i^T · y of `count` inputs x_i; or of relu(x_i), which are temps of which only one is needed at a time; or
// products of which each reads the one before.
Program network(int count, Operands operands) {
  Program program;
  Graph graph("main");
  const DType half = DType::bf16;
  const ValueId y = graph.add_input("y", {half, {Dim(kRows), Dim(kColumns)}});
  const ValueId zero = graph.add_constant(Array(half, std::vector<int64_t>{}));
  ValueId before = kNoValue;
  for (int i = 0; i < count; ++i) {
    const std::string number = std::to_string(i);
    ValueId x = graph.add_input("x" + number, {half, {Dim(kRows), Dim(kWidth)}});
    if (operands == Operands::kTemps) x = graph.add(Op::softmax, {x}, {{"axis", int64_t{1}}});
    ValueId right = y;
    if (before != kNoValue) {
      const ValueId sum = graph.add(Op::reduce_sum, {before}, {{"axes", Ints{0, 1}}, {"keepdims", false}});
      right = graph.add(Op::add, {y, graph.add(Op::mul, {sum, zero})});
    }
    const ValueId product = graph.add(Op::matmul, {x, right}, {{"transpose_x", true}});
    if (operands == Operands::kOneAfterAnother) before = product;
    graph.add_output(product, "z" + number);
  }
  program.entries.push_back(std::move(graph));
  return program;
}

CompileOptions options_of(const std::string& target, bool groups) {
  CompileOptions options;
  options.target = target;
  if (!groups) options.skip_passes.insert("group_products");
  return options;
}

// Members of each group.
std::vector<size_t> groups_of(const Program& program, const char* target = "sm_90", bool groups = true) {
  const Artifact artifact = compile(program, options_of(target, groups));
  std::vector<size_t> sizes;
  for (const Step& step : steps_of(artifact))
    if (step.kernel == kProductGroup) sizes.push_back(step.members.size());
  return sizes;
}

TEST(GroupProducts, EqualOnesShareALaunch) {
  AICF_NEEDS_NVRTC();
  const Program program = network(4, Operands::kInputs);
  EXPECT_EQ(groups_of(program), std::vector<size_t>{4});
  EXPECT_EQ(groups_of(program, "sm_80"), std::vector<size_t>{});
  EXPECT_EQ(groups_of(program, "sm_90", false), std::vector<size_t>{});
}

// A member runs with the numbers of the first: one that multiplies in another way stays apart.
TEST(GroupProducts, ThoseOfOtherNumbersStayApart) {
  SelectedCalls s = select_calls(network(4, Operands::kInputs), "sm_90");
  ASSERT_EQ(s.calls.calls.size(), 4U);
  std::get<RowCall>(s.calls.calls[1].what).params = {Dim(1)};
  run_rule("group_products", s);
  ASSERT_EQ(s.calls.calls.size(), 2U);
  EXPECT_EQ(std::get<RowCall>(s.calls.calls[0].what).params, std::vector<Dim>{Dim(1)});
  EXPECT_EQ(std::get<GroupedProducts>(s.calls.calls[1].what).members.size(), 3U);
}

TEST(GroupProducts, NoneReadsWhatAnotherGives) {
  AICF_NEEDS_NVRTC();
  EXPECT_EQ(groups_of(network(3, Operands::kOneAfterAnother)), std::vector<size_t>{});
}

TEST(GroupProducts, OperandsThatWouldWaitTakeNoMoreMemory) {
  AICF_NEEDS_NVRTC();
  EXPECT_EQ(groups_of(network(4, Operands::kTemps)), std::vector<size_t>{});
}

TEST(GroupProducts, SaysWhy) {
  expect_told(told("group_products", network(4, Operands::kInputs)), "taken", "4 products in one launch");
  expect_told(told("group_products", network(3, Operands::kOneAfterAnother)), "refused", " cannot pass ");
  expect_told(told("group_products", network(4, Operands::kTemps)), "refused", "would take more memory");
}

TEST(GroupProducts, ResultsAreThoseOfTheProductsApart) {
  const TestDevice& where = TestDevice::get();
  if (!where.cuda || !where.runs) GTEST_SKIP() << "needs a GPU (AICF_TEST_DEVICE=cuda)";
  const Program program = network(5, Operands::kInputs);
  const auto [got, want] = TwoWays(compile(program, options_of(where.target, true)),
                                   compile(program, options_of(where.target, false)))
                               .run(normal_inputs(program, 3));
  // Apart they split K, so that the last bits may differ.
  for (const auto& [name, array] : got) EXPECT_LT(relative_error(array, want.at(name)), 4e-3) << name;
}

// 12 products have 24 tensor maps of 128 bytes, sizes have 128, and the rest of 4 KiB are pointers.
TEST(GroupProducts, ArgumentsAreAsFewAsAKernelTakes) {
  KernelCall group;
  group.what.emplace<GroupedProducts>().members.resize(12);
  group.inputs.resize(100);
  group.outputs.resize(12);
  EXPECT_TRUE(arguments_fit(group));
  group.outputs.resize(13);
  EXPECT_FALSE(arguments_fit(group));
}

}  // namespace
}  // namespace aicf::testing::group_products_test
