#include "calls/join_into_region.h"

#include <algorithm>
#include <optional>

#include "calls/call_windows.h"
#include "calls/legality.h"

namespace aicf {
namespace {

// The region that alone reads the call's result, if it takes the call and nothing of what that reads has then
// been overwritten, nor is by the region.
std::optional<size_t> region_of(const std::vector<KernelCall>& calls, size_t at, const RegionJoin& join,
                                const Legality& legality) {
  const KernelCall& call = calls[at];
  const std::optional<size_t> region = legality.sole_reader(call.outputs[0].root);
  if (!region || *region <= at || !legality.may_move(at, *region - 1)) return std::nullopt;
  const KernelCall& reader = calls[*region];
  return join.takes(reader, call) && !meet(call.inputs, reader.outputs) ? region : std::nullopt;
}

KernelCall joined(const KernelCall& call, const KernelCall& region, const RegionJoin& join) {
  KernelCall both = region;
  const auto at = std::find(both.inputs.begin(), both.inputs.end(), call.outputs[0]);
  const auto number = static_cast<int32_t>(at - both.inputs.begin());
  row_call(both)->row = join.kernel;
  row_call(both)->indexed = number;
  *at = call.inputs[join.source];
  both.inputs.push_back(call.inputs[join.indices]);
  std::erase(both.elementwise, number);
  both.origins = united_origins(call, region);
  both.reason = join.reason + ("; " + region.reason);
  return both;
}

}  // namespace

void join_into_regions(CallGraph& graph, const RegionJoin& join) {
  Legality legality(graph);
  const std::vector<KernelCall>& calls = graph.calls;
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::optional<size_t> region =
        join.may_join(calls[i]) ? region_of(calls, i, join, legality) : std::nullopt;
    if (!region) continue;
    legality.replace(*region, joined(calls[i], calls[*region], join));
    legality.remove(i);
  }
  legality.finish();
}

bool is_region_that_reads(const KernelCall& call, const Window& result) {
  const auto is_of_value = [&](const Window& w) { return w.root == result.root; };
  return is_region(call) && std::count_if(call.inputs.begin(), call.inputs.end(), is_of_value) == 1 &&
         std::find(call.inputs.begin(), call.inputs.end(), result) != call.inputs.end();
}

}  // namespace aicf
