// Scatters by the same indices sort their updates once, on a GPU: the first leaves their order, the others
// take it.
#include <algorithm>

#include "calls/call_code.h"
#include "calls/call_forms.h"
#include "calls/legality.h"
#include "calls/rule_site.h"
#include "kernels/common/scatter_order.h"

namespace aicf {
namespace {

std::optional<ScatterOrder> order_of(const KernelCall& call, const RuleSite& site, ScatterOrderCost& cost) {
  const RowCall* row = row_call(call);
  if (row == nullptr || facts_of(row->row).work != WorkForm::kScatter) return std::nullopt;
  return scatter_order(row->row, call_problem(call, context_of(site.graph, site.target)), &cost);
}

// Calls that one order serves, the one that leaves it first.
struct Sharing {
  std::vector<size_t> calls;
  ScatterOrder order;
  ScatterOrderCost cost;  // of all

  bool pays() const { return calls.size() > 1 && cost.saved > cost.making; }
};

// Whether a call between the two writes the indices of both.
bool are_overwritten(const Legality& legality, ValueId indices, size_t first, size_t second) {
  const std::vector<size_t>& writers = legality.writers(indices);
  return std::any_of(writers.begin(), writers.end(), [&](size_t at) { return at >= first && at < second; });
}

}  // namespace

void share_scatter_orders(const RuleSite& site) {
  const Legality legality(site.graph);
  std::vector<KernelCall>& calls = site.graph.calls;
  std::vector<Sharing> groups;
  for (size_t at = 0; at < calls.size(); ++at) {
    ScatterOrderCost cost;
    const std::optional<ScatterOrder> order = order_of(calls[at], site, cost);
    if (!order) continue;
    const Window& indices = calls[at].inputs[kIndices];
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const Sharing& sharing) {
      const Window& known = calls[sharing.calls[0]].inputs[kIndices];
      return known.root == indices.root && known.dtype == indices.dtype && sharing.order == *order &&
             !are_overwritten(legality, indices.root, sharing.calls[0], at);
    });
    if (group == groups.end()) {
      groups.push_back({{at}, *order, cost});
      continue;
    }
    group->calls.push_back(at);
    group->cost.saved += cost.saved;
  }
  for (const Sharing& sharing : groups) {
    if (!sharing.pays()) continue;
    KernelCall& first = calls[sharing.calls[0]];
    first.outputs.push_back(add_temp(site.graph, {DType::u8, {sharing.order.bytes}}, "scatter order"));
    for (size_t i = 1; i < sharing.calls.size(); ++i) {
      KernelCall& call = calls[sharing.calls[i]];
      call.inputs.push_back(first.outputs[1]);
      site.report({&first, &call}, true, "sorts their updates once");
    }
  }
}

}  // namespace aicf
