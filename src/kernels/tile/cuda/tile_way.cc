#include "kernels/tile/cuda/tile_way.h"

#include <algorithm>

#include "kernels/tile/cuda/tile_stages.h"
#include "kernels/tile/tile_info.h"

namespace aicf {
namespace {

constexpr int64_t kMinSide = 16;  // elements: below, the cache reorders well enough

// Nothing is computed per row.
bool is_pointwise(const TileProgram& program) {
  for (const auto& stage : program.stages)
    for (const TileInstr& instr : stage)
      if (is_tile_reduction(instr.op) || instr.op == TileOp::inner_index ||
          instr.op == TileOp::store_scalar || instr.op == TileOp::store_sum)
        return false;
  return true;
}

// Moves the outer axis along which most bytes of the largest inputs are neighbours to the end of the outer
// ones, if rows lie across memory: false if most are neighbours along the innermost axis, or nowhere. Which
// inputs are largest follows from the axes along which they vary, not from sizes: those may be ranges.
bool turn_to_columns(TileSpace& space, size_t inputs) {
  if (space.outer == 0 || space.outer == space.rank()) return false;
  const auto varies = [&](const TileView& view, size_t axis) { return !is_number(view.strides[axis], 0); };
  const auto varying_axes = [&](const TileView& view) {
    size_t count = 0;
    for (size_t axis = 0; axis < space.rank(); ++axis) count += varies(view, axis) ? 1 : 0;
    return count;
  };
  size_t most = 0;
  for (size_t i = 0; i < inputs; ++i) most = std::max(most, varying_axes(space.views[i]));
  std::vector<int64_t> neighbours(space.rank());
  for (size_t i = 0; i < inputs; ++i) {
    const TileView& view = space.views[i];
    bool inside = false;
    for (size_t axis = space.outer; axis < space.rank(); ++axis) inside = inside || varies(view, axis);
    for (size_t axis = 0; inside && varying_axes(view) == most && axis < space.rank(); ++axis)
      if (is_number(view.strides[axis], 1)) neighbours[axis] += dtype_bytes(view.dtype);
  }
  const auto best =
      static_cast<size_t>(std::max_element(neighbours.begin(), neighbours.end()) - neighbours.begin());
  if (neighbours[best] == 0 || best >= space.outer) return false;
  const auto move_last = [&](std::vector<Dim>& list) {
    const auto from = list.begin() + static_cast<std::ptrdiff_t>(best);
    std::rotate(from, from + 1, list.begin() + static_cast<std::ptrdiff_t>(space.outer));
  };
  move_last(space.sizes);
  for (TileView& view : space.views) move_last(view.strides);
  return true;
}

// Makes the axis that most crossing input bytes run along the last but one.
bool turn_across(TileSpace& space, size_t inputs, const SymbolRanges& ranges) {
  const size_t rank = space.rank();
  if (rank < 2 || !is_number(space.views[inputs].strides[rank - 1], 1)) return false;
  std::vector<int> bytes(rank);
  for (size_t i = 0; i < inputs; ++i)
    if (const int axis = crossing_axis(space.views[i]); axis >= 0)
      bytes[static_cast<size_t>(axis)] += dtype_bytes(space.views[i].dtype);
  const auto best = static_cast<size_t>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
  if (bytes[best] == 0 || upper_bound(space.sizes[best], ranges) < kMinSide ||
      upper_bound(space.sizes[rank - 1], ranges) < kMinSide)
    return false;
  const auto move = [&](std::vector<Dim>& list) {
    const auto from = list.begin() + static_cast<std::ptrdiff_t>(best);
    std::rotate(from, from + 1, list.end() - 1);
  };
  move(space.sizes);
  for (TileView& view : space.views) move(view.strides);
  return true;
}

}  // namespace

int crossing_axis(const TileView& view) {
  const size_t rank = view.strides.size();
  if (rank < 2 || is_number(view.strides[rank - 1], 0) || is_number(view.strides[rank - 1], 1)) return -1;
  for (size_t axis = 0; axis + 1 < rank; ++axis)
    if (is_number(view.strides[axis], 1)) return static_cast<int>(axis);
  return -1;
}

TilePlan tile_plan(const CudaProblem& problem) {
  const size_t inputs = problem.inputs.size();
  if (is_pointwise(*problem.program)) {
    TilePlan plan{TileWay::flat, tile_space(all_windows(problem), 0, AxisOrder::kFree, AxisOrder::kFree,
                                            ranges_of(problem))};
    if (turn_across(plan.space, inputs, ranges_of(problem))) plan.way = TileWay::transpose;
    return plan;
  }
  TilePlan plan{TileWay::rows, staged_space(problem)};
  if (!sums_rows(*problem.program) && turn_to_columns(plan.space, inputs)) plan.way = TileWay::columns;
  return plan;
}

}  // namespace aicf
