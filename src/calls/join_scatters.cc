#include "calls/join_scatters.h"

#include <algorithm>
#include <cmath>

#include "calls/join_into_region.h"
#include "calls/row_names.h"
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
bool is_scatter(const KernelCall& call, const Graph& graph) {
  if (!is_row(call, kScatter) || row_call(call)->params[0] != Dim(kAdd)) return false;
  const Window &zeros = call.inputs[0], &indices = call.inputs[1], &updates = call.inputs[2],
               &sums = call.outputs[0];
  return is_float(sums.dtype) && indices.sizes.back() == Dim(1) && sums.sizes.size() >= 2 &&
         sums.sizes[0] != Dim(1) && element_count(sums.sizes) != sums.sizes[0] && is_row_major(sums) &&
         is_row_major(updates) && is_zero(zeros.root, graph);
}

// Element by element, wherever it is in a row.
bool is_pointwise(const TileProgram& program) {
  return program.stages.size() == 1 &&
         std::none_of(program.stages[0].begin(), program.stages[0].end(), [](const TileInstr& instr) {
           return instr.op == TileOp::inner_index || instr.op == TileOp::store_scalar;
         });
}

}  // namespace

void join_scatters(CallGraph& calls, const Target& /*target*/, const SelectOptions& /*options*/) {
  const auto takes_sums = [&](const KernelCall& region, const KernelCall& scatter) {
    const Window& sums = scatter.outputs[0];
    return is_region_that_reads(region, sums) &&
           std::all_of(region.outputs.begin(), region.outputs.end(),
                       [&](const Window& w) { return w.sizes == sums.sizes; }) &&
           is_pointwise(calls.program_of(region));
  };
  join_into_regions(calls, {.kernel = "tile_scattered",
                            .reason = "adds up scattered rows itself",
                            .source = 2,
                            .indices = 1,
                            .may_join = [&](const KernelCall& call) { return is_scatter(call, calls.graph); },
                            .takes = takes_sums});
}

}  // namespace aicf
