// What a bundle takes of a GPU is what its launch takes, not what its members would take by themselves.
#include <gtest/gtest.h>

#include <algorithm>

#include "calls/call_costs.h"
#include "compile/testing/selected_calls.h"
#include "ir/text.h"

namespace aicf::testing {
namespace {

// The bundle's cost, the sum of its members' and the microseconds of an edge.
struct Costs {
  CallCost bundle, members;
  double edge = 0;
  int stages = 0;
};
Costs costs_of(const char* entry) {
  SelectedCalls s =
      select_calls(parse(std::string("program {\n  entry main(") + entry + "\n  }\n}\n"), "sm_90");
  run_rule("bundle_calls", s);
  Costs costs;
  costs.edge = s.target.facts().edge_microseconds;
  for (const KernelCall& call : s.calls.calls) {
    const auto* bundle = std::get_if<Bundle>(&call.what);
    if (bundle == nullptr) continue;
    const CodeContext context = context_of(s.calls, s.target);
    costs.bundle = cost_of(call, context);
    costs.stages = bundle->members.back().stage + 1;
    for (const BundleMember& member : bundle->members) {
      const CallCost own = cost_of(member.call, context);
      costs.members.time += own.time, costs.members.busy += own.busy;
    }
  }
  return costs;
}

// Its blocks are those of one cluster.
TEST(BundleCosts, StagesLeaveTheOtherMultiprocessors) {
  const Costs costs = costs_of(
      "%x: f32[8, 8], %y: f32[8, 8]) {\n"
      "    %a = reduce_sum(%x) {axes = [1], keepdims = true} : f32[8, 1]\n"
      "    %b = reduce_max(%y) {axes = [0], keepdims = true} : f32[1, 8]\n"
      "    %z = matmul(%a, %b) : f32[8, 8]\n"
      "    return \"z\" = %z");
  ASSERT_GT(costs.stages, 1);
  EXPECT_LT(costs.bundle.time, costs.members.time);
  EXPECT_GT(costs.bundle.busy, 0);
  EXPECT_LE(costs.bundle.busy, (costs.bundle.time - costs.edge) * 8 / 132);
}

// They share one launch, and keep no more of the device busy than side by side.
TEST(BundleCosts, MembersOfOneStageTakeOneLaunch) {
  const Costs costs = costs_of(
      "%x: f32[64, 64], %z: f32[32, 32]) {\n"
      "    %a = exp(%x) : f32[64, 64]\n"
      "    %b = exp(%z) : f32[32, 32]\n"
      "    return \"a\" = %a, \"b\" = %b");
  ASSERT_EQ(costs.stages, 1);
  EXPECT_LT(costs.bundle.time, costs.members.time - costs.edge / 2);
  EXPECT_LE(costs.bundle.busy, costs.bundle.time - costs.edge);
}

}  // namespace
}  // namespace aicf::testing
