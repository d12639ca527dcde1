#include "build/bundle_calls.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "build/bundle_code.h"
#include "select/cost_model.h"

namespace aicf {
namespace {

// Measured on H100, microseconds: a block from its first instruction to its last if it has little to do, two
// meetings' distance beyond that, and the longest call of which a launch is still a good part.
constexpr double kBlockTime = 0.8, kMeetingTime = 0.3, kLongestCall = 4;
// What one block moves and computes, per microsecond.
constexpr double kBlockBytes = 20e3, kBlockFlops = 1.5e5;
constexpr size_t kMaxMembers = 64;
constexpr size_t kMaxArguments = 480;            // of 8 bytes; kernels take 4 KiB
constexpr int64_t kMaxStaticShared = 16 * 1024;  // bytes of all members together

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

// First and last byte that a window touches; nullopt if sizes decide.
std::optional<std::pair<int64_t, int64_t>> bytes_of(const Window& window) {
  int64_t first = 0, last = 0;
  for (size_t i = 0; i < window.sizes.size(); ++i) {
    const auto size = window.sizes[i].constant(), stride = window.strides[i].constant();
    if (!size || !stride) return std::nullopt;
    const int64_t span = (std::max<int64_t>(*size, 1) - 1) * *stride;
    (span < 0 ? first : last) += span;
  }
  const auto offset = window.offset.constant();
  const int64_t bytes = dtype_bytes(window.dtype);
  if (!offset) return std::nullopt;
  return std::pair((*offset + first) * bytes, (*offset + last + 1) * bytes - 1);
}

bool are_apart(const Window& a, const Window& b) {
  if (a.root != b.root) return true;
  const auto x = bytes_of(a), y = bytes_of(b);
  return x && y && (x->second < y->first || y->second < x->first);
}

// What a member of the open bundle does with a window.
struct Use {
  Window window;
  int stage;
  bool written;
};

// The bundle that grows at the end of the list.
struct Open {
  std::vector<KernelCall> calls;  // with their stages
  std::vector<Small> smalls;
  std::vector<Use> uses;
};

class Bundler {
 public:
  Bundler(KernelCalls& calls, const CodeContext& context)
      : calls_(calls), context_(context), edge_(context.target.facts().edge_microseconds) {}

  void run() {
    for (KernelCall& call : calls_.calls) add(std::move(call));
    close();
    calls_.calls = std::move(done_);
  }

 private:
  void add(KernelCall call) {
    const std::optional<Small> small = small_call(call);
    if (!small) {
      if (first_stage(call) > 0) close();
      done_.push_back(std::move(call));
      return;
    }
    call.stage = first_stage(call);
    if (!open_.calls.empty() && !pays(call, *small)) {
      close();
      call.stage = 0;
    }
    for (const Window& w : call.inputs) open_.uses.push_back({w, call.stage, false});
    for (const Window& w : call.outputs) open_.uses.push_back({w, call.stage, true});
    open_.calls.push_back(std::move(call));
    open_.smalls.push_back(*small);
  }

  // The first stage in which the call finds what it reads, and overwrites nothing that is still read; 0: it
  // shares nothing with the open bundle that anybody writes.
  int first_stage(const KernelCall& call) const {
    int stage = 0;
    for (const Use& use : open_.uses) {
      const auto meets = [&](const Window& w) { return !are_apart(use.window, w); };
      if (std::any_of(call.outputs.begin(), call.outputs.end(), meets) ||
          (use.written && std::any_of(call.inputs.begin(), call.inputs.end(), meets)))
        stage = std::max(stage, use.stage + 1);
    }
    return stage;
  }

  std::optional<Small> small_call(const KernelCall& call) const {
    if (call.custom != nullptr || !call.library.call.empty() || !call.members.empty()) return std::nullopt;
    const CudaCode code = call_code(call, context_, true);
    if (!joins_bundle(code)) return std::nullopt;
    const CudaLaunch& launch = code.launches[0];
    Small small;
    small.function = launch.function;
    small.blocks = bounds(launch.grid[0], context_.ranges).hi;
    small.block = launch.block;
    small.arguments =
        call.inputs.size() + call.outputs.size() + launch.params.size() + launch.fparams.size() + 1;
    small.static_shared = code.static_shared_bytes;
    const Work work = largest_work(call, call.kernel, context_.ranges);
    const auto blocks = static_cast<double>(std::max<int64_t>(small.blocks, 1));
    small.block_time =
        kBlockTime + std::max(work.bytes / blocks / kBlockBytes, work.flops / blocks / kBlockFlops);
    small.bytes_time = work.bytes / context_.target.facts().bytes_per_microsecond;
    const bool fits =
        small.blocks <= INT32_MAX / static_cast<int64_t>(2 * kMaxMembers) && small.time() <= kLongestCall;
    return fits ? std::optional(small) : std::nullopt;
  }

  // Whether the open bundle with the call takes less time than without it, and the call by itself.
  bool pays(const KernelCall& call, const Small& small) {
    size_t arguments = small.arguments;
    int64_t shared = small.static_shared;
    for (const Small& other : open_.smalls) arguments += other.arguments, shared += other.static_shared;
    if (open_.calls.size() == kMaxMembers || arguments > kMaxArguments || shared > kMaxStaticShared)
      return false;
    const double before = time() + edge_ + small.time();
    open_.smalls.push_back(small);
    open_.calls.push_back(call);
    const bool pays = fits_side_by_side() && time() <= before;
    open_.smalls.pop_back();
    open_.calls.pop_back();
    return pays;
  }

  int last_stage() const {
    int stage = 0;
    for (const KernelCall& call : open_.calls) stage = std::max(stage, call.stage);
    return stage;
  }

  int64_t blocks_of(int stage) const {
    int64_t blocks = 0;
    for (size_t i = 0; i < open_.calls.size(); ++i)
      if (open_.calls[i].stage == stage) blocks += open_.smalls[i].blocks;
    return blocks;
  }

  // Every block of a bundle takes the registers and threads of its most demanding member: different ones
  // share the machine only where all blocks fit it anyway.
  bool fits_side_by_side() const {
    const bool alike = std::all_of(open_.smalls.begin(), open_.smalls.end(), [&](const Small& small) {
      return small.function == open_.smalls[0].function && small.block == open_.smalls[0].block;
    });
    return alike || last_stage() > 0 || blocks_of(0) <= 2 * context_.target.facts().multiprocessors;
  }

  // Of the open bundle, microseconds.
  double time() const {
    const int stages = last_stage() + 1;
    double block_time = 0, bytes_time = 0;
    for (const Small& small : open_.smalls) {
      block_time = std::max(block_time, small.block_time);
      bytes_time += small.bytes_time;
    }
    if (stages == 1) return edge_ + std::max(block_time, bytes_time);
    int64_t widest = 1;
    for (int stage = 0; stage < stages; ++stage) widest = std::max(widest, blocks_of(stage));
    const int cluster = bundle_blocks(widest, context_.target);
    double total = edge_ + kMeetingTime * (stages - 1);
    for (int stage = 0; stage < stages; ++stage) {
      double slowest = 0;
      for (size_t i = 0; i < open_.calls.size(); ++i)
        if (open_.calls[i].stage == stage) slowest = std::max(slowest, open_.smalls[i].block_time);
      total += slowest * static_cast<double>((blocks_of(stage) + cluster - 1) / cluster);
    }
    return total;
  }

  void close() {
    if (open_.calls.size() == 1) done_.push_back(std::move(open_.calls[0]));
    if (open_.calls.size() > 1) done_.push_back(bundle());
    open_ = {};
  }

  KernelCall bundle() {
    KernelCall bundle;
    bundle.kernel = kBundleKernel;
    bundle.members = std::move(open_.calls);
    std::stable_sort(bundle.members.begin(), bundle.members.end(),
                     [](const KernelCall& a, const KernelCall& b) { return a.stage < b.stage; });
    const auto add_once = [](const std::vector<Window>& own, std::vector<Window>& all) {
      for (const Window& w : own)
        if (std::find(all.begin(), all.end(), w) == all.end()) all.push_back(w);
    };
    for (const KernelCall& member : bundle.members) {
      add_once(member.inputs, bundle.inputs);
      add_once(member.outputs, bundle.outputs);
    }
    const int stages = bundle.members.back().stage + 1;
    bundle.variant = std::to_string(bundle.members.size()) + " calls in " + std::to_string(stages) +
                     (stages == 1 ? " stage" : " stages");
    bundle.origin = bundle.members.front().origin + " … " + bundle.members.back().origin;
    bundle.reason =
        stages == 1 ? "side by side in one launch" : "small calls, one after the other in one launch";
    return bundle;
  }

  KernelCalls& calls_;
  CodeContext context_;
  double edge_;
  Open open_;
  std::vector<KernelCall> done_;
};

}  // namespace

void bundle_calls(KernelCalls& calls, const std::vector<TileProgram>& programs, const Target& target,
                  const SymbolRanges& ranges) {
  Bundler(calls, {programs, calls.constant, target, ranges}).run();
}

}  // namespace aicf
