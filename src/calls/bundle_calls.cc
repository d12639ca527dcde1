// Which calls share a launch (horizontal fusion). Where several small calls take less time in one launch than
// in one each, a bundle takes their place. The rest keep their order, but for calls that share no memory with
// a bundle, which may pass it.
#include "calls/bundle_calls.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/format.h"
#include "calls/call_forms.h"
#include "calls/decision.h"
#include "calls/legality.h"
#include "calls/rule_site.h"
#include "select/cost_model.h"

namespace aicf {
namespace {

// Measured on H100, microseconds: a block from its first instruction to its last if it has little to do, a
// barrier between two stages beyond that, and the longest call of which a launch is still a good part.
constexpr double kBlockTime = 0.8, kBarrierTime = 0.3, kLongestCall = 4;
// What one block moves and computes, per microsecond.
constexpr double kBlockBytes = 20e3, kBlockFlops = 1.5e5;
constexpr size_t kMaxMembers = 64;
constexpr size_t kMaxOpen = 3;                   // at a time
constexpr size_t kMaxArguments = 480;            // of 8 bytes; kernels take 4 KiB
constexpr int64_t kMaxStaticShared = 16 * 1024;  // bytes of all members together
constexpr int kMaxBlock = 512;                   // threads: more would leave other members too few registers
constexpr int64_t kMaxShared = 32 * 1024;        // bytes, dynamic; beside them those of the members' own
constexpr int kMaxCluster = 8;                   // blocks that every device with clusters takes

// A call that could be a member.
struct Small {
  std::string function;
  int64_t blocks = 0;  // at most
  int block = 0;       // threads
  size_t arguments = 0;
  int64_t static_shared = 0;
  double block_time = 0, bytes_time = 0;

  double time() const { return std::max(block_time, bytes_time); }
};

// A bundle that grows.
struct Open {
  std::vector<BundleMember> members;
  std::vector<Small> smalls;

  void add(KernelCall call, const Small& small, int stage) {
    members.push_back({std::move(call), stage});
    smalls.push_back(small);
  }

  // The first stage in which the call finds what it reads, and overwrites nothing that is still read; 0: it
  // shares nothing with the bundle that anybody writes.
  int first_stage(const KernelCall& call) const {
    int stage = 0;
    for (const BundleMember& member : members)
      if (member.stage >= stage && must_keep_order_by_byte(member.call, call)) stage = member.stage + 1;
    return stage;
  }

  int last_stage() const {
    int stage = 0;
    for (const BundleMember& member : members) stage = std::max(stage, member.stage);
    return stage;
  }

  int64_t blocks_of(int stage) const {
    int64_t blocks = 0;
    for (size_t i = 0; i < members.size(); ++i)
      if (members[i].stage == stage) blocks += smalls[i].blocks;
    return blocks;
  }
};

KernelCall bundle_of(Open open) {
  KernelCall bundle;
  std::vector<BundleMember>& members = bundle.what.emplace<Bundle>().members;
  members = std::move(open.members);
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
    open_.emplace_back().add(std::move(call), *small, 0);
  }

  // Takes the call into the bundle if that pays. Of those that share no memory with it, a refusal says
  // little.
  bool join(size_t index, KernelCall& call, const Small& small) {
    Open& open = open_[index];
    const int stage = open.first_stage(call);
    const Decision decision = pays(open, call, small, stage);
    if (!decision && stage > 0)
      report({&open.members.front().call, &call}, false, "not bundled: " + decision.why());
    if (decision) open.add(std::move(call), small, stage);
    return static_cast<bool>(decision);
  }
  void report(const std::vector<const KernelCall*>& calls, bool taken, const std::string& reason) const {
    if (!rule_.reports()) return;
    std::vector<std::string> origins;
    for (const KernelCall* call : calls) origins.push_back(origin_text(*call));
    rule_.report(std::move(origins), taken, reason);
  }

  std::optional<Small> small_call(const KernelCall& call) const {
    const RowCall* row = row_call(call);
    if (row == nullptr) return std::nullopt;
    const CudaCode code = call_code(call, context_, CodeForm::member);
    if (!joins_bundle(code)) return std::nullopt;
    const CudaLaunch& launch = code.launches[0];
    Small small;
    small.function = launch.function;
    small.blocks = bounds(launch.grid[0], context_.ranges).hi;
    small.block = launch.block;
    small.arguments =
        call.inputs.size() + call.outputs.size() + launch.params.size() + launch.fparams.size() + 1;
    small.static_shared = code.static_shared_bytes;
    const Work work = largest_work(call, row->row, context_.ranges);
    const auto blocks = static_cast<double>(std::max<int64_t>(small.blocks, 1));
    double block_bytes = work.bytes / blocks;
    if (facts_of(row->row).work == WorkForm::kScatter) block_bytes += index_bytes(call);
    small.block_time = kBlockTime + std::max(block_bytes / kBlockBytes, work.flops / blocks / kBlockFlops);
    small.bytes_time = work.bytes / context_.target.facts().bytes_per_microsecond;
    const bool fits =
        small.blocks <= INT32_MAX / static_cast<int64_t>(2 * kMaxMembers) && small.time() <= kLongestCall;
    return fits ? std::optional(small) : std::nullopt;
  }

  // At most; every block of a scatter reads all indices.
  double index_bytes(const KernelCall& scatter) const {
    const Window& indices = scatter.inputs[1];
    const auto count = bounds(element_count(indices.sizes), context_.ranges).hi;
    return static_cast<double>(count) * dtype_bytes(indices.dtype);
  }

  // Whether the open bundle with the call takes no more time than without it, and the call by itself.
  Decision pays(Open& open, const KernelCall& call, const Small& small, int stage) const {
    size_t arguments = small.arguments;
    int64_t shared = small.static_shared;
    for (const Small& other : open.smalls) arguments += other.arguments, shared += other.static_shared;
    if (open.members.size() == kMaxMembers || arguments > kMaxArguments || shared > kMaxStaticShared)
      return Decision::no("the bundle takes no more members");
    const double before = time(open) + edge_ + small.time();
    open.add(call, small, stage);
    const bool fits = fits_side_by_side(open);
    const double together = time(open);
    open.smalls.pop_back();
    open.members.pop_back();
    if (!fits) return Decision::no("its blocks would take registers from too many others");
    if (together <= before) return {};
    return Decision::no("estimated " + format_fixed(together, 1) + " us together, " +
                        format_fixed(before, 1) + " us apart");
  }

  // Every block of a bundle takes the registers and threads of its most demanding member: beside many blocks
  // of one kind there may be few others, of no more threads.
  bool fits_side_by_side(const Open& open) const {
    const int64_t few = 2 * context_.target.facts().multiprocessors;
    if (open.last_stage() > 0 || open.blocks_of(0) <= few) return true;
    const Small& most = *std::max_element(open.smalls.begin(), open.smalls.end(),
                                          [](const Small& a, const Small& b) { return a.blocks < b.blocks; });
    int64_t others = 0;
    for (const Small& small : open.smalls) {
      if (small.block > most.block) return false;
      if (small.function != most.function || small.block != most.block) others += small.blocks;
    }
    return others <= few;
  }

  // Microseconds.
  double time(const Open& open) const {
    const int stages = open.last_stage() + 1;
    double block_time = 0, bytes_time = 0;
    for (const Small& small : open.smalls) {
      block_time = std::max(block_time, small.block_time);
      bytes_time += small.bytes_time;
    }
    if (stages == 1) return edge_ + std::max(block_time, bytes_time);
    int64_t widest = 1;
    for (int stage = 0; stage < stages; ++stage) widest = std::max(widest, open.blocks_of(stage));
    const int cluster = bundle_blocks(widest, context_.target);
    double total = edge_ + kBarrierTime * (stages - 1);
    for (int stage = 0; stage < stages; ++stage) {
      double slowest = 0;
      for (size_t i = 0; i < open.members.size(); ++i)
        if (open.members[i].stage == stage) slowest = std::max(slowest, open.smalls[i].block_time);
      total += slowest * static_cast<double>((open.blocks_of(stage) + cluster - 1) / cluster);
    }
    return total;
  }

  void close(size_t index) {
    Open open = std::move(open_[index]);
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(index));
    if (open.members.size() == 1) {
      done_.push_back(std::move(open.members[0].call));
      return;
    }
    done_.push_back(bundle_of(std::move(open)));
    std::vector<const KernelCall*> members;
    for (const StagedCall& member : members_of(done_.back())) members.push_back(member.call);
    report(members, true, done_.back().reason);
  }

  const RuleSite& rule_;
  CallGraph& calls_;
  CodeContext context_;
  double edge_;
  std::vector<Open> open_;  // none shares with another what anybody writes
  std::vector<KernelCall> done_;
};

}  // namespace

int bundle_blocks(int64_t widest_stage, const Target& target) {
  int blocks = 1;
  while (target.arch >= 90 && blocks < kMaxCluster && blocks < widest_stage) blocks *= 2;
  return blocks;
}

bool joins_bundle(const CudaCode& code) {
  if (!code.member || code.launches.size() != 1 || !(code.workspace_bytes == Dim(0))) return false;
  const CudaLaunch& launch = code.launches[0];
  return launch.cluster == 1 && launch.block <= kMaxBlock && launch.shared_bytes <= kMaxShared &&
         launch.tensor_maps.empty() && launch.grid[1] == Dim(1) && launch.grid[2] == Dim(1);
}

void bundle_calls(const RuleSite& site) { Bundler(site).run(); }

}  // namespace aicf
