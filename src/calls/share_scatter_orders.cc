// Scatters by the same indices sort their updates once, on a GPU: the first leaves their order, the others
// take it.
#include <algorithm>

#include "calls/call_code.h"
#include "calls/call_windows.h"
#include "calls/legality.h"
#include "calls/rule_site.h"
#include "kernels/common/scatter_order.h"

namespace aicf {
namespace {

constexpr size_t kIndices = 1;  // among the inputs of a scatter

std::optional<ScatterOrder> order_of(const KernelCall& call, const RuleSite& site) {
  const RowCall* row = row_call(call);
  if (row == nullptr || facts_of(row->row).work != WorkForm::kScatter) return std::nullopt;
  return scatter_order(row->row, call_problem(call, context_of(site.graph, site.target)));
}

struct Sorted {
  size_t call;
  ScatterOrder order;
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
  std::vector<Sorted> leaders;
  for (size_t at = 0; at < calls.size(); ++at) {
    const std::optional<ScatterOrder> order = order_of(calls[at], site);
    if (!order) continue;
    const Window& indices = calls[at].inputs[kIndices];
    const auto leader = std::find_if(leaders.begin(), leaders.end(), [&](const Sorted& sorted) {
      const Window& known = calls[sorted.call].inputs[kIndices];
      return known.root == indices.root && known.dtype == indices.dtype && sorted.order == *order &&
             !are_overwritten(legality, indices.root, sorted.call, at);
    });
    if (leader == leaders.end()) {
      leaders.push_back({at, *order});
      continue;
    }
    KernelCall& first = calls[leader->call];
    if (order_memory(first.inputs.size(), first.outputs.size()) == OrderMemory::kWorkspace)
      first.outputs.push_back(add_temp(site.graph, {DType::u8, {order->bytes}}, "scatter order"));
    calls[at].inputs.push_back(first.outputs[1]);
    site.report({origin_text(first), origin_text(calls[at])}, true, "sorts their updates once");
  }
}

}  // namespace aicf
