// Which calls run at the same time (stream parallelism): calls that need nothing of those behind them, and
// too little of the device to fill it, go into a lane beside those. After "IOS: Inter-Operator Scheduler for
// CNN Acceleration" (Ding et al., MLSys 2021), but greedy: from left to right, a lane at a time.
#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/format.h"
#include "calls/call_costs.h"
#include "calls/call_windows.h"
#include "calls/live_bytes.h"
#include "calls/rule_site.h"

namespace aicf {
namespace {

// Microseconds, from runs on an H200: what a lane's fork and join cost, where the calls would else follow
// each other with a launch that begins early.
constexpr double kForkJoin = 2.0;
// Of a lane's time: estimates tell no smaller gain.
constexpr double kLeastGain = 0.1;
// A lane is joined when lane 0 has had so many times what the lane takes: its memory is free again then.
constexpr double kSlack = 1.25;
constexpr size_t kFurthest = 512;  // calls that a lane is looked for in
// What lanes may hold longer than their calls need it: a part of what all calls hold at most at a time, or so
// many bytes.
constexpr int64_t kPartHeld = 8, kLeastHeld = int64_t{1} << 24;

// Calls one after the other.
struct Side {
  std::vector<size_t> calls = {};
  double time = 0, busy = 0;
  size_t weighed = 0;  // calls that `busy` counts
};

// Calls that could leave lane 0, and what they save.
struct Leaving {
  Side side = {};
  double gain = 0;
};

// A lane that runs, from when to when by the clock of lane 0.
struct OpenLane {
  Side side = {};
  double begin = 0, end = 0;
  std::set<ValueId> held = {};
  bool is_open() const { return !side.calls.empty(); }
};

class LaneAssigner {
 public:
  explicit LaneAssigner(const RuleSite& rule)
      : rule_(rule),
        calls_(rule.graph.calls),
        context_(context_of(rule.graph, rule.target)),
        costs_(calls_.size()),
        order_(calls_.size()),
        open_lane_(calls_.size()),
        part_(calls_.size()),
        most_held_(kLeastHeld) {
    const Legality legality(rule.graph);
    needed_ = legality.needed_by_byte();
    most_held_ = std::max(most_held_, LiveBytes(rule.graph, legality).peak() / kPartHeld);
    std::iota(order_.begin(), order_.end(), size_t{0});
  }

  void run() {
    for (size_t place = 0; place < order_.size();) {
      const std::set<int32_t> joins = lanes_needed(order_[place]);
      const Leaving leaving = joins.empty() ? best_leaving(place) : Leaving();
      if (leaving.side.calls.empty())
        follow(order_[place++], joins);
      else
        place = open(place, leaving);
    }
    std::vector<KernelCall> ordered;
    for (const size_t call : order_) ordered.push_back(std::move(calls_[call]));
    calls_ = std::move(ordered);
  }

 private:
  static constexpr size_t kLanes = static_cast<size_t>(kMostLanes) + 1;
  enum class Part : uint8_t { kNone, kChain, kBeside };

  OpenLane& lane_of(int32_t number) { return lanes_[static_cast<size_t>(number)]; }
  std::set<int32_t> lanes_needed(size_t call) const {
    std::set<int32_t> needed;
    for (const size_t before : needed_[call])
      if (open_lane_[before] != 0) needed.insert(open_lane_[before]);
    return needed;
  }
  bool needs(size_t call, Part part) const {
    return std::any_of(needed_[call].begin(), needed_[call].end(),
                       [&](size_t before) { return part_[before] == part; });
  }

  // The call goes on in lane 0, when the lanes that it needs have ended; it joins those, too, that would have
  // ended long ago.
  void follow(size_t call, std::set<int32_t> joins) {
    for (const int32_t number : joins) now_ = std::max(now_, lane_of(number).end);
    for (int32_t number = 1; number <= kMostLanes; ++number) {
      const OpenLane& lane = lane_of(number);
      if (lane.is_open() && now_ >= lane.begin + kSlack * (lane.end - lane.begin)) joins.insert(number);
    }
    for (const int32_t number : joins) {
      for (const size_t ended : lane_of(number).side.calls) open_lane_[ended] = 0;
      for (const ValueId root : lane_of(number).held)
        if (--holders_[root] == 0) held_ -= bytes_of(root);
      lane_of(number) = {};
    }
    now_ += cost(call).time;
    calls_[call].lane.joins.assign(joins.begin(), joins.end());
  }

  // Moves the calls up to `place`, into a free lane. Gives the place behind them.
  size_t open(size_t place, const Leaving& leaving) {
    const auto free =
        std::find_if(lanes_.begin() + 1, lanes_.end(), [](const OpenLane& lane) { return !lane.is_open(); });
    const auto number = static_cast<int32_t>(free - lanes_.begin());
    *free = {leaving.side, now_, now_ + leaving.side.time, temps_of(leaving.side.calls)};
    for (const ValueId root : free->held)
      if (++holders_[root] == 1) held_ += bytes_of(root);
    std::vector<const KernelCall*> left;
    for (const size_t call : leaving.side.calls) {
      const auto to = order_.begin() + static_cast<std::ptrdiff_t>(place++);
      const auto from = std::find(to, order_.end(), call);
      std::rotate(to, from, from + 1);
      calls_[call].lane.number = open_lane_[call] = number;
      left.push_back(&calls_[call]);
    }
    if (rule_.reports())
      rule_.report(left, true,
                   "in lane " + std::to_string(number) + ", beside what follows: estimated " +
                       format_fixed(leaving.gain, 1) + " us less",
                   leaving.side.time);
    return place;
  }

  // Two sides of the calls from `place` on can run at the same time: a chain that begins there and takes up
  // the calls behind that need it, and the calls that do not. Of how far these may reach, what saves most
  // time; no calls if nothing does. The shorter side leaves lane 0.
  Leaving best_leaving(size_t place) {
    Leaving best;
    const bool is_full =
        std::all_of(lanes_.begin() + 1, lanes_.end(), [](const OpenLane& lane) { return lane.is_open(); });
    if (is_full || !may_leave(order_[place])) return best;
    Side chain, beside;
    const auto add = [&](size_t call, Side& side, Part part) {
      side.calls.push_back(call);
      side.time += cost(call).time;
      part_[call] = part;
    };
    const auto consider = [&] {
      if (beside.calls.empty()) return;
      Leaving found = weigh(chain, beside, best.gain);
      if (found.gain > best.gain) best = std::move(found);
    };
    add(order_[place], chain, Part::kChain);
    const size_t end = std::min(order_.size(), place + 1 + kFurthest);
    size_t next = place + 1;
    for (; next < end && beside.time < kSlack * chain.time; ++next) {
      const size_t call = order_[next];
      if (!may_leave(call) || !lanes_needed(call).empty()) break;
      if (!needs(call, Part::kChain)) {
        add(call, beside, Part::kBeside);
        continue;
      }
      consider();
      if (needs(call, Part::kBeside)) break;
      add(call, chain, Part::kChain);
    }
    consider();
    for (size_t i = place; i < next; ++i) part_[order_[i]] = Part::kNone;
    return best;
  }

  // What is saved if the shorter side leaves: the device does no more work at a time than it can, and the
  // lanes that run already need their share. Of the longer side, what runs until the lane is joined.
  Leaving weigh(Side& chain, Side& beside, double least_gain) {
    for (Side* side : {&chain, &beside})
      for (; side->weighed < side->calls.size(); ++side->weighed)
        side->busy += cost(side->calls[side->weighed]).busy;
    const Side &side = chain.time < beside.time ? chain : beside, &stays = &side == &chain ? beside : chain;
    double others = 0;
    for (const OpenLane& lane : lanes_)
      if (lane.is_open() && lane.end > now_)
        others += lane.side.busy * (lane.end - now_) / (lane.end - lane.begin);
    const double part = std::min(1.0, kSlack * side.time / stays.time);
    const double shared = part * stays.busy + others;
    const double apart = side.time + std::max(part * stays.time, shared);
    const double together = std::max({side.time, part * stays.time, side.busy + shared}) + kForkJoin;
    if (apart - together < std::max(least_gain, kLeastGain * side.time)) return {};
    int64_t held = held_;
    for (const ValueId root : temps_of(side.calls))
      if (!holders_.contains(root) || holders_.at(root) == 0) held += bytes_of(root);
    return held <= most_held_ ? Leaving{side, apart - together} : Leaving();
  }

  int64_t bytes_of(ValueId root) const { return most_bytes(rule_.graph, root); }
  // Those that the calls touch.
  std::set<ValueId> temps_of(const std::vector<size_t>& calls) const {
    std::set<ValueId> roots;
    for (const size_t call : calls)
      for (const auto* list : {&calls_[call].inputs, &calls_[call].outputs})
        for (const Window& w : *list)
          if (rule_.graph.is_temp(w.root)) roots.insert(w.root);
    return roots;
  }

  bool may_leave(size_t call) const {
    const WhatRuns& what = calls_[call].what;
    return !std::holds_alternative<ControlRun>(what) && !std::holds_alternative<CustomRun>(what) &&
           !std::holds_alternative<LibraryRun>(what);
  }

  const CallCost& cost(size_t call) {
    if (!costs_[call]) costs_[call] = cost_of(calls_[call], context_);
    return *costs_[call];
  }

  const RuleSite& rule_;
  std::vector<KernelCall>& calls_;
  CodeContext context_;
  std::vector<std::vector<size_t>> needed_;     // by call: those before it that it has to stay behind
  std::vector<std::optional<CallCost>> costs_;  // by call, once they are asked for
  std::vector<size_t> order_;                   // calls by place
  std::vector<int32_t> open_lane_;              // by call: that in which it still runs; 0: none
  std::vector<Part> part_;                      // by call, of the chain that is looked at
  std::array<OpenLane, kLanes> lanes_;          // that of lane 0 stays empty
  double now_ = 0;                              // lane 0's clock
  std::map<ValueId, int> holders_;              // lanes that run and hold the root
  int64_t held_ = 0, most_held_;                // bytes that they hold
};

}  // namespace

void assign_lanes(const RuleSite& site) { LaneAssigner(site).run(); }

}  // namespace aicf
