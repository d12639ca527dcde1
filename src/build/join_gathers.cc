#include "build/join_gathers.h"

#include <algorithm>
#include <optional>

#include "build/call_windows.h"

namespace aicf {
namespace {

constexpr char kGatheredKernel[] = "tile_gathered";

class GatherJoiner {
 public:
  GatherJoiner(KernelCalls& calls, const Graph& graph, const std::vector<TileProgram>& programs)
      : calls_(calls.calls), output_roots_(calls.output_roots), graph_(graph), programs_(programs) {}

  void run() {
    for (size_t i = 0; i < calls_.size(); ++i) {
      const std::optional<size_t> region = is_gather(calls_[i]) ? region_of(i) : std::nullopt;
      if (!region) continue;
      calls_[*region] = joined(calls_[i], calls_[*region]);
      calls_.erase(calls_.begin() + static_cast<std::ptrdiff_t>(i));
      --i;
    }
  }

 private:
  // Of whole rows, for nobody but other calls.
  bool is_gather(const KernelCall& call) const {
    if (call.kernel != "gather" || call.params[0] != Dim(0) || call.inputs[0].sizes.size() < 2 ||
        call.inputs[1].sizes.empty() || call.outputs[0].dtype == DType::boolean)
      return false;
    const ValueId root = call.outputs[0].root;
    return (root >= graph_.value_count() || graph_.value(root).role == Role::kTemp) &&
           std::find(output_roots_.begin(), output_roots_.end(), root) == output_roots_.end();
  }

  // The region that alone reads the gathered rows, once and as its own, if the gather may run as late.
  std::optional<size_t> region_of(size_t gather) const {
    const KernelCall& from = calls_[gather];
    std::optional<size_t> region;
    for (size_t i = 0; i < calls_.size(); ++i) {
      if (i == gather ||
          !(meets(calls_[i].inputs, from.outputs[0].root) || meet(calls_[i].outputs, from.outputs)))
        continue;
      if (region || i < gather || !takes_rows(calls_[i], from)) return std::nullopt;
      region = i;
    }
    for (size_t i = gather + 1; region && i <= *region; ++i)
      if (meet(from.inputs, calls_[i].outputs)) return std::nullopt;
    return region;
  }

  bool takes_rows(const KernelCall& call, const KernelCall& gather) const {
    if (call.kernel != "tile" || call.region < 0 || !call.members.empty() ||
        call.schedule.inner_rank + 1 != static_cast<int>(gather.inputs[0].sizes.size()) ||
        std::count_if(
            call.inputs.begin(), call.inputs.end(),
            [&](const Window& w) { return w.root == gather.outputs[0].root; }) != 1 ||
        std::find(call.inputs.begin(), call.inputs.end(), gather.outputs[0]) == call.inputs.end())
      return false;
    const TileProgram& program = programs_[static_cast<size_t>(call.region)];
    return program.stages.size() > 1 && !sums_rows(program);
  }

  static KernelCall joined(const KernelCall& gather, const KernelCall& region) {
    KernelCall call = region;
    const auto at = std::find(call.inputs.begin(), call.inputs.end(), gather.outputs[0]);
    const auto number = static_cast<int32_t>(at - call.inputs.begin());
    call.kernel = kGatheredKernel;
    *at = gather.inputs[0];
    call.inputs.push_back(gather.inputs[1]);
    call.params.push_back(Dim(number));
    std::erase(call.elementwise, number);
    call.origin = gather.origin + " … " + region.origin;
    call.reason = "reads the rows of a table itself; " + region.reason;
    return call;
  }

  std::vector<KernelCall>& calls_;
  const std::vector<ValueId>& output_roots_;
  const Graph& graph_;
  const std::vector<TileProgram>& programs_;
};

}  // namespace

void join_gathers(KernelCalls& calls, const Graph& graph, const std::vector<TileProgram>& programs) {
  GatherJoiner(calls, graph, programs).run();
}

}  // namespace aicf
