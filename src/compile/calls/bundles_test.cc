// Bundles of random programs, for architectures with and without clusters and without compiling any text: the
// order of calls stays legal, and plans with bundles pass the checks that keep members of a stage apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "calls/call_code.h"
#include "codegen/cuda_build.h"
#include "codegen/testing/compile_cuda.h"
#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"
#include "compile/testing/random_graph.h"
#include "compile/testing/selected_calls.h"
#include "ir/text.h"
#include "plan/plan_builder.h"
#include "plan/plan_json.h"
#include "runtime/bind_step.h"

namespace aicf::testing {
namespace {

// An entry from passes to its plan. Calls are told apart by their origin: their number before bundling.
class Flow {
 public:
  Flow(const Program& program, const char* target) : s_(select_calls(program, target)) {
    std::vector<KernelCall>& calls = s_.calls.calls;
    for (size_t i = 0; i < calls.size(); ++i) calls[i].origins = {std::to_string(i)};
    before_ = calls;
    run_rule("bundle_calls", s_);
  }

  const std::vector<KernelCall>& before() const { return before_; }
  // The largest sizes.
  SymbolValues largest() const {
    SymbolValues sizes;
    for (const auto& [name, range] : s_.options.ranges) sizes[name] = range.hi;
    return sizes;
  }
  const std::vector<KernelCall>& after() const { return s_.calls.calls; }

  std::vector<std::string> sources() const {
    CudaBuilder cuda(s_.target);
    cuda.add(s_.calls);
    return cuda.sources();
  }

  Plan plan() const {
    CudaBuilder cuda(s_.target);
    const CodedGraph code = cuda.add(s_.calls);
    std::map<std::string, Array> constants;
    PlanBuilder builder(s_.optimised, constants);
    builder.add(s_.calls, code);
    return builder.finish();
  }

 private:
  SelectedCalls s_;
  std::vector<KernelCall> before_;
};

// Elements of a window by number, all of them one by one, at these sizes.
std::set<int64_t> elements(const Window& w, const SymbolValues& sizes) {
  std::set<int64_t> found = {evaluate(w.offset, sizes)};
  for (size_t i = 0; i < w.sizes.size(); ++i) {
    std::set<int64_t> more;
    for (const int64_t at : found)
      for (int64_t k = 0; k < evaluate(w.sizes[i], sizes); ++k)
        more.insert(at + k * evaluate(w.strides[i], sizes));
    found = std::move(more);
  }
  return found;
}

// Whether two windows share an element.
bool overlap(const Window& a, const Window& b, const SymbolValues& sizes) {
  if (a.root != b.root) return false;
  if (a.dtype != b.dtype) return true;
  const std::set<int64_t> x = elements(a, sizes), y = elements(b, sizes);
  return std::any_of(x.begin(), x.end(), [&](int64_t at) { return y.contains(at); });
}

bool share(const std::vector<Window>& a, const std::vector<Window>& b, const SymbolValues& sizes) {
  return std::any_of(a.begin(), a.end(), [&](const Window& x) {
    return std::any_of(b.begin(), b.end(), [&](const Window& y) { return overlap(x, y, sizes); });
  });
}

bool ordered(const KernelCall& a, const KernelCall& b, const SymbolValues& sizes) {
  return share(a.outputs, b.inputs, sizes) || share(a.outputs, b.outputs, sizes) ||
         share(a.inputs, b.outputs, sizes);
}

struct Place {
  size_t launch = 0;
  int stage = 0;
};

// By call: where it runs. Every call must run once.
std::vector<Place> places(const Flow& flow) {
  std::vector<Place> found(flow.before().size());
  std::vector<int> runs(flow.before().size());
  const auto note = [&](const KernelCall& call, size_t launch, int stage) {
    const auto number = static_cast<size_t>(std::stoi(origin_text(call)));
    found[number] = {launch, stage};
    ++runs[number];
  };
  for (size_t i = 0; i < flow.after().size(); ++i) {
    const KernelCall& call = flow.after()[i];
    const std::vector<StagedCall> members = members_of(call);
    if (members.empty()) note(call, i, 0);
    for (const auto& [member, stage] : members) note(*member, i, stage);
  }
  EXPECT_EQ(std::count(runs.begin(), runs.end(), 1), static_cast<std::ptrdiff_t>(runs.size()));
  return found;
}

void bind_all(const Plan& plan, int64_t batch) {
  SymbolValues sizes;
  for (const auto& [name, range] : plan.sizes) sizes[name] = std::clamp(batch, range.lo, range.hi);
  for (const EntryPlan& entry : plan.entries)
    for (size_t i = 0; i < entry.steps.size(); ++i) {
      BoundCall call;
      std::vector<AddressPatch> patches;
      bind_step(plan, entry, static_cast<int32_t>(i), sizes, call, patches);
    }
}

constexpr const char* kTargets[] = {"sm_80", "sm_90"};
constexpr uint64_t kPrograms = 300;

TEST(Bundles, KeepCallsThatShareMemoryInOrder) {
  size_t members = 0, staged = 0;
  for (const char* target : kTargets)
    for (uint64_t seed = 1; seed <= kPrograms; ++seed) {
      const Flow flow(random_program(seed), target);
      const std::vector<Place> at = places(flow);
      for (size_t a = 0; a < at.size(); ++a)
        for (size_t b = a + 1; b < at.size(); ++b) {
          if (!ordered(flow.before()[a], flow.before()[b], flow.largest())) continue;
          EXPECT_TRUE(at[a].launch < at[b].launch ||
                      (at[a].launch == at[b].launch && at[a].stage < at[b].stage))
              << target << ", seed " << seed << ", calls " << a << " and " << b;
        }
      for (const KernelCall& call : flow.after()) {
        const std::vector<StagedCall> own = members_of(call);
        members += own.size();
        staged += !own.empty() && own.back().stage > 0;
      }
    }
  EXPECT_GT(members, 500u);  // the programs have something to bundle, side by side and in stages
  EXPECT_GT(staged, 50u);
}

TEST(Bundles, MakePlansThatPassTheChecks) {
  for (const char* target : kTargets)
    for (uint64_t seed = 1; seed <= kPrograms / 3; ++seed) {
      const Plan plan = Flow(random_program(seed), target).plan();
      check_plan(plan);
      EXPECT_EQ(plan_from_json(plan_to_json(plan)), plan) << target << ", seed " << seed;
      for (const int64_t batch : {int64_t{1}, kMaxBatch}) bind_all(plan, batch);
    }
}

// The plan's only step.
Step& step_of(Plan& plan) { return plan.entries[0].steps[0]; }

// Two regions that do not see each other, then one that reads both.
constexpr char kDiamond[] = R"(program {
  entry main(%x: f32[8, 8], %y: f32[8, 8]) {
    %0 = reduce_sum(%x) {axes = [1], keepdims = true} : f32[8, 1]
    %1 = reduce_max(%y) {axes = [0], keepdims = true} : f32[1, 8]
    %2 = matmul(%0, %1) : f32[8, 8]
    return "z" = %2
  }
})";

TEST(Bundles, RunIndependentCallsSideBySide) {
  const Flow flow(parse(kDiamond), "sm_90");
  ASSERT_EQ(flow.after().size(), 1u);
  const std::vector<StagedCall> members = members_of(flow.after()[0]);
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(members[0].stage, 0);
  EXPECT_EQ(members[1].stage, 0);
  EXPECT_EQ(members[2].stage, 1);
  // Functions that one member each calls stand where they are called.
  EXPECT_EQ(flow.sources().at(0).find("chosen"), std::string::npos);
}

TEST(Bundles, SayWhy) {
  expect_told(told("bundle_calls", parse(kDiamond)), "taken",
              "small calls, one after the other in one launch");
  const Program wide = parse(R"(program {
  entry main(%x: f32[512, 2048]) {
    %0 = reduce_max(%x) {axes = [1], keepdims = true} : f32[512, 1]
    %1 = reduce_max(%0) {axes = [0], keepdims = true} : f32[1, 1]
    return "z" = %1
  }
})");
  expect_told(told("bundle_calls", wide), "refused", " us together, ");
}

// Rows of tables of several lengths, stacked.
constexpr char kTables[] = R"(program {
  entry main(%a: f32[100, 32], %b: f32[300, 32], %c: f32[100, 32], %d: f32[7, 32], %rows: i64[64, 4]) {
    %0 = slice(%rows) {starts = [0, 0], limits = [64, 1], steps = [1, 1]} : i64[64, 1]
    %1 = slice(%rows) {starts = [0, 1], limits = [64, 2], steps = [1, 1]} : i64[64, 1]
    %2 = slice(%rows) {starts = [0, 2], limits = [64, 3], steps = [1, 1]} : i64[64, 1]
    %3 = slice(%rows) {starts = [0, 3], limits = [64, 4], steps = [1, 1]} : i64[64, 1]
    %4 = reshape(%0) {shape = [64]} : i64[64]
    %5 = reshape(%1) {shape = [64]} : i64[64]
    %6 = reshape(%2) {shape = [64]} : i64[64]
    %7 = reshape(%3) {shape = [64]} : i64[64]
    %8 = gather(%a, %4) {axis = 0} : f32[64, 32]
    %9 = gather(%b, %5) {axis = 0} : f32[64, 32]
    %10 = gather(%c, %6) {axis = 0} : f32[64, 32]
    %11 = gather(%d, %7) {axis = 0} : f32[64, 32]
    %12 = reshape(%8) {shape = [64, 1, 32]} : f32[64, 1, 32]
    %13 = reshape(%9) {shape = [64, 1, 32]} : f32[64, 1, 32]
    %14 = reshape(%10) {shape = [64, 1, 32]} : f32[64, 1, 32]
    %15 = reshape(%11) {shape = [64, 1, 32]} : f32[64, 1, 32]
    %16 = concat(%12, %13, %14, %15) {axis = 1} : f32[64, 4, 32]
    return "z" = %16
  }
})";

// One launch writes the stack: its members are of one text, and each has an error of its own.
TEST(Bundles, LookUpManyTablesInOneLaunch) {
  for (const char* target : kTargets) {
    const Flow flow(parse(kTables), target);
    ASSERT_EQ(flow.after().size(), 1u);
    const std::vector<StagedCall> members = members_of(flow.after()[0]);
    ASSERT_EQ(members.size(), 4u);
    EXPECT_EQ(members.back().stage, 0);
    const std::string text = flow.sources().at(0);
    EXPECT_EQ(text.find("member_1::"), std::string::npos);
    for (const char* error : {" = error + 0;", " = error + 3;"})
      EXPECT_NE(text.find(error), std::string::npos);
    Plan plan = flow.plan();
    EXPECT_TRUE(step_of(plan).launches[0].reports_errors);
    bind_all(plan, 1);
  }
}

// Rows that are split over blocks are two launches; those of several rows side by side stay two.
TEST(Bundles, TakeRowsOfTwoLaunches) {
  const Flow flow(parse(R"(program {
  entry main(%x: f32[1, 300000], %y: f32[1, 300000], %z: f32[1, 200000]) {
    %0 = reduce_sum(%x) {axes = [1], keepdims = true} : f32[1, 1]
    %1 = reduce_sum(%y) {axes = [1], keepdims = true} : f32[1, 1]
    %2 = reduce_max(%z) {axes = [1], keepdims = true} : f32[1, 1]
    return "a" = %0, "b" = %1, "c" = %2
  }
})"),
                  "sm_90");
  ASSERT_EQ(flow.after().size(), 1u);
  EXPECT_EQ(members_of(flow.after()[0]).size(), 3u);
  Plan plan = flow.plan();
  check_plan(plan);
  bind_all(plan, 1);
  EXPECT_EQ(step_of(plan).launches.size(), 2u);
  EXPECT_NE(step_of(plan).launches[0].function, step_of(plan).launches[1].function);
  EXPECT_EQ(step_of(plan).outputs.size(), 4u);  // a workspace is the last
  AICF_NEEDS_NVRTC();
  cuda_testing::expect_compiles(flow.sources(), "sm_90");
}

// Loads past the caches that see other threads' writes are for memory that a launch does not write.
TEST(Bundles, ReadNothingPastTheCaches) {
  AICF_NEEDS_NVRTC();
  const std::vector<std::string> sources = Flow(parse(kDiamond), "sm_90").sources();
  ASSERT_EQ(sources.size(), 1u);
  const std::string ptx = compile_cuda(sources[0], "compute_90");
  EXPECT_NE(ptx.find("ld.global"), std::string::npos);
  EXPECT_EQ(ptx.find("ld.global.nc"), std::string::npos);
  EXPECT_NE(ptx.find("barrier.cluster"), std::string::npos);
}

TEST(Bundles, WhatReadsAnotherMembersResultMayNotRunBesideIt) {
  Plan plan = Flow(parse(kDiamond), "sm_90").plan();
  bind_all(plan, 1);
  step_of(plan).members[2].stage = 0;
  check_plan(plan);
  EXPECT_THROW(bind_all(plan, 1), UserError);
}

TEST(Bundles, ForeignPlansAreChecked) {
  const Plan plan = Flow(parse(kDiamond), "sm_90").plan();
  check_plan(plan);
  const auto refused = [&](const auto& change) {
    Plan changed = plan;
    change(step_of(changed));
    EXPECT_THROW(check_plan(changed), UserError);
  };
  refused([](Step& s) { s.members[2].stage = 2; });
  refused([](Step& s) { s.members[0].stage = 1; });
  refused([](Step& s) { s.members[1].stage = -1; });
  refused([](Step& s) { s.members[0].inputs[0] = static_cast<int32_t>(s.inputs.size()); });
  refused([](Step& s) { s.members[0].outputs[0] = -1; });
  refused([](Step& s) { s.members.erase(s.members.begin()); });
  refused([](Step& s) { s.launches.push_back(s.launches[0]); });  // of several stages
}

}  // namespace
}  // namespace aicf::testing
