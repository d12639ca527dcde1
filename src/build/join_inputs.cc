#include "build/join_inputs.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "build/bundle_code.h"
#include "build/region_product.h"
#include "select/cost_model.h"
#include "select/layout.h"

namespace aicf {
namespace {

constexpr double kMostBytes = 64 * 1024;  // that the region moves: every block reads them
constexpr int64_t kMostBlocks = 8;        // of the region, which each block runs one after the other

bool meets(const std::vector<Window>& windows, ValueId root) {
  return std::any_of(windows.begin(), windows.end(), [&](const Window& w) { return w.root == root; });
}
bool meet(const std::vector<Window>& a, const std::vector<Window>& b) {
  return std::any_of(a.begin(), a.end(), [&](const Window& w) { return meets(b, w.root); });
}

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
  InputJoiner(KernelCalls& calls, const Graph& graph, const CodeContext& context)
      : calls_(calls.calls), output_roots_(calls.output_roots), graph_(graph), context_(context) {}

  void run() {
    for (size_t i = 0; i < calls_.size(); ++i) {
      if (!takes_region(calls_[i], context_)) continue;
      const std::optional<size_t> region = find_region(i);
      if (!region || !fits(calls_[*region], calls_[i])) continue;
      calls_[i] = joined(calls_[*region], calls_[i]);
      calls_.erase(calls_.begin() + static_cast<std::ptrdiff_t>(*region));
      --i;
    }
  }

 private:
  // The region that makes the product's x for it alone, if it may run as late as the product does.
  std::optional<size_t> find_region(size_t product) const {
    const Window& x = calls_[product].inputs[0];
    for (size_t i = product; i-- > 0;) {
      const KernelCall& call = calls_[i];
      if (!meets(call.outputs, x.root)) continue;
      if (call.kernel != "tile" || call.region < 0 || call.outputs.size() != 1 ||
          !same_row(call.outputs[0], x) || is_needed(x.root, i, product) ||
          meet(call.inputs, calls_[product].outputs))
        return std::nullopt;
      for (size_t between = i + 1; between < product; ++between)
        if (meet(call.inputs, calls_[between].outputs)) return std::nullopt;
      return i;
    }
    return std::nullopt;
  }

  bool is_needed(ValueId root, size_t region, size_t product) const {
    if (root < graph_.value_count() && graph_.value(root).role != Role::kTemp) return true;
    if (std::find(output_roots_.begin(), output_roots_.end(), root) != output_roots_.end()) return true;
    const std::vector<Window>& own = calls_[product].inputs;
    if (std::count_if(own.begin(), own.end(), [&](const Window& w) { return w.root == root; }) != 1)
      return true;
    for (size_t i = 0; i < calls_.size(); ++i)
      if (i != region && i != product && (meets(calls_[i].inputs, root) || meets(calls_[i].outputs, root)))
        return true;
    return false;
  }

  bool fits(const KernelCall& region, const KernelCall& product) const {
    if (largest_work(region, region.kernel, context_.ranges).bytes > kMostBytes) return false;
    if (region.outputs[0].dtype != product.inputs[0].dtype) return false;
    const CudaCode code = call_code(region, context_, true);
    return joins_bundle(code) && code.launches[0].block <= kMadeThreads &&
           bounds(code.launches[0].grid[0], context_.ranges).hi <= kMostBlocks;
  }

  static KernelCall joined(const KernelCall& region, const KernelCall& product) {
    KernelCall call;
    call.kernel = kRegionProduct;
    call.variant = product.variant;
    call.inputs = product.inputs;
    for (const Window& w : region.inputs)
      if (std::find(call.inputs.begin(), call.inputs.end(), w) == call.inputs.end()) call.inputs.push_back(w);
    call.outputs = product.outputs;
    call.outputs.push_back(region.outputs[0]);
    call.origin = region.origin + " … " + product.origin;
    call.reason = "every block of the product makes its rows; " + product.reason;
    call.choice = product.choice;
    call.members = {region, product};
    call.members[1].stage = 1;
    return call;
  }

  std::vector<KernelCall>& calls_;
  const std::vector<ValueId>& output_roots_;
  const Graph& graph_;
  const CodeContext& context_;
};

}  // namespace

void join_inputs(KernelCalls& calls, const Graph& graph, const std::vector<TileProgram>& programs,
                 const Target& target, const SymbolRanges& ranges) {
  if (target.arch < 90) return;
  const CodeContext context{programs, calls.constant, target, ranges};
  InputJoiner(calls, graph, context).run();
}

}  // namespace aicf
