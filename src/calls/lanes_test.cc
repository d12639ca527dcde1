// Lanes against what their words say (kernels/common/lanes.h): what the verifier lets pass reads the same in
// every order that the lanes leave open, by runs that share no code with it (testing/symbolic_run.h).
#include "kernels/common/lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/error.h"
#include "calls/testing/random_calls.h"
#include "calls/testing/symbolic_run.h"
#include "calls/verify_calls.h"

namespace aicf::testing {
namespace {

constexpr int64_t kSizeOfSymbols = 5;

// By call: those that it begins behind, found from one sentence of lanes.h each.
std::vector<std::vector<size_t>> calls_before(const std::vector<Lane>& lanes) {
  std::vector<std::vector<size_t>> before(lanes.size());
  for (size_t at = 0; at < lanes.size(); ++at) {
    const auto last = [&](int32_t number) {
      for (size_t i = at; i-- > 0;)
        if (lanes[i].number == number) return before[at].push_back(i);
    };
    last(0);
    last(lanes[at].number);
    for (const int32_t joined : lanes[at].joins) last(joined);
  }
  return before;
}

std::vector<size_t> random_order(const std::vector<std::vector<size_t>>& before, std::mt19937_64& random) {
  std::vector<size_t> order;
  std::vector<bool> done(before.size());
  while (order.size() < before.size()) {
    std::vector<size_t> ready;
    for (size_t at = 0; at < before.size(); ++at)
      if (!done[at] &&
          std::all_of(before[at].begin(), before[at].end(), [&](size_t first) { return done[first]; }))
        ready.push_back(at);
    order.push_back(ready[random() % ready.size()]);
    done[order.back()] = true;
  }
  return order;
}

// Chains in lanes 1 to 3, each joined by some later call of lane 0 or by none.
void set_random_lanes(std::vector<KernelCall>& calls, std::mt19937_64& random) {
  std::vector<bool> open(4);
  for (KernelCall& call : calls) {
    const auto number = static_cast<int32_t>(random() % 5);
    if (number >= 1 && number <= 3 && !std::holds_alternative<ControlRun>(call.what)) {
      call.lane.number = number;
      open[static_cast<size_t>(number)] = true;
      continue;
    }
    for (int32_t joined = 1; joined <= 3; ++joined)
      if (open[static_cast<size_t>(joined)] && random() % 2 == 0) {
        call.lane.joins.push_back(joined);
        open[static_cast<size_t>(joined)] = false;
      }
  }
}

TEST(Lanes, WhatIsVerifiedReadsTheSameInEveryOrder) {
  int accepted = 0, refused = 0, wide = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    CallProgram program = random_calls(seed);
    CallGraph& graph = program.graphs.back();
    std::mt19937_64 random(seed);
    for (int draw = 0; draw < 4; ++draw) {
      for (KernelCall& call : graph.calls) call.lane = {};
      set_random_lanes(graph.calls, random);
      try {
        verify(graph, "a test");
      } catch (const InternalError&) {
        ++refused;
        continue;
      }
      ++accepted;
      std::vector<Lane> lanes;
      for (const KernelCall& call : graph.calls) lanes.push_back(call.lane);
      const auto before = calls_before(lanes);
      std::vector<size_t> in_order(lanes.size());
      std::iota(in_order.begin(), in_order.end(), size_t{0});
      const SymbolicRun run(program, program.graphs.size() - 1, Grain::kElements, kSizeOfSymbols);
      const auto seen = run.run(in_order);
      for (int i = 0; i < 4; ++i) {
        const std::vector<size_t> order = random_order(before, random);
        wide += order != in_order ? 1 : 0;
        ASSERT_EQ(run.run(order), seen) << seed;
      }
    }
  }
  EXPECT_GT(accepted, 200) << "the check has lost its sense";
  EXPECT_GT(refused, 200);
  EXPECT_GT(wide, 200);
}

// A call beside which another one may run is one before or behind which no order of theirs puts it.
TEST(Lanes, TheLastBesideIsTheLastThatNeedNotFollow) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<KernelCall> calls(1 + random() % 20);
    set_random_lanes(calls, random);
    std::vector<Lane> lanes;
    for (const KernelCall& call : calls) lanes.push_back(call.lane);
    const auto before = calls_before(lanes);
    // By call: all that it follows.
    std::vector<std::vector<bool>> follows(calls.size(), std::vector<bool>(calls.size()));
    for (size_t at = 0; at < calls.size(); ++at)
      for (const size_t first : before[at]) {
        follows[at][first] = true;
        for (size_t i = 0; i < calls.size(); ++i)
          if (follows[first][i]) follows[at][i] = true;
      }
    const std::vector<size_t> last = last_beside(calls);
    OpenLanes open;
    for (size_t at = 0; at < calls.size(); ++at) {
      open.begin(lanes[at], at);
      std::vector<size_t> beside, expected;
      open.visit_beside(lanes[at], [&](size_t other) { beside.push_back(other); });
      std::sort(beside.begin(), beside.end());
      for (size_t i = 0; i < at; ++i)
        if (!follows[at][i]) expected.push_back(i);
      EXPECT_EQ(beside, expected) << seed;
      for (size_t later = at + 1; later < calls.size(); ++later)
        if (!follows[later][at]) {
          EXPECT_GE(last[at], later) << seed;
        }
    }
  }
}

}  // namespace
}  // namespace aicf::testing
