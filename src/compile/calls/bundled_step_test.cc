// Training steps whose launches cost as much as their work: they are one launch or a few, and have the bits
// of many.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "base/error.h"
#include "calls/call_code.h"
#include "codegen/testing/needs_nvrtc.h"
#include "compile/compile.h"
#include "compile/testing/compiled.h"
#include "compile/testing/test_device.h"
#include "plan/plan.h"
#include "runtime/executable.h"
#include "train/losses.h"
#include "train/schedules.h"
#include "train/train_step.h"

namespace aicf::bundled_step_test {
namespace {

using testing::TestDevice;

struct Network {
  int64_t batch;
  std::vector<int64_t> sizes;
  Precision precision = Precision::kF32;
};

const Network kSmall{64, {8, 16, 8}}, kLarger{128, {400, 512, 512, 10}},
    kLargerTf32{128, {400, 512, 512, 10}, Precision::kTf32};

// Linear layers with relu between them, the mean of squares, and Adam.
Program training(const Network& network) {
  Program program;
  Graph graph("loss");
  std::mt19937 engine(3);
  std::normal_distribution<double> normal(0, 0.3);
  const auto param = [&](const std::string& name, std::vector<int64_t> sizes) {
    Array data(DType::f32, sizes);
    for (int64_t i = 0; i < data.count(); ++i) data.set_f64(i, normal(engine));
    const TensorType type{DType::f32, Shape(sizes.begin(), sizes.end())};
    program.variables[name] = {name, Role::kParam, type, data};
    return graph.add_param(name, type);
  };
  const std::vector<int64_t>& sizes = network.sizes;
  ValueId x = graph.add_input("x", {DType::f32, {Dim(network.batch), Dim(sizes.front())}});
  const ValueId y = graph.add_input("y", {DType::f32, {Dim(network.batch), Dim(sizes.back())}});
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    if (i > 0) x = graph.add(Op::relu, {x});
    const std::string number = std::to_string(i);
    const ValueId product = graph.add(Op::matmul, {x, param("w" + number, {sizes[i], sizes[i + 1]})});
    x = graph.add(Op::add, {product, param("b" + number, {sizes[i + 1]})});
  }
  graph.add_output(add_loss(graph, LossKind::kMse, x, y), "loss");
  program.entries.push_back(std::move(graph));
  TrainOptions options;
  options.optimizer.kind = OptimizerKind::kAdam;
  options.schedule = constant_rate(1e-2);
  options.skip_bad_steps = false;
  options.precision = network.precision;
  return make_train_program(program, options);
}

Artifact compiled(const Network& network, const std::string& target, bool bundles) {
  CompileOptions options;
  options.target = target;
  if (!bundles) options.skip_passes.insert("bundle_calls");
  return compile(training(network), options);
}

size_t launches(const Artifact& artifact) {
  size_t count = 0;
  for (const Step& step : artifact.variants[0].plan.entry(kStepEntry)->steps) count += step.launches.size();
  return count;
}

TEST(BundledStep, IsOneOrAFewLaunchesOnEveryArchitecture) {
  AICF_NEEDS_NVRTC();
  EXPECT_EQ(launches(compiled(kSmall, "sm_90", true)), 1u);
  // One block in place of a cluster.
  for (const char* target : {"sm_80", "sm_86", "sm_89"})
    EXPECT_LE(launches(compiled(kSmall, target, true)), 6u) << target;
}

// Three products forward, two of gradients that others wait for; the others and all steps of Adam run side by
// side.
TEST(BundledStep, ProductsOfWeightsAndBiasesShareALaunch) {
  AICF_NEEDS_NVRTC();
  for (const Network& network : {kLarger, kLargerTf32})
    EXPECT_LE(launches(compiled(network, "sm_90", true)), 7u);
}

// Texts that differ in sizes alone: the code of one product serves two. The third's 10 columns end in a part
// of a group.
TEST(BundledStep, ProductsOfWeightsShareTheirCode) {
  for (const Network& network : {kLarger, kLargerTf32}) {
    CompileOptions options;
    options.target = "sm_90";
    const std::string text = testing::printed_stage(training(network), "build", options);
    const size_t last = text.rfind("#include \"bundle.cuh\"");
    ASSERT_NE(last, std::string::npos);
    const auto count = [&](const std::string& part) {
      size_t found = 0;
      for (size_t at = text.find(part, last); at != std::string::npos; at = text.find(part, at + 1)) ++found;
      return found;
    };
    EXPECT_EQ(count("aicf::SlicedMatmul<"), 2u);
    EXPECT_EQ(count("chosen = true;"), 2u);
  }
}

// Names of what the entry's step `at` reads before the launch before has ended.
std::set<std::string> early_names(const EntryPlan& entry, size_t at) {
  std::set<std::string> names;
  const Step& step = entry.steps[at];
  for (const CudaLaunch& launch : step.launches)
    for (const int32_t input : launch.early_inputs)
      names.insert(entry.buffers[static_cast<size_t>(step.inputs[static_cast<size_t>(input)].buffer)].name);
  return names;
}

// Weights, moments and activations are read before the launch before has ended, but nothing that it writes.
TEST(BundledStep, ProductsReadEarlyWhatIsReady) {
  AICF_NEEDS_NVRTC();
  Plan plan = compiled(kLarger, "sm_90", true).variants[0].plan;
  const auto step_entry = std::find_if(plan.entries.begin(), plan.entries.end(),
                                       [](const EntryPlan& entry) { return entry.name == kStepEntry; });
  ASSERT_NE(step_entry, plan.entries.end());
  const size_t count = step_entry->steps.size();
  EXPECT_EQ(early_names(*step_entry, 0), (std::set<std::string>{"b0", "w0", "x"}))
      << "the run before has ended";
  EXPECT_EQ(early_names(*step_entry, 1), (std::set<std::string>{"b1", "w1"}));
  const std::set<std::string> last_names = early_names(*step_entry, count - 1);
  for (const char* name : {"w0", "w1", "w2", "opt.m.w0", "opt.v.w1"})
    EXPECT_TRUE(last_names.contains(name)) << name;
  check_plan(plan);
  // The last launch reads what the one before it writes.
  Step& last = step_entry->steps.back();
  const int32_t fresh = step_entry->steps[count - 2].outputs[0].buffer;
  const auto reads_fresh = [&](const TensorRef& ref) { return ref.buffer == fresh; };
  const auto input = std::find_if(last.inputs.begin(), last.inputs.end(), reads_fresh);
  ASSERT_NE(input, last.inputs.end());
  const auto number = static_cast<int32_t>(input - last.inputs.begin());
  const std::vector<int32_t>& early = last.launches[0].early_inputs;
  EXPECT_EQ(std::count(early.begin(), early.end(), number), 0);
  last.launches[0].early_inputs = {number};
  EXPECT_THROW(check_plan(plan), UserError);
}

// Params, states and losses of some steps.
std::vector<Array> trained(const Network& network, bool bundles) {
  const auto device = open_device({"cuda"});
  Executable exe(Model::load(compiled(network, TestDevice::get().target, bundles), device));
  std::mt19937 engine(7);
  std::normal_distribution<double> normal;
  std::vector<Array> results;
  for (int step = 0; step < 20; ++step) {
    std::map<std::string, Array> inputs;
    for (const auto& [name, size] : {std::pair("x", network.sizes.front()), {"y", network.sizes.back()}}) {
      Array array(DType::f32, {network.batch, size});
      for (int64_t i = 0; i < array.count(); ++i) array.set_f64(i, normal(engine));
      inputs.emplace(name, std::move(array));
    }
    results.push_back(exe.run(kStepEntry, inputs).at("loss"));
  }
  for (const auto& [name, variable] : training(network).variables) results.push_back(exe.state(name));
  return results;
}

TEST(BundledStep, HasTheBitsOfSingleLaunches) {
  if (!TestDevice::get().cuda || !TestDevice::get().runs) GTEST_SKIP() << "bundles run on GPUs";
  for (const Network& network : {kSmall, kLarger, kLargerTf32})
    EXPECT_EQ(trained(network, true), trained(network, false)) << network.batch;
}

}  // namespace
}  // namespace aicf::bundled_step_test
