#include "calls/join_into_region.h"

#include <algorithm>

#include "calls/call_forms.h"

namespace aicf {
namespace {

KernelCall region_with(const KernelCall& call, const KernelCall& region, const RegionJoin& join) {
  KernelCall both = region;
  const auto at = std::find(both.inputs.begin(), both.inputs.end(), call.outputs[0]);
  const auto number = static_cast<int32_t>(at - both.inputs.begin());
  row_call(both)->row = join.kernel;
  row_call(both)->indexed = number;
  *at = call.inputs[join.source];
  both.inputs.push_back(call.inputs[kIndices]);
  std::erase(both.elementwise, number);
  both.reason = join.reason + ("; " + region.reason);
  return both;
}

}  // namespace

void join_into_region(JoinSite& site, size_t at, const RegionJoin& join) {
  const KernelCall& call = site.call(at);
  const Window& result = call.outputs[0];
  const std::vector<size_t>& readers = site.legality().readers(result.root);
  const auto region = std::find_if(readers.begin(), readers.end(), [&](size_t reader) {
    return reader > at && is_region_that_reads(site.call(reader), result);
  });
  if (region == readers.end()) return;
  const std::vector<size_t> both = {at, *region};
  const KernelCall& reader = site.call(*region);
  if (const Decision d = join.takes(reader, call, site.graph()); !d) return site.refuse(both, d.why());
  site.offer({.remove = both, .insert = region_with(call, reader, join), .at = *region});
}

}  // namespace aicf
