// Measuring on the CPU: what is listed, packed, checked and timed.
#include "tune/bench_device.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "codegen/testing/needs_nvrtc.h"
#include "ir/graph.h"
#include "passes/pass.h"
#include "runtime/cpu/cpu_device.h"
#include "tune/operand_values.h"
#include "tune/tuner.h"

namespace aicf {
namespace {

// A linear layer with a GELU, twice, over one batch size; the second one gives so many columns.
Program two_layers(int64_t columns = 48) {
  Program program;
  program.sizes["batch"] = {1, 24};
  Graph graph("main");
  ValueId x = graph.add_input("x", {DType::f32, {Dim::symbol("batch"), Dim(48)}});
  for (const auto& [name, rows] : {std::pair("a", int64_t{48}), std::pair("b", columns)}) {
    Array data(DType::f32, {rows, 48});
    program.variables[name] = {name, Role::kParam, {DType::f32, {Dim(rows), Dim(48)}}, data};
    const ValueId w = graph.add_param(name, program.variables.at(name).type);
    x = graph.add(Op::gelu, {graph.add(Op::matmul, {x, w}, {{"transpose_y", true}})});
  }
  graph.add_output(x, "y");
  program.entries.push_back(std::move(graph));
  return program;
}

TEST(DeviceBench, equal_steps_are_one_problem_with_packed_and_plain_candidates) {
  const Target target = Target::from_name("cpu");
  const Program program = run_pipeline(two_layers(), target, {}, nullptr);
  const std::vector<TuneProblem> problems = list_problems(program, target);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].uses, 2);
  ASSERT_EQ(problems[0].candidates.size(), 2u);
  EXPECT_EQ(to_string(problems[0].candidates[0]), "matmul_f32_packed");
  EXPECT_EQ(to_string(problems[0].candidates[1]), "matmul_f32");
}

TEST(DeviceBench, cpu_candidates_are_right_and_timed) {
  const Target target = Target::from_name("cpu");
  const Program program = run_pipeline(two_layers(), target, {}, nullptr);
  const std::vector<TuneProblem> problems = list_problems(program, target);
  const auto bench = make_device_bench(make_cpu_device({1, detect_isa()}), program, target, {1 << 20, 1e-4});
  TuneOptions options;
  options.samples = 3;
  std::vector<TuneResult> results;
  tune(problems, {}, *bench, options, [&](const TuneResult& result) { results.push_back(result); });
  ASSERT_EQ(results.size(), 1u);
  ASSERT_EQ(results[0].measured.size(), 2u);
  for (const Measured& m : results[0].measured) {
    EXPECT_TRUE(m.check.ok) << to_string(m.candidate) << ": " << m.check.why;
    EXPECT_GT(m.check.error, 0) << "compared with itself";  // the reference is f64
    EXPECT_LT(m.check.error, 1e-6) << to_string(m.candidate);
    EXPECT_GT(m.microseconds, 0) << to_string(m.candidate);
  }
}

class Nothing final : public Sequence {
 public:
  void set_address(int32_t, std::byte*) override {}
  void run(Stream) override {}
  void finish(Stream) override {}
};

// A GPU without kernels, for which a library refuses what it advised itself.
class RefusingDevice final : public HostDevice {
 public:
  std::string_view name() const override { return "refusing"; }
  int fitness(std::string_view) const override { return 1; }
  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override {
    return make_cpu_device({1, detect_isa()})->allocate(bytes);
  }
  std::unique_ptr<Sequence> bind(const Plan&, const EntryPlan& entry, const Code*, const SymbolValues&,
                                 const BufferAddresses&) override {
    for (const Step& step : entry.steps)
      if (!step.library.call.empty())
        throw UserError(ErrorCode::kU_bad_artifact, "refused").with_actual("other windows");
    return std::make_unique<Nothing>();
  }
};

TEST(DeviceBench, what_a_library_refuses_is_left_out) {
  AICF_NEEDS_NVRTC();
  const Target target = Target::from_name("sm_90");
  const Program program = run_pipeline(two_layers(), target, {}, nullptr);
  std::vector<TuneProblem> problems = list_problems(program, target);
  Candidate library = problems[0].candidates[0];
  library.library = CublasLtCall{};
  const size_t index = problems[0].candidates.size();
  problems[0].candidates.push_back(library);
  const auto bench = make_device_bench(std::make_shared<RefusingDevice>(), program, target, {1 << 20, 1e-4});
  const TuneTask task{problems.data(), {index}};
  bench->build({task});
  bench->open(task);
  const CheckResult result = bench->check(index);
  EXPECT_FALSE(result.ok);
  EXPECT_EQ(result.why, "refused: other windows");
}

// So what --build-only compiles serves calls that a limit of time or records leave other problems.
TEST(DeviceBench, code_of_a_problem_does_not_depend_on_the_others) {
  AICF_NEEDS_NVRTC();
  const Target target = Target::from_name("sm_90");
  const Program program = run_pipeline(two_layers(32), target, {}, nullptr);
  const std::vector<TuneProblem> problems = list_problems(program, target);
  ASSERT_EQ(problems.size(), 2u);
  const std::vector<TuneTask> tasks = {{&problems[0], {0, 1}}, {&problems[1], {0, 2}}};
  const auto folder = std::filesystem::temp_directory_path() / ("aicf_tune_test_" + std::to_string(getpid()));
  setenv("AICF_CACHE_DIR", folder.c_str(), 1);
  prebuild(program, target, tasks);
  setenv("AICF_JIT", "0", 1);
  EXPECT_NO_THROW(prebuild(program, target, {tasks[1]}));
  EXPECT_NO_THROW(prebuild(program, target, {tasks[1], tasks[0]}));
  EXPECT_THROW(prebuild(program, target, {{&problems[0], {2}}}), Error) << "was never compiled";
  unsetenv("AICF_JIT");
  unsetenv("AICF_CACHE_DIR");
  std::filesystem::remove_all(folder);
}

TEST(OperandValues, do_not_depend_on_the_layout) {
  const PlainWindow rows{DType::f32, 0, {3, 5}, {5, 1}}, columns{DType::f64, 7, {3, 5}, {1, 3}};
  std::vector<float> a(15);
  std::vector<double> b(22);
  ASSERT_EQ(reach_bytes(rows), 60);
  ASSERT_EQ(reach_bytes(columns), 176);
  fill_values(rows, DType::f16, 3, reinterpret_cast<std::byte*>(a.data()));
  fill_values(columns, DType::f16, 3, reinterpret_cast<std::byte*>(b.data()));
  double sum = 0;
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 5; ++j) {
      EXPECT_EQ(a[i * 5 + j], b[7 + i + 3 * j]) << i << " " << j;
      EXPECT_EQ(f16_to_f32(f32_to_f16(a[i * 5 + j])), a[i * 5 + j]);
      sum += std::abs(a[i * 5 + j]);
    }
  EXPECT_GT(sum, 1);
}

TEST(OperandValues, sampled_rows_end_with_the_last) {
  const PlainWindow w{DType::f32, 2, {10, 4, 3}, {12, 3, 1}};
  const auto rows = spaced_rows(w, 7);
  ASSERT_GE(rows.size(), 7u);
  EXPECT_EQ(rows.front().first, 2);
  EXPECT_EQ(rows.back().first, 2 + 9 * 12 + 3 * 3);
  EXPECT_EQ(spaced_rows(w, 1000).size(), 40u);
  const PlainWindow repeated{DType::f32, 0, {10, 4}, {0, 1}};
  EXPECT_EQ(spaced_rows(repeated, 100).size(), 1u);
}

}  // namespace
}  // namespace aicf
