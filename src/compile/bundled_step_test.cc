// A training step that launches cost more than its work: it is one launch, and has the bits of many.
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "build/bundle_calls.h"
#include "build/nvrtc.h"
#include "compile/compile.h"
#include "compile/testing/test_device.h"
#include "runtime/executable.h"
#include "train/losses.h"
#include "train/schedules.h"
#include "train/train_step.h"

namespace aicf {
namespace {

using testing::TestDevice;

// linear, relu, linear and the mean of squares, 8 to 16 to 8.
Program small_network() {
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
  const TensorType rows{DType::f32, {Dim(64), Dim(8)}};
  const ValueId x = graph.add_input("x", rows), y = graph.add_input("y", rows);
  const ValueId wide =
      graph.add(Op::add, {graph.add(Op::matmul, {x, param("w0", {8, 16})}), param("b0", {16})});
  const ValueId last = graph.add(
      Op::add,
      {graph.add(Op::matmul, {graph.add(Op::relu, {wide}), param("w1", {16, 8})}), param("b1", {8})});
  graph.add_output(add_loss(graph, LossKind::kMse, last, y), "loss");
  program.entries.push_back(std::move(graph));
  TrainOptions options;
  options.optimizer.kind = OptimizerKind::kAdam;
  options.schedule = constant_rate(1e-2);
  options.skip_bad_steps = false;
  return make_train_program(program, options);
}

Artifact compiled(const std::string& target, bool bundles) {
  CompileOptions options;
  options.target = target;
  if (!bundles) options.skip_passes.insert(kBundleCalls);
  return compile(small_network(), options);
}

size_t launches(const Artifact& artifact) {
  size_t count = 0;
  for (const Step& step : artifact.variants[0].plan.entry(kStepEntry)->steps) count += step.launches.size();
  return count;
}

TEST(BundledStep, IsOneOrAFewLaunchesOnEveryArchitecture) {
  try {
    nvrtc_version();
  } catch (const EnvironmentError&) {
    GTEST_SKIP() << "NVRTC is not installed";
  }
  EXPECT_EQ(launches(compiled("sm_90", true)), 1u);
  // One block in place of a cluster.
  for (const char* target : {"sm_80", "sm_86", "sm_89"})
    EXPECT_LE(launches(compiled(target, true)), 6u) << target;
}

// Params, states and losses of some steps.
std::vector<Array> trained(bool bundles) {
  const auto device = open_device({"cuda", 1, ""});
  Executable exe(Model::load(compiled(TestDevice::get().target, bundles), device));
  std::mt19937 engine(7);
  std::normal_distribution<double> normal;
  std::vector<Array> results;
  for (int step = 0; step < 20; ++step) {
    std::map<std::string, Array> inputs;
    for (const char* name : {"x", "y"}) {
      Array array(DType::f32, {64, 8});
      for (int64_t i = 0; i < array.count(); ++i) array.set_f64(i, normal(engine));
      inputs.emplace(name, std::move(array));
    }
    results.push_back(exe.run(kStepEntry, inputs).at("loss"));
  }
  for (const auto& [name, variable] : small_network().variables) results.push_back(exe.state(name));
  return results;
}

TEST(BundledStep, HasTheBitsOfSingleLaunches) {
  if (!TestDevice::get().cuda || !TestDevice::get().runs) GTEST_SKIP() << "bundles run on GPUs";
  EXPECT_EQ(trained(true), trained(false));
}

}  // namespace
}  // namespace aicf
