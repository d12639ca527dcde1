// Entries exported alone: the bits of the whole, and nothing of the rest.
#include "compile/artifact_part.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "codegen/testing/needs_nvrtc.h"
#include "compile/compile.h"
#include "compile/testing/random_arrays.h"
#include "ir/text.h"
#include "plan/plan_part.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/executable.h"
#include "runtime/trainer.h"
#include "train/losses.h"
#include "train/schedules.h"
#include "train/train_step.h"

namespace aicf {
namespace {

using testing::random_array;

// A loss over trained params, a frozen weight that only it reads, and a weight that eval alone reads; eval
// has a branch that reads indices, so bodies.
Program training_program(DType dtype) {
  const std::string type(dtype_name(dtype));
  const auto with_type = [&](std::string text) {
    for (size_t at = 0; (at = text.find("TYPE", at)) != std::string::npos;) text.replace(at, 4, type);
    return text;
  };
  Program program = parse(with_type(R"(program {
    size rows in 1..8 buckets [1, 8]
    param "eval.w" : TYPE[16, 5]
    param "frozen" : TYPE[16, 16]
    param "w" : TYPE[12, 16]
    state "seen" : i64[]
    entry loss(%x: TYPE[rows, 12]) {
      %0 = param "w" : TYPE[12, 16]
      %1 = param "frozen" : TYPE[16, 16]
      %2 = matmul(%x, %0) : TYPE[rows, 16]
      %3 = tanh(%2) : TYPE[rows, 16]
      %4 = matmul(%3, %1) : TYPE[rows, 16]
      %5 = mul(%4, %4) : TYPE[rows, 16]
      %6 = reduce_sum(%5) {axes = [0, 1]} : TYPE[]
      return "loss" = %6
    }
    entry eval(%x: TYPE[rows, 12], %flag: bool[]) {
      %0 = param "w" : TYPE[12, 16]
      %1 = param "eval.w" : TYPE[16, 5]
      %2 = state "seen" : i64[]
      %3 = matmul(%x, %0) : TYPE[rows, 16]
      %4 = tanh(%3) : TYPE[rows, 16]
      %5 = matmul(%4, %1) : TYPE[rows, 5]
      %6 = cast(%2) {dtype = TYPE} : TYPE[]
      %10 = add(%5, %6) : TYPE[rows, 5]
      %7 = if_else(%flag, %10, %2)
        body(%a: TYPE[rows, 5] as "a", %i: i64[] as "i") {
          %column = gather(%a, %i) {axis = 1} : TYPE[rows]
          %zero = constant TYPE[] = [0]
          %total, %all = scan(%zero, %column) {carried = 1, reverse = false}
            body(%s: TYPE[] as "s", %e: TYPE[] as "e") {
              %sum = add(%s, %e) : TYPE[]
              return %sum, %sum
            } : TYPE[], TYPE[rows]
          return %all
        }
        body(%a: TYPE[rows, 5] as "a", %i: i64[] as "i") {
          %column = reduce_max(%a) {axes = [1]} : TYPE[rows]
          return %column
        } : TYPE[rows]
      %8 = constant i64[] = [1]
      %9 = add(%2, %8) : i64[]
      update "seen" = %9
      return "y" = %7
    }
  })"));
  uint64_t seed = 1;
  for (auto& [name, variable] : program.variables)
    if (name != "seen")
      variable.data = random_array(
          variable.type.dtype,
          {variable.type.shape[0].constant().value(), variable.type.shape[1].constant().value()}, seed++);
  TrainOptions options;
  options.optimizer.kind = OptimizerKind::kAdamW;
  options.schedule = cosine_rate(0.1, 100);
  options.groups = {{{"frozen", "eval.w"}, 1, std::nullopt, false}};
  options.accumulate = 2;
  options.gradients_entry = true;
  return make_train_program(program, options);
}

std::unique_ptr<Executable> loaded(const Artifact& artifact) {
  return std::make_unique<Executable>(Model::load(artifact, make_cpu_device({2, detect_isa()})));
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::map<std::string, Array> eval_inputs(DType dtype, int64_t rows) {
  return {{"x", random_array(dtype, {rows, 12}, 7)}, {"flag", Array::scalar_i64(DType::boolean, 1)}};
}

TEST(ArtifactPart, ATrainedModelsInferenceEntryHasItsBitsAndNoOptimizer) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto trained = loaded(compile(training_program(dtype)));
    Trainer trainer(*trained);
    for (uint64_t i = 0; i < 4; ++i) {
      const Array x = random_array(dtype, {4, 12}, 20 + i);
      trainer.step({view_of(x)});
    }
    const Artifact whole = trainer.artifact();
    EXPECT_EQ(inference_entries(whole), std::set<std::string>{"eval"});
    const Artifact part = part_of(whole, inference_entries(whole));
    std::set<std::string> names;
    for (const auto& [name, array] : part.weights) names.insert(name);
    EXPECT_EQ(names, (std::set<std::string>{"eval.w", "seen", "w"}));
    for (const auto& [name, text] : part.metadata) EXPECT_FALSE(name.starts_with(kTrainingMetadata)) << name;
    for (const Variant& variant : part.variants) {
      EXPECT_NO_THROW(check_plan(variant.plan));
      for (const EntryPlan& entry : variant.plan.entries)
        EXPECT_TRUE(entry.name == "eval" || entry.name == kInitEntry) << entry.name;
    }

    const std::string folder = ::testing::TempDir();
    const std::string all = folder + "/whole.aicf", one = folder + "/part.aicf", two = folder + "/again.aicf";
    write_artifact(all, whole);
    write_artifact(one, part);
    write_artifact(two, part_of(read_artifact(all), {"eval"}));
    EXPECT_EQ(bytes_of(one), bytes_of(two));
    EXPECT_LT(std::filesystem::file_size(one), std::filesystem::file_size(all));
    const auto exported = loaded(read_artifact(one));
    for (const int64_t rows : {1, 3, 8})
      EXPECT_EQ(hash_arrays(exported->run("", eval_inputs(dtype, rows))),
                hash_arrays(trained->run("eval", eval_inputs(dtype, rows))))
          << rows;
    EXPECT_EQ(exported->state("seen").get_i64(0), 3);
  }
}

TEST(ArtifactPart, TheProgramIsThatOfTheEntryAlone) {
  const Program program = training_program(DType::f32);
  const Artifact part = part_of(compile(program), {"eval"});
  Program alone = program;
  std::erase_if(alone.entries, [](const Graph& graph) { return graph.name() != "eval"; });
  std::erase_if(alone.variables, [](const auto& item) {
    return !std::set<std::string>{"eval.w", "seen", "w"}.contains(item.first);
  });
  std::erase_if(alone.metadata, [](const auto& item) { return item.first.starts_with(kTrainingMetadata); });
  EXPECT_EQ(part.program, print(alone));
}

// Packed copies, code and sizes that only other entries need.
TEST(ArtifactPart, NothingOfOtherEntriesStays) {
  Program program = parse(R"(program {
    size a in 1..4
    size b in 1..4
    param "p" : f32[64, 64]
    param "q" : f32[64, 64]
    entry first(%x: f32[a, 64]) {
      %0 = param "p" : f32[64, 64]
      %1 = matmul(%x, %0) : f32[a, 64]
      return "y" = %1
    }
    entry second(%x: f32[b, 64]) {
      %0 = param "q" : f32[64, 64]
      %1 = matmul(%x, %0) : f32[b, 64]
      %2 = exp(%1) : f32[b, 64]
      return "y" = %2
    }
  })");
  program.variables.at("p").data = random_array(DType::f32, {64, 64}, 1);
  program.variables.at("q").data = random_array(DType::f32, {64, 64}, 2);
  const Artifact whole = compile(program);
  ASSERT_GT(whole.variants[0].plan.packed_bytes, 0);
  for (const char* name : {"first", "second"}) {
    const Artifact part = part_of(whole, {name});
    const Plan &plan = part.variants[0].plan, &all = whole.variants[0].plan;
    EXPECT_NO_THROW(check_plan(plan));
    EXPECT_EQ(plan.sizes.size(), 1U);
    EXPECT_EQ(plan.entry(kInitEntry)->steps.size() * 2, all.entry(kInitEntry)->steps.size());
    EXPECT_EQ(part.weights.size(), 1U);
    const std::map<std::string, Array> inputs{{"x", random_array(DType::f32, {3, 64}, 3)}};
    EXPECT_EQ(hash_arrays(loaded(part)->run("", inputs)), hash_arrays(loaded(whole)->run(name, inputs)));
  }
  EXPECT_EQ(part_of(whole, {"first", "second"}).variants[0].plan, whole.variants[0].plan);
  try {
    part_of(whole, {"third"});
    ADD_FAILURE();
  } catch (const UserError& error) {
    EXPECT_EQ(error.expected, "first, second");
  }
}

TEST(ArtifactPart, CodeForAGpuIsThatOfTheEntry) {
  AICF_NEEDS_NVRTC();
  CompileOptions options;
  options.target = "sm_90,cpu";
  const Artifact whole = compile(training_program(DType::f32), options), part = part_of(whole, {"eval"});
  ASSERT_EQ(part.variants.size(), 2U);
  const Variant &all = whole.variants[0], &kept = part.variants[0];
  EXPECT_NO_THROW(check_plan(kept.plan));
  ASSERT_EQ(kept.code.size(), static_cast<size_t>(kept.plan.modules));
  EXPECT_LE(kept.code.size(), all.code.size());
  const EntryPlan &before = *all.plan.entry("eval"), &after = *kept.plan.entry("eval");
  ASSERT_EQ(before.steps.size(), after.steps.size());
  for (size_t i = 0; i < before.steps.size(); ++i) {
    if (before.steps[i].module < 0) continue;
    EXPECT_EQ(all.code[static_cast<size_t>(before.steps[i].module)].data(),
              kept.code[static_cast<size_t>(after.steps[i].module)].data());
  }
}

}  // namespace
}  // namespace aicf
