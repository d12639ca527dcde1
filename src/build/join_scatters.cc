#include "build/join_scatters.h"

#include <algorithm>
#include <optional>

#include "build/call_windows.h"
#include "select/layout.h"

namespace aicf {
namespace {

constexpr char kScatteredKernel[] = "tile_scattered";
constexpr int64_t kAdd = 1;  // of scatter.cuh's reductions

class ScatterJoiner {
 public:
  ScatterJoiner(KernelCalls& calls, const Graph& graph, const std::vector<TileProgram>& programs)
      : calls_(calls.calls), output_roots_(calls.output_roots), graph_(graph), programs_(programs) {}

  void run() {
    for (size_t i = 0; i < calls_.size(); ++i) {
      const std::optional<size_t> region = is_scatter(calls_[i]) ? region_of(i) : std::nullopt;
      if (!region) continue;
      calls_[*region] = joined(calls_[i], calls_[*region]);
      calls_.erase(calls_.begin() + static_cast<std::ptrdiff_t>(i));
      --i;
    }
  }

 private:
  // Of floats, whole rows to zeros, for nobody but other calls. Rows and their elements must be axes of the
  // region: neither is one alone.
  bool is_scatter(const KernelCall& call) const {
    if (call.kernel != "scatter_nd" || call.params[0] != Dim(kAdd)) return false;
    const Window &zeros = call.inputs[0], &indices = call.inputs[1], &updates = call.inputs[2],
                 &sums = call.outputs[0];
    return is_float(sums.dtype) && indices.sizes.back() == Dim(1) && sums.sizes.size() >= 2 &&
           sums.sizes[0] != Dim(1) && element_count(sums.sizes) != sums.sizes[0] && is_row_major(sums) &&
           is_row_major(updates) && is_zero(zeros.root) && !is_kept(sums.root);
  }
  bool is_zero(ValueId root) const {
    if (root >= graph_.value_count() || graph_.value(root).role != Role::kConstant) return false;
    const Array& constant = graph_.value(root).constant;
    for (int64_t i = 0; i < constant.count(); ++i)
      if (constant.get_f64(i) != 0) return false;
    return true;
  }
  bool is_kept(ValueId root) const {
    return (root < graph_.value_count() && graph_.value(root).role != Role::kTemp) ||
           std::find(output_roots_.begin(), output_roots_.end(), root) != output_roots_.end();
  }

  // The region that alone reads the sums, once, if they may be added up as late.
  std::optional<size_t> region_of(size_t scatter) const {
    const KernelCall& from = calls_[scatter];
    std::optional<size_t> region;
    for (size_t i = 0; i < calls_.size(); ++i) {
      if (i == scatter ||
          !(meets(calls_[i].inputs, from.outputs[0].root) || meet(calls_[i].outputs, from.outputs)))
        continue;
      if (region || i < scatter || !takes_sums(calls_[i], from)) return std::nullopt;
      region = i;
    }
    for (size_t i = scatter + 1; region && i <= *region; ++i)
      if (meet(from.inputs, calls_[i].outputs)) return std::nullopt;
    return region;
  }

  bool takes_sums(const KernelCall& call, const KernelCall& scatter) const {
    const Window& sums = scatter.outputs[0];
    if (call.kernel != "tile" || call.region < 0 || !call.members.empty() ||
        std::count_if(
            call.inputs.begin(), call.inputs.end(), [&](const Window& w) { return w.root == sums.root; }) !=
            1 ||
        std::find(call.inputs.begin(), call.inputs.end(), sums) == call.inputs.end() ||
        std::any_of(
            call.outputs.begin(), call.outputs.end(), [&](const Window& w) { return w.sizes != sums.sizes; }))
      return false;
    const TileProgram& program = programs_[static_cast<size_t>(call.region)];
    return program.stages.size() == 1 &&
           std::none_of(program.stages[0].begin(), program.stages[0].end(), [](const TileInstr& instr) {
             return instr.op == TileOp::inner_index || instr.op == TileOp::store_scalar;
           });
  }

  static KernelCall joined(const KernelCall& scatter, const KernelCall& region) {
    KernelCall call = region;
    const auto at = std::find(call.inputs.begin(), call.inputs.end(), scatter.outputs[0]);
    const auto number = static_cast<int32_t>(at - call.inputs.begin());
    call.kernel = kScatteredKernel;
    *at = scatter.inputs[2];
    call.inputs.push_back(scatter.inputs[1]);
    call.params.push_back(Dim(number));
    std::erase(call.elementwise, number);
    call.origin = scatter.origin + " … " + region.origin;
    call.reason = "adds up scattered rows itself; " + region.reason;
    return call;
  }

  std::vector<KernelCall>& calls_;
  const std::vector<ValueId>& output_roots_;
  const Graph& graph_;
  const std::vector<TileProgram>& programs_;
};

}  // namespace

void join_scatters(KernelCalls& calls, const Graph& graph, const std::vector<TileProgram>& programs) {
  ScatterJoiner(calls, graph, programs).run();
}

}  // namespace aicf
