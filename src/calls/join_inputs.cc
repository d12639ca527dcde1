#include "calls/join_inputs.h"

#include <algorithm>
#include <optional>

#include "calls/bundle_calls.h"
#include "calls/call_windows.h"
#include "calls/legality.h"
#include "calls/row_names.h"
#include "kernels/made_input.h"
#include "select/cost_model.h"
#include "select/layout.h"

namespace aicf {
namespace {

constexpr double kMostBytes = 64 * 1024;  // that the region moves: every block reads them
constexpr int64_t kMostBlocks = 8;        // of the region, which each block runs one after the other

// The same elements in the same order, in neighbouring places.
bool same_row(const Window& a, const Window& b) {
  const auto count = [](const Window& w) {
    Dim count(1);
    for (const Dim& size : w.sizes) count = count * size;
    return count;
  };
  return a.root == b.root && a.offset == b.offset && is_row_major(a) && is_row_major(b) &&
         count(a) == count(b) && a.sizes.back() == b.sizes.back();
}

class InputJoiner {
 public:
  InputJoiner(CallGraph& calls, const CodeContext& context)
      : calls_(calls.calls), context_(context), legality_(calls) {}

  void run() {
    for (size_t i = 0; i < calls_.size(); ++i) {
      if (!may_take(calls_[i])) continue;
      const std::optional<size_t> maker = find_maker(i);
      if (!maker) continue;
      legality_.replace(i, joined(calls_[*maker], calls_[i]));
      legality_.remove(*maker);
    }
    legality_.finish();
  }

 private:
  static bool may_take(const KernelCall& call) {
    return !call.inputs.empty() && (is_row(call, kTensorCoreProduct) || is_row(call, kAttention));
  }

  // The call that makes the first input for the taker alone, if it may run as late and inside it.
  std::optional<size_t> find_maker(size_t taker) const {
    const KernelCall& later = calls_[taker];
    const ValueId root = later.inputs[0].root;
    const std::optional<size_t> maker = legality_.sole_writer(root, taker);
    if (!maker || legality_.others_need(root, {*maker, taker}) || !legality_.may_move(*maker, taker - 1))
      return std::nullopt;
    const KernelCall& call = calls_[*maker];
    const bool reads_once = std::count_if(later.inputs.begin(), later.inputs.end(),
                                          [&](const Window& w) { return w.root == root; }) == 1;
    const bool takes = reads_once && same_row(call.outputs[0], later.inputs[0]) &&
                       !meet(call.inputs, later.outputs) &&
                       (takes_region(call, later) || takes_append(call, later));
    return takes ? maker : std::nullopt;
  }

  bool takes_region(const KernelCall& region, const KernelCall& product) const {
    if (!is_region(region) || !is_row(product, kTensorCoreProduct) ||
        !has_program(product, ProgramRole::kEpilogue) || region.outputs.size() != 1 ||
        largest_work(region, kRegionRow, context_.ranges).bytes > kMostBytes ||
        region.outputs[0].dtype != product.inputs[0].dtype ||
        !takes_made_input(call_problem(product, context_)))
      return false;
    const CudaCode code = call_code(region, context_, true);
    return joins_bundle(code) && code.launches[0].block <= kMadeThreads &&
           bounds(code.launches[0].grid[0], context_.ranges).hi <= kMostBlocks;
  }

  // The row that is appended lies in the memory that attention reads.
  bool takes_append(const KernelCall& append, const KernelCall& attention) const {
    return is_row(append, kRopeAppend) && is_row(attention, kAttention) &&
           append.outputs[0] == attention.inputs[0] && append.outputs[1] == attention.inputs[1] &&
           append.outputs[2] == attention.inputs[2] &&
           takes_rope(call_problem(attention, context_), call_problem(append, context_));
  }

  static KernelCall joined(const KernelCall& maker, const KernelCall& taker) {
    KernelCall call;
    call.inputs = taker.inputs;
    for (const Window& w : maker.inputs)
      if (std::find(call.inputs.begin(), call.inputs.end(), w) == call.inputs.end()) call.inputs.push_back(w);
    call.outputs = taker.outputs;
    call.outputs.insert(call.outputs.end(), maker.outputs.begin(), maker.outputs.end());
    call.origins = united_origins(maker, taker);
    call.reason = "makes its first input itself; " + taker.reason;
    call.choice = taker.choice;
    call.what = JoinedInput{maker, taker};
    return call;
  }

  const std::vector<KernelCall>& calls_;
  const CodeContext& context_;
  Legality legality_;
};

}  // namespace

void join_inputs(CallGraph& calls, const Target& target, const SelectOptions& /*options*/) {
  if (target.arch < 90) return;
  const CodeContext context = context_of(calls, target);
  InputJoiner(calls, context).run();
}

}  // namespace aicf
