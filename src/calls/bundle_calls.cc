// Which calls share a launch (horizontal fusion). Where several small calls take less time in one launch than
// in one each, a bundle takes their place. The rest keep their order, but for calls that share no memory with
// a bundle, which may pass it.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/format.h"
#include "calls/call_costs.h"
#include "calls/call_forms.h"
#include "calls/decision.h"
#include "calls/legality.h"
#include "calls/rule_site.h"

namespace aicf {
namespace {

constexpr double kLongestCall = 4;  // microseconds, of which a launch is still a good part
constexpr size_t kMaxMembers = 64;
constexpr size_t kMaxOpen = 3;                   // at a time
constexpr size_t kMaxArguments = 480;            // of 8 bytes; kernels take 4 KiB
constexpr int64_t kMaxStaticShared = 16 * 1024;  // bytes of all members together

// A call that could be a member.
struct Small {
  std::string function;
  int block = 0;  // threads
  size_t arguments = 0;
  int64_t static_shared = 0;
  MemberCost cost = {};

  double time() const { return std::max(cost.block_time, cost.bytes_time); }
};

// A bundle that grows: its calls, and what is known of each.
struct Open {
  std::vector<KernelCall> calls;
  std::vector<Small> smalls;

  // The first stage in which the call finds what it reads, and overwrites nothing that is still read; 0: it
  // shares nothing with the bundle that anybody writes.
  int first_stage(const KernelCall& call) const {
    int stage = 0;
    for (size_t i = 0; i < calls.size(); ++i)
      if (smalls[i].cost.stage >= stage && must_keep_order_by_byte(calls[i], call))
        stage = smalls[i].cost.stage + 1;
    return stage;
  }

  // Microseconds.
  double time(const Target& target) const {
    std::vector<MemberCost> costs;
    for (const Small& small : smalls) costs.push_back(small.cost);
    return bundle_cost(costs, target).time;
  }
};

KernelCall bundle_of(Open open) {
  KernelCall bundle;
  std::vector<BundleMember>& members = bundle.what.emplace<Bundle>().members;
  for (size_t i = 0; i < open.calls.size(); ++i)
    members.push_back({std::move(open.calls[i]), open.smalls[i].cost.stage});
  std::stable_sort(members.begin(), members.end(),
                   [](const BundleMember& a, const BundleMember& b) { return a.stage < b.stage; });
  for (const auto& [member, stage] : members) add_member(member, bundle);
  bundle.reason = members.back().stage == 0 ? "side by side in one launch"
                                            : "small calls, one after the other in one launch";
  return bundle;
}

class Bundler {
 public:
  explicit Bundler(const RuleSite& rule)
      : rule_(rule),
        calls_(rule.graph),
        context_(context_of(rule.graph, rule.target)),
        edge_(rule.target.facts().edge_microseconds) {}

  void run() {
    for (KernelCall& call : calls_.calls) add(std::move(call));
    while (!open_.empty()) close(0);
    calls_.calls = std::move(done_);
  }

 private:
  void add(KernelCall call) {
    std::vector<size_t> needed;
    for (size_t i = 0; i < open_.size(); ++i)
      if (open_[i].first_stage(call) > 0) needed.push_back(i);
    const std::optional<Small> small = small_call(call);
    if (small && needed.size() == 1 && join(needed[0], call, *small)) return;
    for (; !needed.empty(); needed.pop_back()) close(needed.back());
    for (size_t i = 0; small && i < open_.size(); ++i)
      if (join(i, call, *small)) return;
    if (!small) {
      done_.push_back(std::move(call));
      return;
    }
    if (open_.size() == kMaxOpen) close(0);
    open_.push_back({{std::move(call)}, {*small}});
  }

  // Takes the call into the bundle if that pays. Of those that share no memory with it, a refusal says
  // little.
  bool join(size_t index, KernelCall& call, Small small) {
    Open& open = open_[index];
    small.cost.stage = open.first_stage(call);
    if (const Decision decision = add_if_it_pays(open, small); !decision) {
      if (small.cost.stage > 0)
        rule_.report({&open.calls.front(), &call}, false, "not bundled: " + decision.why());
      return false;
    }
    open.calls.push_back(std::move(call));
    return true;
  }
  std::optional<Small> small_call(const KernelCall& call) const {
    const RowCall* row = row_call(call);
    if (row == nullptr) return std::nullopt;
    const CudaCode code = call_code(call, context_, CodeForm::member);
    if (!joins_bundle(code)) return std::nullopt;
    const CudaLaunch& launch = code.launches[0];
    const Small small{.function = launch.function,
                      .block = launch.block,
                      .arguments = call.inputs.size() + call.outputs.size() + launch.params.size() +
                                   launch.fparams.size() + 1,
                      .static_shared = code.static_shared_bytes,
                      .cost = member_cost(call, launch, context_)};
    const bool fits = small.cost.blocks <= INT32_MAX / static_cast<int64_t>(2 * kMaxMembers) &&
                      small.time() <= kLongestCall;
    return fits ? std::optional(small) : std::nullopt;
  }

  // Whether the open bundle with the call takes no more time than without it, and the call by itself.
  Decision add_if_it_pays(Open& open, const Small& small) const {
    size_t arguments = small.arguments;
    int64_t shared = small.static_shared;
    for (const Small& other : open.smalls) arguments += other.arguments, shared += other.static_shared;
    if (open.calls.size() == kMaxMembers || arguments > kMaxArguments || shared > kMaxStaticShared)
      return Decision::no("the bundle takes no more members");
    const double apart = open.time(context_.target) + edge_ + small.time();
    open.smalls.push_back(small);
    const double together = open.time(context_.target);
    Decision decision;
    if (!fits_side_by_side(open))
      decision = Decision::no("its blocks would take registers from too many others");
    else if (together > apart)
      decision = Decision::no("estimated " + format_fixed(together, 1) + " us together, " +
                              format_fixed(apart, 1) + " us apart");
    if (!decision) open.smalls.pop_back();
    return decision;
  }

  // Every block of a bundle takes the registers and threads of its most demanding member: beside many blocks
  // of one kind there may be few others, of no more threads.
  bool fits_side_by_side(const Open& open) const {
    const int64_t few = 2 * context_.target.facts().multiprocessors;
    int64_t all = 0, others = 0;
    for (const Small& small : open.smalls) {
      if (small.cost.stage > 0) return true;
      all += small.cost.blocks;
    }
    if (all <= few) return true;
    const Small& most =
        *std::max_element(open.smalls.begin(), open.smalls.end(),
                          [](const Small& a, const Small& b) { return a.cost.blocks < b.cost.blocks; });
    for (const Small& small : open.smalls) {
      if (small.block > most.block) return false;
      if (small.function != most.function || small.block != most.block) others += small.cost.blocks;
    }
    return others <= few;
  }

  void close(size_t index) {
    Open open = std::move(open_[index]);
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(index));
    if (open.calls.size() == 1) {
      done_.push_back(std::move(open.calls[0]));
      return;
    }
    done_.push_back(bundle_of(std::move(open)));
    std::vector<const KernelCall*> members;
    for (const StagedCall& member : members_of(done_.back())) members.push_back(member.call);
    rule_.report(members, true, done_.back().reason);
  }

  const RuleSite& rule_;
  CallGraph& calls_;
  CodeContext context_;
  double edge_;
  std::vector<Open> open_;  // none shares with another what anybody writes
  std::vector<KernelCall> done_;
};

}  // namespace

void bundle_calls(const RuleSite& site) { Bundler(site).run(); }

}  // namespace aicf
