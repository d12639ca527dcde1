// Branches, loops and scans through the whole flow on the device of test_device.h: every optimisation level,
// on the CPU every thread count and exact size, against the reference; what a run may cost, and plans that do
// not fit together.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "base/error.h"
#include "compile/compile.h"
#include "compile/testing/random_graph.h"
#include "compile/testing/test_device.h"
#include "ir/reference/compare.h"
#include "ir/reference/evaluator.h"
#include "ir/text.h"
#include "kernels/common/kernel.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/executable.h"

namespace aicf::control_flow_test {
namespace {

using Arrays = std::map<std::string, Array>;

using testing::TestDevice;

CompileOptions for_device(int opt_level = 2) {
  CompileOptions options;
  options.opt_level = opt_level;
  options.target = TestDevice::get().target;
  return options;
}

std::shared_ptr<Device> device_for(const Artifact& artifact, int threads = 2) {
  return artifact.variants[0].target == "cpu" ? make_cpu_device({threads, detect_isa()})
                                              : open_device({"cuda"});
}

// Outputs, and the states afterwards.
Arrays run(const Artifact& artifact, int threads, const Arrays& inputs) {
  Executable exe(Model::load(artifact, device_for(artifact, threads)));
  const Arrays first = exe.run("", inputs);
  exe.reset();
  Arrays results = exe.run("", inputs);  // over memory that a run has used
  EXPECT_EQ(first, results);
  for (const std::string& name : exe.state_names()) results.emplace(name, exe.state(name));
  return results;
}

Program filled(Program program) {
  for (auto& [name, variable] : program.variables) {
    variable.data = Array(variable.type.dtype, evaluate(variable.type.shape, {}));
    for (int64_t i = 0; i < variable.data.count(); ++i)
      variable.data.set_f64(i, 0.25 * static_cast<double>(i % 7 - 3));
  }
  return program;
}

// A program over the size "batch", at several of its values.
void check(const std::string& text, const std::function<Arrays(int64_t batch)>& inputs_of,
           const std::vector<int64_t>& batches = {0, 1, 3}) {
  const Program program = filled(parse(text));
  for (int64_t batch : batches) {
    const Arrays inputs = inputs_of(batch);
    const EvalResult expected = evaluate(program, program.entries[0], {inputs, {}});
    std::vector<Arrays> all;
    for (int level = 0; level <= 2; ++level) {
      const Artifact artifact = compile(program, for_device(level));
      if (!TestDevice::get().runs) continue;
      all.push_back(run(artifact, 2, inputs));
      for (const auto* list : {&expected.outputs, &expected.updated})
        for (const auto& [name, want] : *list) {
          const CompareReport report = compare(all.back().at(name), want, 1e-5, 1e-6);
          EXPECT_TRUE(report.ok()) << name << ", level " << level << ", batch " << batch << ": "
                                   << to_string(report);
        }
    }
    if (TestDevice::get().cuda) continue;
    EXPECT_EQ(all[2], run(compile(program), 1, inputs)) << "one thread, batch " << batch;
    const Artifact exact = compile(testing::with_batch(program, batch));
    EXPECT_EQ(all[2], run(exact, 2, inputs)) << "compiled for batch " << batch << " alone";
  }
}

Array floats(std::vector<int64_t> sizes, double first) {
  Array array(DType::f32, std::move(sizes));
  for (int64_t i = 0; i < array.count(); ++i)
    array.set_f64(i, first + 0.5 * static_cast<double>(i % 5) - 0.1 * static_cast<double>(i % 3));
  return array;
}

// Doubles x and mixes it with weights until its sum passes the limit; the weights are handed on unchanged.
constexpr const char* kLoop = R"(program {
  size batch in 0..5
  param "w" : f32[4, 4]
  entry main(%x: f32[batch, 4], %limit: f32[]) {
    %w = param "w" : f32[4, 4]
    %zero = constant i64[] = [0]
    %n, %last, %l, %v = while_loop(%zero, %x, %limit, %w)
      body(%i: i64[] as "i", %a: f32[batch, 4] as "a", %b: f32[] as "b", %c: f32[4, 4] as "c") {
        %s = reduce_sum(%a) {axes = [0, 1]} : f32[]
        %small = lt(%s, %b) : bool[]
        %ten = constant i64[] = [10]
        %early = lt(%i, %ten) : bool[]
        %go = bit_and(%small, %early) : bool[]
        return %go
      }
      body(%i: i64[] as "i", %a: f32[batch, 4] as "a", %b: f32[] as "b", %c: f32[4, 4] as "c") {
        %one = constant i64[] = [1]
        %next = add(%i, %one) : i64[]
        %m = matmul(%a, %c) : f32[batch, 4]
        %twice = add(%a, %a) : f32[batch, 4]
        %k = constant f32[4, 4] = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
        %same = matmul(%twice, %k) : f32[batch, 4]
        %small = tanh(%m) : f32[batch, 4]
        %y = add(%same, %small) : f32[batch, 4]
        return %next, %y, %b, %c
      } : i64[], f32[batch, 4], f32[], f32[4, 4]
    %z = neg(%last) : f32[batch, 4]
    return "n" = %n, "last" = %last, "z" = %z, "w" = %v
  }
})";

TEST(ControlFlow, ALoopRunsUntilItsDataSaysSo) {
  for (double limit : {-100.0, 3.0, 40.0, 1e9})
    check(kLoop, [&](int64_t batch) {
      return Arrays{{"x", floats({batch, 4}, 0.25)}, {"limit", Array::scalar_f64(DType::f32, limit)}};
    });
}

constexpr const char* kScan = R"(program {
  size batch in 0..5
  state "s" : f32[3]
  entry main(%x: f32[3, batch], %i: i64[batch]) {
    %s = state "s" : f32[3]
    %t = transpose(%x) {perm = [1, 0]} : f32[batch, 3]
    %end, %sums, %picked = scan(%s, %t, %i) {carried = 1, reverse = REVERSE}
      body(%c: f32[3] as "c", %row: f32[3] as "row", %at: i64[] as "at") {
        %sum = add(%c, %row) : f32[3]
        %one = gather(%sum, %at) {axis = 0} : f32[]
        return %sum, %sum, %one
      } : f32[3], f32[batch, 3], f32[batch]
    %first = slice(%sums) {limits = [batch, 1], starts = [0, 0], steps = [1, 1]} : f32[batch, 1]
    update "s" = %end
    return "sums" = %sums, "picked" = %picked, "first" = %first
  }
})";

std::string scan_text(const std::string& reverse) {
  std::string text = kScan;
  return text.replace(text.find("REVERSE"), 7, reverse);
}

Arrays scan_inputs(int64_t batch, int64_t index) {
  Array i(DType::i64, {batch});
  for (int64_t k = 0; k < batch; ++k) i.set_i64(k, k % 2 == 0 ? index : -1);
  return {{"x", floats({3, batch}, -0.5)}, {"i", i}};
}

TEST(ControlFlow, AScanWalksRowsAndStacksResults) {
  for (const char* reverse : {"false", "true"})
    check(scan_text(reverse), [](int64_t batch) { return scan_inputs(batch, 2); }, {0, 1, 5});
}

TEST(ControlFlow, AnIndexOutOfRangeInsideABodyIsReported) {
  const Artifact artifact = compile(filled(parse(scan_text("false"))), for_device());
  if (!TestDevice::get().runs) return;
  try {
    run(artifact, 1, scan_inputs(3, 7));
    FAIL() << "an index of 7 in an axis of 3";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code, ErrorCode::kU_index_out_of_range);
    EXPECT_NE(error.op.find("gather"), std::string::npos) << error.op;
  }
}

// A branch with an index in data stays a branch; the other would fail with the same index.
constexpr const char* kNested = R"(program {
  size batch in 0..5
  entry main(%x: f32[batch, 3], %c: bool[], %at: i64[]) {
    %y, %again = if_else(%c, %x, %at)
      body(%a: f32[batch, 3] as "a", %i: i64[] as "i") {
        %column = gather(%a, %i) {axis = 1} : f32[batch]
        %zero = constant f32[] = [0]
        %total, %all = scan(%zero, %column) {carried = 1, reverse = false}
          body(%s: f32[] as "s", %e: f32[] as "e") {
            %sum = add(%s, %e) : f32[]
            return %sum, %sum
          } : f32[], f32[batch]
        return %all, %a
      }
      body(%a: f32[batch, 3] as "a", %i: i64[] as "i") {
        %column = reduce_max(%a) {axes = [1]} : f32[batch]
        %twice = add(%a, %a) : f32[batch, 3]
        return %column, %twice
      } : f32[batch], f32[batch, 3]
    return "y" = %y, "again" = %again
  }
})";

TEST(ControlFlow, BranchesNestAndOnlyTheTakenOneRuns) {
  for (int64_t condition : {0, 1})
    check(kNested, [&](int64_t batch) {
      return Arrays{{"x", floats({batch, 3}, 1)},
                    {"c", Array::scalar_i64(DType::boolean, condition)},
                    {"at", Array::scalar_i64(DType::i64, condition != 0 ? 2 : 77)}};
    });
}

TEST(ControlFlow, ALoopWithoutEndIsStopped) {
  const Artifact artifact = compile(parse(R"(program {
    entry main(%x: f32[2], %c: bool[]) {
      %y, %d = while_loop(%x, %c)
        body(%a: f32[2] as "a", %go: bool[] as "go") {
          return %go
        }
        body(%a: f32[2] as "a", %go: bool[] as "go") {
          %b = neg(%a) : f32[2]
          return %b, %go
        } : f32[2], bool[]
      return "y" = %y
    }
  })"),
                                    for_device());
  if (!TestDevice::get().runs) return;
  const Arrays inputs{{"x", floats({2}, 1)}, {"c", Array::scalar_i64(DType::boolean, 1)}};
  setenv("AICF_MAX_SECONDS", "0.02", 1);
  ErrorCode code = ErrorCode::kI_check_failed;
  try {
    run(artifact, 1, inputs);
  } catch (const UserError& error) {
    code = error.code;
  }
  unsetenv("AICF_MAX_SECONDS");
  EXPECT_EQ(code, ErrorCode::kU_over_limit);
}

// The graph holds the addresses of the last run.
TEST(ControlFlow, OtherMemoryIsBoundBetweenRuns) {
  const Artifact artifact = compile(filled(parse(kLoop)), for_device());
  if (!TestDevice::get().runs) return;
  const auto inputs_of = [](double first) {
    return Arrays{{"x", floats({3, 4}, first)}, {"limit", Array::scalar_f64(DType::f32, 40)}};
  };
  Executable exe(Model::load(artifact, device_for(artifact)));
  const Arrays one = exe.run("", inputs_of(0.25)), other = exe.run("", inputs_of(2));
  EXPECT_NE(one, other);
  EXPECT_EQ(other, run(artifact, 2, inputs_of(2)));
  EXPECT_EQ(one, exe.run("", inputs_of(0.25)));
}

TEST(ControlFlow, AGpuRunsBodiesInsideItsGraph) {
  CompileOptions options;
  options.target = "sm_90";
  for (const std::string& text : {std::string(kLoop), scan_text("true"), std::string(kNested)}) {
    const Artifact artifact = compile(filled(parse(text)), options);
    const Plan& plan = artifact.variants[0].plan;
    EXPECT_FALSE(plan.bodies.empty());
    for (const EntryPlan& body : plan.bodies)
      for (const Step& step : body.steps) EXPECT_FALSE(step.launches.empty()) << step.kernel;
  }
}

TEST(ControlFlow, PlansWhoseBodiesDoNotFitAreRefused) {
  const Artifact whole = compile(filled(parse(kNested)));
  const Arrays inputs{{"x", floats({3, 3}, 1)},
                      {"c", Array::scalar_i64(DType::boolean, 1)},
                      {"at", Array::scalar_i64(DType::i64, 1)}};
  EXPECT_EQ(whole.variants[0].plan.bodies.size(), 3u);
  const auto step_of = [](Plan& plan) -> Step& {
    for (Step& step : plan.entries[0].steps)
      if (!step.bodies.empty()) return step;
    throw std::logic_error("no control flow");
  };
  const std::vector<std::pair<const char*, std::function<void(Plan&)>>> changes = {
      {"twice", [&](Plan& plan) { step_of(plan).bodies[1] = step_of(plan).bodies[0]; }},
      {"no such body", [&](Plan& plan) { step_of(plan).bodies[0] = 9; }},
      {"runs itself", [&](Plan& plan) { plan.bodies[0].steps[0].bodies = {0}; }},
      {"one body too few", [&](Plan& plan) { step_of(plan).bodies.pop_back(); }},
      {"other kind", [&](Plan& plan) { step_of(plan).kernel = "while_loop"; }},
      {"unknown kind", [&](Plan& plan) { step_of(plan).kernel = "repeat"; }},
      {"capture dropped", [&](Plan& plan) { step_of(plan).inputs.pop_back(); }},
      {"workspace dropped", [&](Plan& plan) { step_of(plan).outputs.pop_back(); }},
      {"result dropped", [&](Plan& plan) { step_of(plan).outputs.erase(step_of(plan).outputs.begin()); }},
      {"larger arena", [&](Plan& plan) { plan.bodies[1].arena_bytes += 1 << 20; }},
      {"strided", [&](Plan& plan) { step_of(plan).inputs[1].strides[0] = Dim(0); }},
  };
  for (const auto& [name, change] : changes) {
    Artifact broken = whole;
    change(broken.variants[0].plan);
    ErrorCode code = ErrorCode::kI_check_failed;
    try {
      const std::string path = ::testing::TempDir() + "/broken.aicf";
      write_artifact(path, broken);
      run(read_artifact(path), 1, inputs);
    } catch (const UserError& error) {
      code = error.code;
    }
    EXPECT_EQ(code, ErrorCode::kU_bad_artifact) << name;
  }
}

}  // namespace
}  // namespace aicf::control_flow_test
