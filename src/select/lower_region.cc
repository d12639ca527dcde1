#include "select/selector.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ir/region.h"
#include "select/cost_model.h"
#include "select/layout.h"

namespace aicf {
namespace {

// The axes that the region's reductions cover, or none.
std::vector<int64_t> reduced_axes(const Graph& body) {
  const Node* reduction = first_reduction(body);
  return reduction != nullptr ? reduction->attrs.get_ints("axes") : std::vector<int64_t>();
}

Shape full_shape(const Graph& body) {
  const Node* reduction = first_reduction(body);
  return body.shape(reduction != nullptr ? reduction->operands[0] : body.outputs()[0]);
}

// Whether the region has one result of the full shape, and stores it when all its reductions are done: what
// the reductions read is no longer wanted then.
bool ends_with_result(const Graph& body) {
  std::vector<int> depth(static_cast<size_t>(body.value_count()), 0);  // reductions before the value
  int deepest = 0;
  for (const Node& node : body.nodes()) {
    const int own = op_info(node.op).has(kReduction) ? 1 : 0;
    int before = own;
    for (ValueId id : node.operands)
      if (id != kNoValue) before = std::max(before, depth[static_cast<size_t>(id)] + own);
    for (ValueId id : node.results) depth[static_cast<size_t>(id)] = before;
    deepest = std::max(deepest, before);
  }
  const Shape full = full_shape(body);
  int results = 0;
  for (ValueId id : body.outputs()) {
    if (!(body.shape(id) == full)) continue;
    if (++results > 1 || depth[static_cast<size_t>(id)] < deepest) return false;
  }
  return results == 1;
}

// Whether the operand is as large as the region, and neighbours along axis `inner` are neighbours in memory.
bool lies_whole_along(const Window& w, size_t inner) {
  for (size_t axis = 0; axis < w.sizes.size(); ++axis)
    if (w.strides[axis] == Dim(0) && !(w.sizes[axis] == Dim(1))) return false;
  return w.strides[inner] == Dim(1);
}

}  // namespace

void Selector::lower_single(const Node& node) {
  Region region;
  std::vector<ValueId> operands, outer;
  for (ValueId id : node.operands) {
    const Value& value = graph_.value(id);
    if (value.role == Role::kConstant && value.constant.count() == 1) {
      operands.push_back(region.body.add_constant(value.constant));
      continue;
    }
    operands.push_back(region.body.add_input("x" + std::to_string(outer.size()), value.type));
    outer.push_back(id);
  }
  const ValueId result = region.body.add(node.op, operands, node.attrs);
  region.body.add_output(result, "y");
  lower_region(std::move(region), outer, node.results, origin_of(node), "one node");
}

void Selector::lower_region(Region region, const std::vector<ValueId>& operands,
                            const std::vector<ValueId>& results, std::string origin, std::string reason) {
  region.full_shape = full_shape(region.body);
  const std::vector<int64_t> axes = reduced_axes(region.body);
  const bool at_load = axes.empty() && depends_on_weights_only(operands, results);
  std::vector<Window> inputs, outputs;
  for (ValueId id : operands) inputs.push_back(window(id));
  for (ValueId id : results) {
    const Window& own = at_load ? place_at_load(id, origin) : place(id);
    outputs.push_back(row_window(own, region.full_shape.size(), axes));
  }
  add_tile_call(std::move(region), axes, std::move(inputs), std::move(outputs), std::move(origin),
                at_load ? "of weights only: computed at load" : std::move(reason));
  if (at_load) make_init();
}

Window Selector::row_window(Window window, size_t rank, const std::vector<int64_t>& axes) {
  if (window.sizes.size() == rank) return window;
  std::vector<int64_t> sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t axis : sorted) {
    window.sizes.insert(window.sizes.begin() + axis, Dim(1));
    window.strides.insert(window.strides.begin() + axis, Dim(0));
  }
  return window;
}

void Selector::add_tile_call(Region region, const std::vector<int64_t>& inner_axes,
                             std::vector<Window> inputs, std::vector<Window> outputs, std::string origin,
                             std::string reason) {
  const auto rank = static_cast<int64_t>(region.full_shape.size());
  KernelCall call;
  Schedule schedule;
  Ints& axes = schedule.domain_axes;
  if (inner_axes.empty() && !outputs.empty()) axes = walking_order(outputs[0]);
  if (axes.empty()) {
    axes.resize(region.full_shape.size());
    std::iota(axes.begin(), axes.end(), 0);
    std::stable_partition(axes.begin(), axes.end(), [&](int64_t axis) {
      return std::find(inner_axes.begin(), inner_axes.end(), axis) == inner_axes.end();
    });
  }
  schedule.inner_rank = static_cast<int>(inner_axes.empty() ? rank : static_cast<int64_t>(inner_axes.size()));
  const auto to_domain = [&](const Window& w) {
    return transpose_window(broadcast_window(w, region.full_shape), schedule.domain_axes);
  };
  for (const Window& w : inputs) call.inputs.push_back(to_domain(w));
  for (const Window& w : outputs) call.outputs.push_back(to_domain(w));
  if (inner_axes.empty() || (target_.is_cuda() && ends_with_result(region.body))) set_elementwise(call, 0);
  const auto inner = static_cast<size_t>(rank) - 1;
  if (!inner_axes.empty() && std::any_of(call.inputs.begin(), call.inputs.end(),
                                         [&](const Window& w) { return lies_whole_along(w, inner); }))
    turn_operands(call, 0, inner, origin);
  call.origins = {std::move(origin)};
  call.reason = std::move(reason);
  call.what = region_row(std::move(schedule), static_cast<int>(result_.regions.size()));
  call.choice.candidates = {
      {std::string(kRegionRow), {}, estimate_microseconds(call, kRegionRow, target_, options_.ranges)}};
  // There is nothing to choose, but a forced choice may name what runs.
  for (const ForcedChoice& forced : options_.forced)
    if (is_meant(forced, call, kRegionRow) && forced.candidate == kRegionRow)
      call.choice.source = ChoiceSource::kForced;
  result_.regions.push_back(std::move(region));
  result_.calls.push_back(std::move(call));
}

void Selector::set_elementwise(KernelCall& call, size_t first) {
  for (size_t i = first; i < call.inputs.size(); ++i) call.elementwise.push_back(static_cast<int32_t>(i));
}

Ints Selector::walking_order(const Window& output) const {
  if (are_constant(output.strides)) {
    Ints order(output.strides.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return *output.strides[static_cast<size_t>(a)].constant() >
             *output.strides[static_cast<size_t>(b)].constant();
    });
    return order;
  }
  if (output.root >= graph_.value_count()) return {};
  const Ints& order = orders_[static_cast<size_t>(output.root)];
  return order.size() == output.sizes.size() ? order : Ints();
}

}  // namespace aicf
