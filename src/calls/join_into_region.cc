#include "calls/join_into_region.h"

#include <algorithm>
#include <optional>

#include "calls/call_windows.h"

namespace aicf {
namespace {

std::optional<size_t> region_of(const std::vector<KernelCall>& calls, size_t at, const RegionJoin& join) {
  const KernelCall& call = calls[at];
  std::optional<size_t> region;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i == at || !(meets(calls[i].inputs, call.outputs[0].root) || meet(calls[i].outputs, call.outputs)))
      continue;
    if (region || i < at || !join.takes(calls[i], call)) return std::nullopt;
    region = i;
  }
  for (size_t i = at + 1; region && i <= *region; ++i)
    if (meet(call.inputs, calls[i].outputs)) return std::nullopt;
  return region;
}

KernelCall joined(const KernelCall& call, const KernelCall& region, const RegionJoin& join) {
  KernelCall both = region;
  const auto at = std::find(both.inputs.begin(), both.inputs.end(), call.outputs[0]);
  const auto number = static_cast<int32_t>(at - both.inputs.begin());
  both.kernel = join.kernel;
  *at = call.inputs[join.source];
  both.inputs.push_back(call.inputs[join.indices]);
  both.params.push_back(Dim(number));
  std::erase(both.elementwise, number);
  both.origin = call.origin + " … " + region.origin;
  both.reason = join.reason + ("; " + region.reason);
  return both;
}

}  // namespace

void join_into_regions(std::vector<KernelCall>& calls, const RegionJoin& join) {
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::optional<size_t> region = join.may_join(calls[i]) ? region_of(calls, i, join) : std::nullopt;
    if (!region) continue;
    calls[*region] = joined(calls[i], calls[*region], join);
    calls.erase(calls.begin() + static_cast<std::ptrdiff_t>(i));
    --i;
  }
}

bool is_region_that_reads(const KernelCall& call, const Window& result) {
  const auto is_of_value = [&](const Window& w) { return w.root == result.root; };
  return call.kernel == "tile" && call.region >= 0 && call.members.empty() &&
         std::count_if(call.inputs.begin(), call.inputs.end(), is_of_value) == 1 &&
         std::find(call.inputs.begin(), call.inputs.end(), result) != call.inputs.end();
}

}  // namespace aicf
