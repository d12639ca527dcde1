// Products whose epilogue is the update that alone reads them: when calls are joined, what stays apart, and
// that the bits of every variable stay.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "codegen/testing/needs_nvrtc.h"
#include "compile/compile.h"
#include "compile/testing/random_arrays.h"
#include "compile/testing/selected_calls.h"
#include "compile/testing/test_device.h"
#include "runtime/executable.h"

namespace aicf::testing::join_updates_test {
namespace {

enum class Extra {
  kNone,
  kOutput,        // the first gradient is a result, too
  kSecondReader,  // so is a sum of it
  kOldParam,      // a later product reads the first param
  kClipped,       // the updates need a norm of all gradients
  kCrossed,       // each product reads the next one's param in place of y; rows are then as many as columns
  kInTurn,        // each needs a number that the one before decides by its param
  kWaits,         // they need what large values make after the products, whose x would wait meanwhile
};

// The gradients x_i^T · y_i of `count` params of [columns, width], and AdamW's steps of them.
struct Network {
  int count = 2;
  int64_t rows = 8192;  // so many that the products of a tile take longer than its update
  int64_t columns = 2048, width = 3072;
  DType dtype = DType::bf16;
  Extra extra = Extra::kNone;
  double last_decay = 0.01, last_epsilon = 1e-8;  // of the last param; the others' are these
};

ValueId scaled(Graph& graph, ValueId x, ValueId scale) {
  return graph.add(Op::cast, {graph.add(Op::mul, {graph.add(Op::cast, {x}, {{"dtype", DType::f32}}), scale})},
                   {{"dtype", graph.dtype(x)}});
}

Program program_of(const Network& n) {
  Program program;
  Graph graph("main");
  const TensorType weight{n.dtype, {Dim(n.columns), Dim(n.width)}};
  const auto variable = [&](const std::string& name, const TensorType& type, bool is_param) {
    program.variables[name] = {name, is_param ? Role::kParam : Role::kState, type, {}};
    return is_param ? graph.add_param(name, type) : graph.add_state(name, type);
  };
  const ValueId rate = graph.add_input("rate", {n.dtype, {}});
  const ValueId t = variable("t", {DType::i64, {}}, false);
  std::vector<ValueId> params, gradients;
  for (int i = 0; i < n.count; ++i) params.push_back(variable("p" + std::to_string(i), weight, true));
  for (int i = 0; i < n.count; ++i) {
    const std::string number = std::to_string(i);
    ValueId x = graph.add_input("x" + number, {n.dtype, {Dim(n.rows), Dim(n.columns)}});
    if (n.extra == Extra::kWaits) x = graph.add(Op::softmax, {x}, {{"axis", int64_t{1}}});
    const ValueId y = n.extra == Extra::kCrossed
                          ? params[static_cast<size_t>((i + 1) % n.count)]
                          : graph.add_input("y" + number, {n.dtype, {Dim(n.rows), Dim(n.width)}});
    gradients.push_back(graph.add(Op::matmul, {x, y}, {{"transpose_x", true}}));
    if (n.extra == Extra::kOldParam && i == 0)
      graph.add_output(graph.add(Op::matmul, {y, params[0]}, {{"transpose_y", true}}), "back");
  }
  const ValueId first = gradients[0];
  if (n.extra == Extra::kOutput) graph.add_output(first, "gradient");
  if (n.extra == Extra::kSecondReader)
    graph.add_output(graph.add(Op::reduce_sum, {first}, {{"axes", Ints{0}}, {"keepdims", false}}), "sum");
  if (n.extra == Extra::kClipped) {
    const ValueId norm = graph.add(Op::reduce_sum, {graph.add(Op::cast, {first}, {{"dtype", DType::f32}})},
                                   {{"axes", Ints{0, 1}}, {"keepdims", false}});
    for (ValueId& gradient : gradients) gradient = scaled(graph, gradient, norm);
  }
  if (n.extra == Extra::kWaits) {
    const ValueId late = graph.add_input("late", {n.dtype, {Dim(n.columns), Dim(4 * n.width)}});
    const ValueId large = graph.add(Op::matmul, {graph.inputs()[1], late});
    const ValueId sum = graph.add(Op::reduce_sum, {graph.add(Op::cast, {large}, {{"dtype", DType::f32}})},
                                  {{"axes", Ints{0, 1}}, {"keepdims", false}});
    for (ValueId& gradient : gradients) gradient = scaled(graph, gradient, sum);
  }
  const ValueId step = graph.add(Op::add, {t, graph.add_constant(Array::from<int64_t>(DType::i64, {}, {1}))});
  graph.add_update(t, step);
  ValueId before = n.extra == Extra::kInTurn ? graph.add_input("before", weight) : kNoValue;
  for (int i = 0; i < n.count; ++i) {
    const std::string number = std::to_string(i);
    if (before != kNoValue) {
      // Of a product, since a sum of the param itself would be one region with its update.
      const ValueId square = graph.add(Op::matmul, {before, before}, {{"transpose_y", true}});
      const ValueId sum = graph.add(Op::reduce_sum, {graph.add(Op::cast, {square}, {{"dtype", DType::f32}})},
                                    {{"axes", Ints{0, 1}}, {"keepdims", false}});
      ValueId& gradient = gradients[static_cast<size_t>(i)];
      gradient = scaled(graph, gradient, sum);
    }
    const ValueId m = variable("m" + number, weight, false), v = variable("v" + number, weight, false);
    const NodeId node = graph.add_node(
        Op::adamw_step, {params[static_cast<size_t>(i)], gradients[static_cast<size_t>(i)], m, v, step, rate},
        {{"weight_decay", i + 1 == n.count ? n.last_decay : 0.01},
         {"epsilon", i + 1 == n.count ? n.last_epsilon : 1e-8}});
    const std::vector<ValueId> results = graph.node(node).results;
    graph.add_update(params[static_cast<size_t>(i)], results[0]);
    graph.add_update(m, results[1]);
    graph.add_update(v, results[2]);
    if (before != kNoValue) before = results[0];
  }
  graph.add_output(graph.add(Op::neg, {rate}), "negative");
  program.entries.push_back(std::move(graph));
  return program;
}

CompileOptions options_of(const std::string& target, bool joins) {
  CompileOptions options;
  options.target = target;
  if (!joins) options.skip_passes.insert("join_updates");
  return options;
}

// Products of each call that does their updates: those that have more operands than two and a result each.
std::vector<size_t> joined(const Network& network, const char* target = "sm_90", bool joins = true) {
  const Artifact artifact = compile(program_of(network), options_of(target, joins));
  std::vector<size_t> sizes;
  for (const Step& step : artifact.variants[0].plan.entries[0].steps)
    if (step.kernel == kProductGroup && step.members[0].outputs.size() == 3)
      sizes.push_back(step.members.size());
  return sizes;
}
using Sizes = std::vector<size_t>;

TEST(JoinUpdates, AGroupDoesItsUpdates) {
  AICF_NEEDS_NVRTC();
  EXPECT_EQ(joined({}), Sizes{2});
  EXPECT_EQ(joined({}, "sm_80"), Sizes{});
  EXPECT_EQ(joined({}, "sm_90", false), Sizes{});
}

TEST(JoinUpdates, AProductWithAllOfKDoesItsUpdate) {
  AICF_NEEDS_NVRTC();
  EXPECT_EQ(joined({.count = 1, .columns = 3072, .width = 4096}), Sizes{1});
}

TEST(JoinUpdates, AnUpdateThatTakesLongerThanItsProductStaysApart) {
  AICF_NEEDS_NVRTC();
  EXPECT_EQ(joined({.rows = 2048}), Sizes{});
}

TEST(JoinUpdates, OperandsThatWouldWaitTakeNoMoreMemory) {
  AICF_NEEDS_NVRTC();
  EXPECT_EQ(joined({.count = 1, .columns = 3072, .width = 4096, .extra = Extra::kWaits}), Sizes{});
}

TEST(JoinUpdates, GradientsThatOthersReadStayApart) {
  AICF_NEEDS_NVRTC();
  for (const Extra extra : {Extra::kOutput, Extra::kSecondReader, Extra::kClipped})
    EXPECT_EQ(joined({.extra = extra}), Sizes{}) << static_cast<int>(extra);
}

TEST(JoinUpdates, SaysWhy) {
  const auto said = [](const Network& n) {
    return told("join_updates", program_of(n), {}, {"group_products"});
  };
  expect_told(said({}), "taken", "2 products and their updates in one launch");
  expect_told(said({.extra = Extra::kOutput}), "refused", "is kept after the run");
  expect_told(said({.extra = Extra::kSecondReader}), "refused", " is read by ");
  expect_told(said({.rows = 2048}), "refused", "the updates do not hide");
  expect_told(said({.last_epsilon = 1e-3}), "refused", "the updates of its members differ");
  expect_told(said({.extra = Extra::kInTurn}), "refused", " would stand behind ");
  expect_told(said({.rows = 8192, .columns = 8192, .extra = Extra::kCrossed}), "refused",
              " overwrites what ");
  expect_told(said({.count = 1, .columns = 3072, .width = 4096, .extra = Extra::kWaits}), "refused",
              "would take more memory");
}

// In what their elements meet, that is; the decay is part of a number that every update reads.
TEST(JoinUpdates, UpdatesThatDifferStayApart) {
  AICF_NEEDS_NVRTC();
  EXPECT_EQ(joined({.last_epsilon = 1e-3}), Sizes{});
  EXPECT_EQ(joined({.last_decay = 0.5}), Sizes{2});
}

// The tiles of a group run side by side: none may read what the update of another one writes.
TEST(JoinUpdates, ProductsOfAGroupReadNoParamThatItWrites) {
  AICF_NEEDS_NVRTC();
  EXPECT_EQ(joined({.rows = 8192, .columns = 8192}), Sizes{2});
  EXPECT_EQ(joined({.rows = 8192, .columns = 8192, .extra = Extra::kCrossed}), Sizes{});
}

// Products whose updates cannot follow at once stay as they were, without a program that no call has.
TEST(JoinUpdates, UpdatesThatNeedOneAnotherLeaveAllAsItWas) {
  SelectedCalls s = select_calls(program_of({.extra = Extra::kInTurn}), "sm_90");
  run_rule("group_products", s);
  const auto kernels = [&] {
    std::vector<std::string> names;
    for (const KernelCall& call : s.calls.calls) names.push_back(named(call).kernel);
    return names;
  };
  const std::vector<std::string> before = kernels();
  EXPECT_EQ(std::count(before.begin(), before.end(), kProductGroup), 1);
  const size_t programs = s.calls.programs.size();
  run_rule("join_updates", s);
  EXPECT_EQ(kernels(), before);
  EXPECT_EQ(s.calls.programs.size(), programs);
}

TEST(JoinUpdates, TheOldParamIsReadBefore) {
  AICF_NEEDS_NVRTC();
  const Artifact artifact = compile(program_of({.extra = Extra::kOldParam}), options_of("sm_90", true));
  const std::vector<Step>& steps = artifact.variants[0].plan.entries[0].steps;
  const auto group =
      std::find_if(steps.begin(), steps.end(), [](const Step& step) { return step.kernel == kProductGroup; });
  const auto reader = std::find_if(steps.begin(), steps.end(), [](const Step& step) {
    return step.kernel.starts_with("matmul") && step.members.empty();
  });
  ASSERT_NE(group, steps.end());
  ASSERT_NE(reader, steps.end());
  EXPECT_LT(reader - steps.begin(), group - steps.begin());
  EXPECT_EQ(group->members[0].outputs.size(), 3U);
}

// Random numbers that repeat: those of large arrays are made in no time.
Array repeating(DType dtype, const std::vector<int64_t>& sizes, uint32_t seed, bool positive) {
  Array some = random_array(dtype, {4093}, seed), all(dtype, sizes);
  if (positive)
    for (int64_t i = 0; i < some.count(); ++i) some.set_f64(i, std::abs(some.get_f64(i)));
  for (int64_t at = 0; at < all.bytes(); at += some.bytes())
    std::memcpy(all.mutable_data_as<std::byte>() + at, some.data(),
                static_cast<size_t>(std::min(some.bytes(), all.bytes() - at)));
  return all;
}

// Every variable and result after three steps.
std::map<std::string, Array> trained(const Network& network, bool joins) {
  const TestDevice& where = TestDevice::get();
  const Program program = program_of(network);
  Artifact artifact = compile(program, options_of(where.target, joins));
  Executable exe(Model::load(std::move(artifact), open_device({"cuda"})));
  uint32_t seed = 0;
  for (const auto& [name, variable] : program.variables)
    if (name != "t")
      exe.set_state(name, repeating(network.dtype, {network.columns, network.width}, ++seed, name[0] == 'v'));
  std::map<std::string, Array> inputs;
  const Graph& graph = program.entries[0];
  for (const ValueId id : graph.inputs())
    inputs.emplace(graph.value(id).name,
                   repeating(graph.dtype(id), evaluate(graph.shape(id), {}), ++seed, false));
  std::map<std::string, Array> results;
  for (int run = 0; run < 3; ++run) results = exe.run("", inputs);
  for (const auto& [name, variable] : program.variables) results.emplace(name, exe.state(name));
  return results;
}

TEST(JoinUpdates, BitsAreThoseOfTheCallsApart) {
  const TestDevice& where = TestDevice::get();
  if (!where.cuda || !where.runs) GTEST_SKIP() << "needs a GPU (AICF_TEST_DEVICE=cuda)";
  for (const Network& network :
       {Network{.last_decay = 0.5}, Network{.extra = Extra::kOldParam}, Network{.dtype = DType::f16},
        Network{.count = 1, .columns = 3072, .width = 4096}, Network{.columns = 2056, .width = 3080}}) {
    const auto apart = trained(network, false), together = trained(network, true);
    for (const auto& [name, array] : apart)
      EXPECT_EQ(std::memcmp(array.data(), together.at(name).data(), static_cast<size_t>(array.bytes())), 0)
          << name;
  }
}

}  // namespace
}  // namespace aicf::testing::join_updates_test
