// Which pointwise regions add up rows themselves where a scatter would put their sums into memory first (the
// gradient of an embedding before its update): one call of the kernel tile_scattered takes the place of two.
#include <algorithm>
#include <cmath>

#include "calls/call_forms.h"
#include "calls/join_into_region.h"
#include "kernels/common/scatter_order.h"
#include "select/layout.h"

namespace aicf {
namespace {

constexpr int64_t kAdd = 1;  // of scatter.cuh's reductions

// Not below zero: what no update goes to keeps its sign.
bool is_zero(ValueId root, const Graph& graph) {
  if (root >= graph.value_count() || graph.value(root).role != Role::kConstant) return false;
  const Array& constant = graph.value(root).constant;
  for (int64_t i = 0; i < constant.count(); ++i)
    if (constant.get_f64(i) != 0 || std::signbit(constant.get_f64(i))) return false;
  return true;
}

// Of floats, whole rows to zeros. Rows and their elements must be axes of the region: neither is one alone.
bool is_row_scatter(const KernelCall& call, const CallGraph& graph) {
  if (!is_form(call, JoinForm::kScatter) || row_call(call)->params[0] != Dim(kAdd)) return false;
  if (order_memory(call.inputs.size(), call.outputs.size()) != OrderMemory::kWorkspace) return false;
  const Window &zeros = call.inputs[0], &indices = call.inputs[1], &updates = call.inputs[2],
               &sums = call.outputs[0];
  return is_float(sums.dtype) && indices.sizes.back() == Dim(1) && sums.sizes.size() >= 2 &&
         sums.sizes[0] != Dim(1) && element_count(sums.sizes) != sums.sizes[0] && is_row_major(sums) &&
         is_row_major(updates) && is_zero(zeros.root, graph.graph);
}

Decision reads_sums(const KernelCall& region, const KernelCall& scatter, const CallGraph& graph) {
  const Window& sums = scatter.outputs[0];
  if (!std::all_of(region.outputs.begin(), region.outputs.end(),
                   [&](const Window& w) { return w.sizes == sums.sizes; }))
    return Decision::no("the region's results do not cover the sums");
  if (!is_pointwise_region(region, graph)) return Decision::no("the region is not pointwise");
  return {};
}

}  // namespace

void join_scatters(JoinSite& site, size_t at) {
  if (is_row_scatter(site.call(at), site.graph()))
    join_into_region(site, at,
                     {.kernel = "tile_scattered",
                      .reason = "adds up scattered rows itself",
                      .source = 2,
                      .takes = reads_sums});
}

}  // namespace aicf
