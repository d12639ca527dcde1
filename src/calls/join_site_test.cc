// What the site of a join takes is legal, stands where the proposal says and takes no more memory than it
// may; what it refuses leaves the calls as they were.
#include "calls/join_site.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "calls/testing/random_calls.h"
#include "calls/testing/symbolic_run.h"

namespace aicf::testing {
namespace {

constexpr int64_t kSize = 5;  // of symbols
constexpr uint64_t kLists = 2000;
constexpr int kProposals = 8;  // of each list

// A graph's calls with a number each as their origin.
struct Numbered {
  explicit Numbered(uint64_t seed) : program(random_calls(seed)) {
    std::vector<KernelCall>& calls = graph().calls;
    for (size_t i = 0; i < calls.size(); ++i) calls[i].origins = {std::to_string(i)};
  }
  CallGraph& graph() { return program.graphs.back(); }
  JoinSite site() { return JoinSite({"test", graph(), target, options, on_report, on_choices}); }

  CallProgram program;
  Target target = Target::from_name("sm_90");
  SelectOptions options;
  OnCallReport on_report = [this](const CallGraph&, const CallReport& report) { reports.push_back(report); };
  std::function<void(const CallGraph&)> on_choices;
  std::vector<CallReport> reports;
};

void add_windows(const KernelCall& call, KernelCall& both) {
  both.inputs.insert(both.inputs.end(), call.inputs.begin(), call.inputs.end());
  both.outputs.insert(both.outputs.end(), call.outputs.begin(), call.outputs.end());
}

// Two or three calls in the place of one of them, or of the first behind what the others need.
Proposal random_proposal(const CallGraph& graph, std::mt19937_64& random) {
  const size_t count = graph.calls.size();
  size_t a = random() % count, b = random() % count;
  if (a == b) b = (b + 1) % count;
  Proposal p{.remove = {std::min(a, b), std::max(a, b)}, .insert = {}};
  p.lift = random() % 3 == 0;
  const bool is_group = random() % 4 == 0;
  if (const size_t c = random() % count; !is_group && c != a && c != b) p.remove.push_back(c);
  std::sort(p.remove.begin(), p.remove.end());
  p.at = p.remove[p.lift ? 0 : random() % p.remove.size()];
  if (is_group)
    p.insert.what = GroupedProducts{{graph.calls[p.remove[0]], graph.calls[p.remove[1]]}};
  else
    p.insert.what = RowCall{.row = "both"};
  for (const size_t at : p.remove) add_windows(graph.calls[at], p.insert);
  return p;
}

// The calls' numbers in the order in which they now run.
std::vector<size_t> order_of(const CallGraph& graph) {
  std::vector<size_t> order;
  for (const KernelCall& call : graph.calls)
    for (const std::string& origin : call.origins) order.push_back(std::stoul(origin));
  return order;
}

TEST(JoinSite, WhatIsTakenIsLegalAndWhatIsRefusedLeavesAllAsItWas) {
  size_t taken = 0, refused = 0, lifted = 0, groups = 0, chains = 0;
  for (uint64_t seed = 1; seed <= kLists; ++seed) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < kProposals; ++i) {
      Numbered calls(seed);
      const size_t count = calls.graph().calls.size();
      if (count < 2) break;
      const CallProgram before = calls.program;
      const Proposal p = random_proposal(before.graphs.back(), random);
      JoinSite site = calls.site();
      const bool is_taken = site.offer(p);
      site.finish();
      ASSERT_EQ(calls.reports.size(), 1u);
      EXPECT_EQ(calls.reports[0].taken, is_taken);
      ++(is_taken ? taken : refused);
      if (!is_taken) {
        ASSERT_EQ(calls.program, before) << seed;
        const std::string& reason = calls.reports[0].reason;
        EXPECT_TRUE(reason.find(" cannot pass ") != std::string::npos ||
                    reason.find(" would stand behind ") != std::string::npos ||
                    reason.find(" overwrites what ") != std::string::npos ||
                    reason.find("what another one writes") != std::string::npos)
            << reason;
        continue;
      }
      const std::vector<size_t> order = order_of(calls.graph());
      std::vector<size_t> as_it_was(count);
      std::iota(as_it_was.begin(), as_it_was.end(), size_t{0});
      const SymbolicRun run(before, before.graphs.size() - 1, Grain::kElements, kSize);
      ASSERT_EQ(run.run(order), run.run(as_it_was)) << seed;
      const auto first = std::find(order.begin(), order.end(), p.remove[0]);
      const auto place = static_cast<size_t>(first - order.begin());
      ASSERT_TRUE(std::equal(p.remove.begin(), p.remove.end(), first)) << seed;
      if (std::holds_alternative<GroupedProducts>(p.insert.what)) {
        std::vector<size_t> turned = order;  // members run side by side
        std::swap(turned[place], turned[place + 1]);
        ASSERT_EQ(run.run(turned), run.run(as_it_was)) << seed;
        ++groups;
      }
      const auto behind = std::find(p.remove.begin(), p.remove.end(), p.at) - p.remove.begin();
      ASSERT_TRUE(p.lift || place == p.at - static_cast<size_t>(behind)) << seed;
      lifted += p.lift && place != p.at ? 1 : 0;
      const std::vector<KernelCall>& all = before.graphs.back().calls;
      chains += p.remove.size() > 2 && must_keep_order(all[p.remove[0]], all[p.remove[1]]) &&
                        must_keep_order(all[p.remove[1]], all[p.remove[2]])
                    ? 1
                    : 0;
      std::vector<size_t> others;
      for (const size_t at : order)
        if (std::find(p.remove.begin(), p.remove.end(), at) == p.remove.end()) others.push_back(at);
      ASSERT_TRUE(p.lift || std::is_sorted(others.begin(), others.end())) << seed;
    }
  }
  EXPECT_GT(taken, 1000u);
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(lifted, 50u);
  EXPECT_GT(groups, 50u);
  EXPECT_GT(chains, 50u);
}

// A result that the one call does not store.
TEST(JoinSite, WhatOthersNeedIsStored) {
  size_t dropped = 0, needed = 0;
  for (uint64_t seed = 1; seed <= kLists; ++seed) {
    std::mt19937_64 random(seed);
    Numbered calls(seed);
    const CallGraph before = calls.graph();
    if (before.calls.size() < 2) continue;
    Proposal p = random_proposal(before, random);
    if (p.insert.outputs.empty()) continue;
    const ValueId root = p.insert.outputs[random() % p.insert.outputs.size()].root;
    std::erase_if(p.insert.outputs, [&](const Window& w) { return w.root == root; });
    JoinSite site = calls.site();
    bool is_needed = site.legality().is_kept(root);
    for (const size_t reader : site.legality().readers(root))
      is_needed = is_needed || std::find(p.remove.begin(), p.remove.end(), reader) == p.remove.end();
    const bool is_taken = site.offer(p);
    ++(is_needed ? needed : dropped);
    if (is_needed) {
      EXPECT_FALSE(is_taken) << seed;
    } else if (!is_taken) {
      const std::string& reason = calls.reports[0].reason;
      EXPECT_EQ(reason.find(" is read by "), std::string::npos) << reason;
    }
  }
  EXPECT_GT(needed, 100u);
  EXPECT_GT(dropped, 100u);
}

// The peak, place by place.
int64_t peak_of(const CallGraph& graph) {
  const auto is_live = [&](ValueId root, size_t at) {
    const auto touches = [&](const KernelCall& call) {
      const auto is = [&](const Window& w) { return w.root == root; };
      return std::any_of(call.inputs.begin(), call.inputs.end(), is) ||
             std::any_of(call.outputs.begin(), call.outputs.end(), is);
    };
    const auto end = graph.calls.begin() + static_cast<std::ptrdiff_t>(at) + 1;
    const auto& outputs = graph.output_roots;
    const bool leaves = std::find(outputs.begin(), outputs.end(), root) != outputs.end();
    return std::any_of(graph.calls.begin(), end, touches) &&
           (leaves || std::any_of(end - 1, graph.calls.end(), touches));
  };
  int64_t peak = 0;
  for (size_t at = 0; at < graph.calls.size(); ++at) {
    int64_t live = 0;
    for (ValueId root = 0; root < static_cast<ValueId>(graph.constant.size()); ++root) {
      const bool extra = root >= graph.graph.value_count();
      const size_t number = static_cast<size_t>(root - graph.graph.value_count());
      const bool temp = extra ? graph.extra[number].kind == ExtraValue::Kind::kTemp
                              : graph.graph.value(root).role == Role::kTemp;
      const TensorType& type = extra ? graph.extra[number].type : graph.graph.type(root);
      if (temp && is_live(root, at))
        live += bounds(element_count(type.shape), graph.ranges).hi * dtype_bytes(type.dtype);
    }
    peak = std::max(peak, live);
  }
  return peak;
}

TEST(JoinSite, ProposalsThatMayTakeNoMoreMemoryTakeNone) {
  size_t refused = 0;
  for (uint64_t seed = 1; seed <= kLists / 4; ++seed) {
    std::mt19937_64 random(seed);
    Numbered calls(seed);
    if (calls.graph().calls.size() < 3) continue;
    JoinSite site = calls.site();
    for (int i = 0; i < kProposals; ++i) {
      const CallGraph before = calls.graph();
      Proposal p = random_proposal(before, random);
      if (std::any_of(p.remove.begin(), p.remove.end(),
                      [&](size_t at) { return is_removed(site.call(at)); }) ||
          p.lift)
        continue;
      p.most_memory = 1;
      const int64_t peak = peak_of(before);
      if (site.offer(p)) {
        ASSERT_LE(peak_of(calls.graph()), peak) << seed;
      } else if (calls.reports.back().reason.find("more memory") != std::string::npos) {
        ++refused;
        p.most_memory.reset();
        ASSERT_TRUE(site.offer(p)) << seed;
        ASSERT_GT(peak_of(calls.graph()), peak) << seed;
      }
    }
  }
  EXPECT_GT(refused, 20u);
}

}  // namespace
}  // namespace aicf::testing
