// Which calls share a launch (horizontal fusion). Where several small calls take less time in one launch than
// in one each, a bundle takes their place. The rest keep their order, but for calls that share no memory with
// a bundle, which may pass it.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
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
  size_t at;  // its place
  std::string function, source;
  int block = 0;  // threads
  size_t arguments = 0;
  int64_t static_shared = 0;
  size_t launches = 1;  // a bundle has as many; of several, each runs those of all members side by side
  MemberCost cost = {};

  double time() const { return std::max(cost.block_time, cost.bytes_time); }
};

// A bundle that grows.
struct Open {
  std::vector<Small> members;

  // The first stage in which a call that needs these finds what it reads, and overwrites nothing that is
  // still read; 0: it shares nothing with the bundle that anybody writes.
  int first_stage(const std::vector<size_t>& needed) const {
    int stage = 0;
    for (const Small& small : members)
      if (std::binary_search(needed.begin(), needed.end(), small.at))
        stage = std::max(stage, small.cost.stage + 1);
    return stage;
  }

  // Bytes with one more member: those of one text have theirs together.
  int64_t static_shared(const Small& more) const {
    std::map<std::string_view, int64_t> by_text = {{more.source, more.static_shared}};
    for (const Small& small : members) by_text.emplace(small.source, small.static_shared);
    int64_t bytes = 0;
    for (const auto& [text, own] : by_text) bytes += own;
    return bytes;
  }

  // Microseconds.
  double time(const Target& target) const {
    std::vector<MemberCost> costs;
    for (const Small& small : members) costs.push_back(small.cost);
    return bundle_cost(costs, target).time;
  }
};

class Bundler {
 public:
  explicit Bundler(const RuleSite& rule)
      : rule_(rule),
        calls_(rule.graph.calls),
        context_(context_of(rule.graph, rule.target)),
        edge_(rule.target.facts().edge_microseconds),
        needed_(Legality(rule.graph).needed_by_byte()) {}

  void run() {
    for (size_t at = 0; at < calls_.size(); ++at) add(at);
    while (!open_.empty()) close(0);
    calls_ = std::move(done_);
  }

 private:
  void add(size_t at) {
    std::vector<size_t> before;  // bundles that it needs
    for (size_t i = 0; i < open_.size(); ++i)
      if (open_[i].first_stage(needed_[at]) > 0) before.push_back(i);
    const std::optional<Small> small = small_call(at);
    if (small && before.size() == 1 && join(before[0], *small)) return;
    for (; !before.empty(); before.pop_back()) close(before.back());
    for (size_t i = 0; small && i < open_.size(); ++i)
      if (join(i, *small)) return;
    if (!small) {
      done_.push_back(std::move(calls_[at]));
      return;
    }
    if (open_.size() == kMaxOpen) close(0);
    open_.push_back({{*small}});
  }

  // Takes the call into the bundle if that pays. Of those that share no memory with it, a refusal says
  // little.
  bool join(size_t index, Small small) {
    Open& open = open_[index];
    small.cost.stage = open.first_stage(needed_[small.at]);
    const Decision decision = add_if_it_pays(open, small);
    if (!decision && small.cost.stage > 0)
      rule_.report({&calls_[open.members[0].at], &calls_[small.at]}, false, "not bundled: " + decision.why());
    return static_cast<bool>(decision);
  }

  std::optional<Small> small_call(size_t at) const {
    const KernelCall& call = calls_[at];
    const RowCall* row = row_call(call);
    if (row == nullptr) return std::nullopt;
    const CudaCode code = call_code(call, context_, CodeForm::member);
    if (!joins_bundle(code) || (code.launches.size() > 1 && !is_region(call))) return std::nullopt;
    const CudaLaunch& launch = code.launches[0];  // of several, the one that reads what the call reads
    const Small small{.at = at,
                      .function = launch.function,
                      .source = code.source,
                      .block = launch.block,
                      .arguments = call.inputs.size() + call.outputs.size() + launch.params.size() +
                                   launch.fparams.size() + 1,
                      .static_shared = code.static_shared_bytes,
                      .launches = code.launches.size(),
                      .cost = member_cost(call, launch, context_)};
    const bool fits = small.cost.blocks <= INT32_MAX / static_cast<int64_t>(2 * kMaxMembers) &&
                      small.time() <= kLongestCall;
    return fits ? std::optional(small) : std::nullopt;
  }

  // Whether the open bundle with the call takes no more time than without it, and the call by itself.
  Decision add_if_it_pays(Open& open, const Small& small) const {
    size_t arguments = small.arguments;
    for (const Small& other : open.members) arguments += other.arguments;
    if (open.members.size() == kMaxMembers || arguments > kMaxArguments ||
        open.static_shared(small) > kMaxStaticShared)
      return Decision::no("the bundle takes no more members");
    if (small.launches != open.members[0].launches || (small.launches > 1 && small.cost.stage > 0))
      return Decision::no("its launches are not those of the bundle");
    const double apart = open.time(context_.target) + edge_ + small.time();
    open.members.push_back(small);
    const double together = open.time(context_.target);
    Decision decision;
    if (!fits_side_by_side(open))
      decision = Decision::no("its blocks would take registers from too many others");
    else if (together > apart)
      decision = Decision::no("estimated " + format_fixed(together, 1) + " us together, " +
                              format_fixed(apart, 1) + " us apart");
    if (!decision) open.members.pop_back();
    return decision;
  }

  // Every block of a bundle takes the registers and threads of its most demanding member: beside many blocks
  // of one kind there may be few others, of no more threads.
  bool fits_side_by_side(const Open& open) const {
    const int64_t few = 2 * context_.target.facts().multiprocessors;
    int64_t all = 0, others = 0;
    for (const Small& small : open.members) {
      if (small.cost.stage > 0) return true;
      all += small.cost.blocks;
    }
    if (all <= few) return true;
    const Small& most =
        *std::max_element(open.members.begin(), open.members.end(),
                          [](const Small& a, const Small& b) { return a.cost.blocks < b.cost.blocks; });
    for (const Small& small : open.members) {
      if (small.block > most.block) return false;
      if (small.function != most.function || small.block != most.block) others += small.cost.blocks;
    }
    return others <= few;
  }

  void close(size_t index) {
    Open open = std::move(open_[index]);
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(index));
    if (open.members.size() == 1) {
      done_.push_back(std::move(calls_[open.members[0].at]));
      return;
    }
    done_.push_back(bundle_of(std::move(open)));
    std::vector<const KernelCall*> members;
    for (const StagedCall& member : members_of(done_.back())) members.push_back(member.call);
    rule_.report(members, true, done_.back().reason);
  }

  KernelCall bundle_of(Open open) {
    std::stable_sort(open.members.begin(), open.members.end(),
                     [](const Small& a, const Small& b) { return a.cost.stage < b.cost.stage; });
    KernelCall bundle;
    std::vector<BundleMember>& members = bundle.what.emplace<Bundle>().members;
    for (const Small& small : open.members) {
      members.push_back({std::move(calls_[small.at]), small.cost.stage});
      add_member(members.back().call, bundle);
    }
    bundle.reason = members.back().stage == 0 ? "side by side in one launch"
                                              : "small calls, one after the other in one launch";
    return bundle;
  }

  const RuleSite& rule_;
  std::vector<KernelCall>& calls_;
  CodeContext context_;
  double edge_;
  std::vector<std::vector<size_t>> needed_;  // by call: those before it that it has to stay behind
  std::vector<Open> open_;                   // none shares with another what anybody writes
  std::vector<KernelCall> done_;
};

}  // namespace

void bundle_calls(const RuleSite& site) { Bundler(site).run(); }

}  // namespace aicf
