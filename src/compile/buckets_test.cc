// Buckets: a list of sizes gives plans for parts of a range that share weights, states and arena, and the
// same results as the plan for the whole range.
#include "compile/buckets.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "codegen/testing/needs_nvrtc.h"
#include "compile/compile.h"
#include "compile/testing/compiled.h"
#include "compile/testing/random_arrays.h"
#include "compile/testing/random_graph.h"
#include "ir/text.h"
#include "plan/plan_json.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/executable.h"
#include "runtime/null/null_device.h"
#include "train/losses.h"
#include "train/schedules.h"
#include "train/train_step.h"

namespace aicf {
namespace {

using testing::loaded_on_cpu;

// A product with packed weights, and a sum over rows carried as state.
Program program_with(const std::string& sizes) {
  Program program = parse("program {" + sizes + R"(
    param "w" : f32[6, 8]
    state "sum" : f32[8]
    entry main(%x: f32[batch, seq, 6]) {
      %w = param "w" : f32[6, 8]
      %y = matmul(%x, %w) : f32[batch, seq, 8]
      %t = tanh(%y) : f32[batch, seq, 8]
      %old = state "sum" : f32[8]
      %rows = reduce_sum(%t) {axes = [0, 1]} : f32[8]
      %new = add(%old, %rows) : f32[8]
      %z = add(%t, %new) : f32[batch, seq, 8]
      update "sum" = %new
      return "z" = %z
    }
  })");
  Array w(DType::f32, {6, 8});
  for (int64_t i = 0; i < w.count(); ++i) w.set_f64(i, 0.1 * static_cast<double>(i % 7) - 0.3);
  program.variables.at("w").data = w;
  return program;
}

constexpr char kRange[] = "size batch in 1..8 size seq in 2..16";
constexpr char kBuckets[] = "size batch in 1..8 buckets [1, 4, 8] size seq in 2..16 buckets [2, 16]";

Array input(int64_t batch, int64_t seq) {
  Array x(DType::f32, {batch, seq, 6});
  for (int64_t i = 0; i < x.count(); ++i) x.set_f64(i, 0.05 * static_cast<double>(i % 41) - 1);
  return x;
}

TEST(Buckets, EverySizeGivesTheBitsOfTheWholeRange) {
  const Artifact whole = compile(program_with(kRange)), parts = compile(program_with(kBuckets));
  Executable a = loaded_on_cpu(whole), b = loaded_on_cpu(parts);
  for (int64_t batch = 1; batch <= 8; ++batch)
    for (int64_t seq : {2, 3, 16}) {
      const std::map<std::string, Array> x = {{"x", input(batch, seq)}};
      EXPECT_EQ(a.run("", x), b.run("", x)) << batch << " × " << seq;
      EXPECT_EQ(a.state("sum"), b.state("sum")) << batch << " × " << seq;  // carried from bucket to bucket
    }
}

TEST(Buckets, EachHasItsOwnPlanOverTheSameWeights) {
  const Plan whole = compile(program_with(kRange)).variants[0].plan;
  const Plan plan = compile(program_with(kBuckets)).variants[0].plan;
  EXPECT_EQ(plan.entries, whole.entries);  // the entry serves the largest sizes, and any without a bucket
  EXPECT_EQ(plan.packed_bytes, whole.packed_bytes);
  ASSERT_EQ(plan.buckets.size(), 5u);
  const EntryPlan& entry = plan.entries[0];
  EXPECT_EQ(&plan.at_sizes(entry, {{"batch", 5}, {"seq", 3}}), &entry);
  const EntryPlan& least = plan.at_sizes(entry, {{"batch", 1}, {"seq", 2}});
  EXPECT_EQ(least.bucket, (SymbolRanges{{"batch", {1, 1}}, {"seq", {2, 2}}}));
  EXPECT_EQ(to_string(least.inputs[0].sizes), "[1, 2, 6]");
  EXPECT_LT(least.arena_bytes, entry.arena_bytes);
  EXPECT_EQ(to_string(plan.at_sizes(entry, {{"batch", 2}, {"seq", 9}}).bucket),
            "batch in 2..4, seq in 3..16");
  EXPECT_EQ(plan_from_json(plan_to_json(plan)), plan);
}

// A weight that another entry writes is neither packed nor merged with others at load.
TEST(Buckets, ReadWhatOtherEntriesWrote) {
  Program program = parse(R"(program {
    size rows in 1..8 buckets [1, 8]
    param "w" : f32[48, 96]
    param "v" : f32[48, 96]
    entry step(%s: f32[]) {
      %0 = param "w" : f32[48, 96]
      %1 = add(%0, %s) : f32[48, 96]
      update "w" = %1
      return "s" = %s
    }
    entry eval(%x: f32[rows, 48]) {
      %0 = param "w" : f32[48, 96]
      %1 = param "v" : f32[48, 96]
      %2 = matmul(%x, %0) : f32[rows, 96]
      %3 = matmul(%x, %1) : f32[rows, 96]
      return "y" = %2, "z" = %3
    }
  })");
  for (auto& [name, variable] : program.variables) variable.data = testing::random_array({48, 96}, name[0]);
  Executable exe = loaded_on_cpu(compile(program));
  const auto eval = [&](int64_t rows) {
    Array x(DType::f32, {rows, 48});
    for (int64_t i = 0; i < x.count(); ++i) x.set_f64(i, 1);
    return exe.run("eval", {{"x", x}}).at("y").get_f64(0);
  };
  const double before = eval(1);
  Array one(DType::f32, {});
  one.set_f64(0, 1);
  exe.run("step", {{"s", one}});
  EXPECT_NEAR(eval(1), before + 48, 1e-3);
  EXPECT_EQ(eval(1), eval(8));
}

TEST(Buckets, ACallTakesThePlanThatHoldsItsSizes) {
  Executable exe(Model::load(compile(program_with(kBuckets)), make_null_device()));
  const EntryPlan& entry = exe.entry("");
  const auto bucket_of = [&](int64_t batch, int64_t seq) {
    exe.run("", {{"x", input(batch, seq)}});
    return to_string(exe.bound_plan(entry).bucket);
  };
  EXPECT_EQ(bucket_of(1, 2), "batch in 1..1, seq in 2..2");
  EXPECT_EQ(bucket_of(4, 3), "batch in 2..4, seq in 3..16");
  EXPECT_EQ(bucket_of(5, 2), "batch in 5..8, seq in 2..2");
  EXPECT_EQ(bucket_of(5, 3), "");
  EXPECT_EQ(bucket_of(1, 2), "batch in 1..1, seq in 2..2");  // bound before
}

TEST(Buckets, SizesOutsideAllAreRefused) {
  Executable exe = loaded_on_cpu(compile(program_with(kBuckets)));
  for (int64_t batch : {0, 9}) try {
      exe.run("", {{"x", input(batch, 2)}});
      ADD_FAILURE() << batch;
    } catch (const UserError& error) {
      EXPECT_EQ(error.code, ErrorCode::kU_size_out_of_range);
    }
}

TEST(Buckets, TooManyAreRefused) {
  std::string ends = "2";
  for (int i = 3; i <= 70; ++i) ends += ", " + std::to_string(i);
  try {
    compile(program_with("size batch in 1..8 size seq in 2..70 buckets [" + ends + "]"));
    ADD_FAILURE() << "69 buckets";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code, ErrorCode::kU_bad_option);
  }
}

TEST(Buckets, ABucketWithOtherInputsOrAnUnknownEntryIsRefused) {
  Artifact artifact = compile(program_with(kBuckets));
  EntryPlan& bucket = artifact.variants[0].plan.buckets[0];
  bucket.inputs[0].sizes = {Dim(1), Dim(1), Dim(12)};
  const auto code_of_run = [&] {
    try {
      loaded_on_cpu(artifact).run("", {{"x", input(1, 2)}});
    } catch (const UserError& error) {
      return error.code;
    }
    return ErrorCode::kU_misuse;
  };
  EXPECT_EQ(code_of_run(), ErrorCode::kU_bad_artifact);
  bucket.name = "other";
  EXPECT_THROW(check_plan(artifact.variants[0].plan), UserError);
}

// One linear layer with a mean of squares.
Program train_program(const std::string& sizes) {
  Program program = parse("program {" + sizes + R"( param "w" : f32[6, 8] })");
  program.variables = {{"w", program_with(kRange).variables.at("w")}};
  Graph graph("main");
  const ValueId x = graph.add_input("x", {DType::f32, {Dim::symbol("batch"), Dim(6)}});
  const ValueId y = graph.add_input("y", {DType::f32, {Dim::symbol("batch"), Dim(8)}});
  const ValueId p = graph.add(Op::matmul, {x, graph.add_param("w", program.variables.at("w").type)});
  graph.add_output(add_loss(graph, LossKind::kMse, p, y), "loss");
  program.entries.push_back(std::move(graph));
  TrainOptions options;
  options.optimizer.kind = OptimizerKind::kAdam;
  options.schedule = constant_rate(1e-2);
  return make_train_program(program, options);
}

TEST(Buckets, TrainStepsOfAllSizesUpdateTheSameParams) {
  Executable whole = loaded_on_cpu(compile(train_program("size batch in 1..8")));
  Executable parts = loaded_on_cpu(compile(train_program("size batch in 1..8 buckets [2, 8]")));
  EXPECT_EQ(parts.model().plan().buckets.at(0).name, kStepEntry);
  for (int64_t batch : {1, 8, 2, 3, 1}) {
    const std::map<std::string, Array> inputs = {
        {"x", Array::from<double>(DType::f32, {batch, 6}, std::vector<double>(size_t(batch) * 6, 0.25))},
        {"y", Array::from<double>(DType::f32, {batch, 8}, std::vector<double>(size_t(batch) * 8, 0.5))}};
    EXPECT_EQ(whole.run(kStepEntry, inputs), parts.run(kStepEntry, inputs)) << batch;
    for (const std::string& name : whole.state_names())
      EXPECT_EQ(whole.state(name), parts.state(name)) << name << " after " << batch;
  }
}

TEST(Buckets, EachIsCompiledForAGpu) {
  AICF_NEEDS_NVRTC();
  CompileOptions options;
  options.target = "sm_80";
  const Plan plan = compile(program_with(kBuckets), options).variants[0].plan;
  ASSERT_EQ(plan.buckets.size(), 5u);
  for (const EntryPlan& bucket : plan.buckets) {
    EXPECT_LE(bucket.arena_bytes, plan.entries[0].arena_bytes);
    for (const Step& step : bucket.steps) EXPECT_FALSE(step.launches.empty()) << step.kernel;
  }
  EXPECT_EQ(plan_from_json(plan_to_json(plan)), plan);
}

// The smaller half of the batches in a bucket, on graphs of every kind.
TEST(Buckets, RandomGraphsGiveTheSameBits) {
  int symbolic = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Program program = testing::random_program(seed);
    const auto range = program.sizes.find("batch");
    if (range == program.sizes.end() || range->second.lo == range->second.hi) continue;
    ++symbolic;
    const Artifact whole = compile(program);
    program.buckets["batch"] = {range->second.lo, (range->second.lo + range->second.hi) / 2 + 1,
                                range->second.hi};
    Executable a = loaded_on_cpu(whole), b = loaded_on_cpu(compile(program));
    for (int64_t batch = range->second.lo; batch <= range->second.hi; ++batch) {
      const std::map<std::string, Array> inputs = testing::random_inputs(program, batch, seed);
      EXPECT_EQ(a.run("", inputs), b.run("", inputs)) << "seed " << seed << ", batch " << batch;
    }
  }
  EXPECT_GT(symbolic, 10);
}

}  // namespace
}  // namespace aicf
