// Which calls run beside each other: those that need nothing of each other and fill no device, and no others;
// and what they hold in memory meanwhile.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "codegen/cuda_build.h"
#include "compile/testing/random_graph.h"
#include "compile/testing/selected_calls.h"
#include "ir/text.h"
#include "plan/plan_builder.h"
#include "plan/plan_json.h"

namespace aicf::testing::assign_lanes_test {
namespace {

constexpr const char* kRule = "assign_lanes";

// Few blocks, which fill no device.
const std::vector<ForcedChoice> kFewBlocks = {{"matmul", "matmul_simt/simt 64x64 stages 4"}};

// A softmax over the rows of `count` products, each `size` x `size`.
std::string products(int count, const std::string& size, const std::string& dtype) {
  const std::string type = " : " + dtype + "[" + size + ", " + size + "]";
  std::string text = "program {\n  entry main(";
  for (int i = 0; i < count; ++i)
    text += (i == 0 ? "%x" : ", %x") + std::to_string(i) + type + ", %w" + std::to_string(i) + type;
  text += ") {\n";
  for (int i = 0; i < count; ++i)
    text += "    %p" + std::to_string(i) + " = matmul(%x" + std::to_string(i) + ", %w" + std::to_string(i) +
            ")" + type + "\n";
  text += "    %all = concat(";
  for (int i = 0; i < count; ++i) text += (i == 0 ? "%p" : ", %p") + std::to_string(i);
  const std::string rows = std::to_string(count * std::stoi(size));
  return text + ") {axis = 0} : " + dtype + "[" + rows + ", " + size +
         "]\n    %y = softmax(%all) {axis = 1} : " + dtype + "[" + rows + ", " + size +
         "]\n    return \"y\" = %y\n  }\n}\n";
}

// Each product takes the one before.
std::string chain(int count) {
  std::string text = "program {\n  entry main(%p0: f32[512, 512], %w: f32[512, 512]) {\n";
  for (int i = 1; i <= count; ++i)
    text += "    %p" + std::to_string(i) + " = matmul(%p" + std::to_string(i - 1) + ", %w) : f32[512, 512]\n";
  return text + "    return \"y\" = %p" + std::to_string(count) + "\n  }\n}\n";
}

struct Lanes {
  std::set<int32_t> used, joined;
};
Lanes lanes_of(const CallGraph& graph) {
  Lanes lanes;
  for (const KernelCall& call : graph.calls) {
    if (call.lane.number != 0) lanes.used.insert(call.lane.number);
    lanes.joined.insert(call.lane.joins.begin(), call.lane.joins.end());
  }
  return lanes;
}

TEST(AssignLanes, WhatFillsNoDeviceRunsSideBySide) {
  SelectedCalls s = select_calls(parse(products(4, "512", "f32")), "sm_90", kFewBlocks);
  const auto reports = run_rule(kRule, s);
  const Lanes lanes = lanes_of(s.calls);
  EXPECT_EQ(lanes.used, (std::set<int32_t>{1, 2, 3}));
  EXPECT_EQ(lanes.joined, lanes.used);
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_TRUE(reports[0].taken);
  EXPECT_NE(reports[0].reason.find("in lane 1, beside what follows: estimated "), std::string::npos)
      << reports[0].reason;
}

TEST(AssignLanes, WhatNeedsTheCallBeforeFollowsIt) {
  SelectedCalls s = select_calls(parse(chain(6)), "sm_90");
  EXPECT_TRUE(run_rule(kRule, s).empty());
  EXPECT_TRUE(lanes_of(s.calls).used.empty());
}

TEST(AssignLanes, WhatFillsTheDeviceStays) {
  SelectedCalls s = select_calls(parse(products(4, "4096", "bf16")), "sm_90");
  EXPECT_TRUE(run_rule(kRule, s).empty());
}

// The same four products of rows of one value: of 4 MiB, and of 64 MiB, which no lane may hold.
TEST(AssignLanes, LanesHoldAPartOfTheMemory) {
  const auto parts = [](const std::string& rows) {
    std::string text = "program {\n  entry main(%x: f32[" + rows + ", 512]";
    for (int i = 0; i < 4; ++i) text += ", %w" + std::to_string(i) + ": f32[512, 512]";
    text += ") {\n    %a = softmax(%x) {axis = 1} : f32[" + rows + ", 512]\n";
    std::string all;
    for (int i = 0; i < 4; ++i) {
      const std::string n = std::to_string(i), begin = std::to_string(512 * i),
                        end = std::to_string(512 * (i + 1));
      text += "    %v" + n + " = slice(%a) {starts = [" + begin + ", 0], limits = [" + end +
              ", 512], steps = [1, 1]} : f32[512, 512]\n    %p" + n + " = matmul(%v" + n + ", %w" + n +
              ") : f32[512, 512]\n";
      all += (i == 0 ? "%p" : ", %p") + n;
    }
    return parse(text + "    %all = concat(" + all +
                 ") {axis = 0} : f32[2048, 512]\n    %y = softmax(%all) " +
                 "{axis = 1} : f32[2048, 512]\n    return \"y\" = %y\n  }\n}\n");
  };
  SelectedCalls few = select_calls(parts("2048"), "sm_90", kFewBlocks),
                many = select_calls(parts("32768"), "sm_90", kFewBlocks);
  run_rule(kRule, few);
  run_rule(kRule, many);
  EXPECT_FALSE(lanes_of(few.calls).used.empty());
  EXPECT_TRUE(lanes_of(many.calls).used.empty());
}

// The verifier and check_plan look at every one: what runs beside what, and how long memory is kept.
TEST(AssignLanes, RandomProgramsHoldTogether) {
  int with_lanes = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SelectedCalls s = select_calls(random_program(seed), "sm_90");
    std::vector<std::string> before, after;
    for (const KernelCall& call : s.calls.calls) before.push_back(origin_text(call));
    run_rule(kRule, s);
    for (const KernelCall& call : s.calls.calls) after.push_back(origin_text(call));
    std::sort(before.begin(), before.end());
    std::sort(after.begin(), after.end());
    EXPECT_EQ(before, after) << seed;
    with_lanes += lanes_of(s.calls).used.empty() ? 0 : 1;
    CudaBuilder cuda(s.target);
    const CodedGraph code = cuda.add(s.calls);
    std::map<std::string, Array> constants;
    PlanBuilder builder(s.optimised, constants);
    builder.add(s.calls, code);
    const Plan plan = builder.finish();
    EXPECT_NO_THROW(check_plan(plan)) << seed;
    EXPECT_EQ(plan_from_json(plan_to_json(plan)), plan) << seed;
  }
  EXPECT_GT(with_lanes, 20) << "the check has lost its sense";
}

}  // namespace
}  // namespace aicf::testing::assign_lanes_test
