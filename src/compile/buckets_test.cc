// Buckets: a list of sizes gives plans for parts of a range that share weights, states and arena, and the
// same results as the plan for the whole range.
#include "compile/buckets.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "compile/compile.h"
#include "compile/testing/random_graph.h"
#include "ir/text.h"
#include "plan/plan_json.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/executable.h"

namespace aicf {
namespace {

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

Executable load(const Artifact& artifact) {
  return Executable(Model::load(artifact, make_cpu_device({2, detect_isa()})));
}

TEST(Buckets, EverySizeGivesTheBitsOfTheWholeRange) {
  const Artifact whole = compile(program_with(kRange)), parts = compile(program_with(kBuckets));
  Executable a = load(whole), b = load(parts);
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

TEST(Buckets, SizesOutsideAllAreRefused) {
  Executable exe = load(compile(program_with(kBuckets)));
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
      load(artifact).run("", {{"x", input(1, 2)}});
    } catch (const UserError& error) {
      return error.code;
    }
    return ErrorCode::kU_misuse;
  };
  EXPECT_EQ(code_of_run(), ErrorCode::kU_bad_artifact);
  bucket.name = "other";
  EXPECT_THROW(check_plan(artifact.variants[0].plan), UserError);
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
    Executable a = load(whole), b = load(compile(program));
    for (int64_t batch = range->second.lo; batch <= range->second.hi; ++batch) {
      const std::map<std::string, Array> inputs = testing::random_inputs(program, batch, seed);
      EXPECT_EQ(a.run("", inputs), b.run("", inputs)) << "seed " << seed << ", batch " << batch;
    }
  }
  EXPECT_GT(symbolic, 10);
}

}  // namespace
}  // namespace aicf
