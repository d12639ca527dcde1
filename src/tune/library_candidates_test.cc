// Calls of vendor libraries on a GPU: every one that a library advises for these steps is right and repeats
// its bits, within a captured graph. Without a GPU, that the steps are ones that a library can take.
#include "tune/library_candidates.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "compile/testing/test_device.h"
#include "passes/pass.h"
#include "select/library_call.h"
#include "tune/bench_device.h"
#include "tune/tuner.h"

namespace aicf {
namespace {

using testing::TestDevice;

// Convolutions one after the other, channels innermost between them: with a bias and ReLU, with what the
// block began with added to that (of halves after they are rounded, so not by a library), with steps of two,
// in groups.
Program convolutions(DType dtype) {
  Program program;
  Graph graph("main");
  const auto weight = [&](const std::string& name, const Ints& sizes) {
    Array values(dtype, sizes);
    for (int64_t i = 0; i < values.count(); ++i) values.set_f64(i, 0.01 * static_cast<double>(i % 17 - 8));
    const TensorType type{dtype, to_shape(sizes)};
    program.variables[name] = {name, Role::kParam, type, values};
    return graph.add_param(name, type);
  };
  const auto conv = [&](ValueId x, const std::string& name, const Ints& w, int64_t stride,
                        int64_t groups = 1) {
    const Attrs attrs = {{"strides", Ints{stride, stride}},
                         {"pads", Ints(4, w[2] / 2)},
                         {"dilations", Ints{1, 1}},
                         {"groups", groups}};
    return graph.add(Op::conv, {x, weight(name, w), weight(name + ".bias", {w[0]})}, attrs);
  };
  const ValueId x = graph.add_input("x", {dtype, to_shape(Ints{2, 8, 20, 20})});
  const ValueId first = graph.add(Op::relu, {conv(x, "first", {64, 8, 1, 1}, 1)});
  ValueId y = graph.add(Op::relu, {conv(first, "middle", {64, 64, 3, 3}, 1)});
  y = graph.add(Op::relu, {graph.add(Op::add, {conv(y, "expand", {64, 64, 1, 1}, 1), first})});
  y = graph.add(Op::relu, {conv(y, "step", {128, 64, 3, 3}, 2)});
  y = conv(y, "groups", {128, 32, 3, 3}, 1, 4);
  graph.add_output(graph.add(Op::relu, {conv(y, "last", {16, 128, 1, 1}, 1)}), "y");
  program.entries.push_back(std::move(graph));
  return program;
}

Program attention(DType dtype, int64_t queries, int64_t keys, int64_t depth, bool causal) {
  Graph graph("main");
  const auto operand = [&](const char* name, const Ints& sizes) {
    return graph.add_input(name, {dtype, to_shape(sizes)});
  };
  const ValueId q = operand("q", {2, 4, queries, depth}), k = operand("k", {2, 2, keys, depth}),
                v = operand("v", {2, 2, keys, depth});
  graph.add_output(graph.add(Op::attention, {q, k, v}, {{"scale", 0.1}, {"causal", causal}}), "y");
  Program program;
  program.entries.push_back(std::move(graph));
  return program;
}

struct Case {
  const char* name;
  Program program;
  int problems;  // that a library can take; on a GPU it has calls for each
};

std::vector<Case> cases() {
  return {{"conv_f16", convolutions(DType::f16), 4},
          {"conv_bf16", convolutions(DType::bf16), 4},
          {"attention", attention(DType::f16, 128, 320, 64, false), 1},
          {"deep", attention(DType::bf16, 300, 300, 128, false), 1},
          {"causal", attention(DType::bf16, 256, 256, 64, true), 0}};
}

TEST(LibraryCalls, ThatAreAdvisedAreRightAndRepeat) {
  const TestDevice& device = TestDevice::get();
  const Target target = Target::from_name(device.cuda ? device.target : "sm_90");
  for (const Case& c : cases()) {
    const Program program = run_pipeline(c.program, target, {}, nullptr);
    std::vector<TuneProblem> problems = list_problems(program, target);
    int taken = 0;
    for (const TuneProblem& p : problems)
      taken += library_form(p.call, p.key.op, p.region ? &*p.region : nullptr).has_value();
    EXPECT_EQ(taken, c.problems) << c.name;
    if (!device.cuda || !device.runs || c.problems == 0) continue;

    const std::shared_ptr<Device> gpu = open_device({"cuda"});
    gpu->wait({});  // its context is current from here on
    add_library_candidates(problems, 4);
    std::vector<TuneTask> tasks;
    for (const TuneProblem& p : problems) {
      TuneTask task{&p, {}};
      for (size_t i = 0; i < p.candidates.size(); ++i)
        if (parse_library_candidate(to_string(p.candidates[i]))) task.candidates.push_back(i);
      if (!task.candidates.empty()) tasks.push_back(std::move(task));
    }
    EXPECT_EQ(static_cast<int>(tasks.size()), c.problems) << c.name;
    const auto bench = make_device_bench(gpu, program, target, {1 << 20, 1e-4});
    bench->build(tasks);
    for (const TuneTask& task : tasks) {
      bench->open(task);
      for (const size_t i : task.candidates) {
        const CheckResult result = bench->check(i);
        EXPECT_TRUE(result.ok) << c.name << " " << task.problem->origin << " "
                               << to_string(task.problem->candidates[i]) << ": " << result.why;
        EXPECT_GT(result.error, 0);  // the reference is in f32
      }
    }
  }
}

TEST(LibraryCalls, AreNotAskedForWhereTheyAreForbidden) {
  setenv("AICF_VENDOR_LIBRARIES", "0", 1);
  const Target target = Target::from_name("sm_90");
  const Program program = run_pipeline(convolutions(DType::f16), target, {}, nullptr);
  std::vector<TuneProblem> problems = list_problems(program, target);
  const size_t before = problems.at(0).candidates.size();
  add_library_candidates(problems, 4);
  EXPECT_EQ(problems[0].candidates.size(), before);
  unsetenv("AICF_VENDOR_LIBRARIES");
}

}  // namespace
}  // namespace aicf
