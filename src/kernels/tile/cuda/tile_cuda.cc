#include "kernels/tile/cuda/tile_cuda.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/tile/cuda/tile_stages.h"
#include "kernels/tile/tile_info.h"

namespace aicf {
namespace {

// Nothing is computed per row.
bool is_pointwise(const TileProgram& program) {
  for (const auto& stage : program.stages)
    for (const TileInstr& instr : stage)
      if (is_tile_reduction(instr.op) || instr.op == TileOp::inner_index || instr.op == TileOp::store_scalar)
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

}  // namespace

CudaCode generate_tile(const CudaProblem& problem) {
  AICF_CHECK(problem.program != nullptr && problem.params.size() == 1 && !problem.outputs.empty(),
             "a tile call needs a program, outputs and the inner rank");
  AICF_CHECK(problem.inputs.size() == problem.program->inputs.size() &&
                 problem.outputs.size() == problem.program->outputs.size(),
             "a tile call's windows are not those of its program");
  if (is_pointwise(*problem.program)) {
    const TileSpace space =
        tile_space(all_windows(problem), 0, AxisOrder::kFree, AxisOrder::kFree, ranges_of(problem));
    const std::optional<CudaCode> transposed = generate_tile_transpose(problem, space);
    return transposed ? *transposed : generate_tile_flat(problem, space);
  }
  TileSpace space = staged_space(problem);
  if (sums_rows(*problem.program)) return generate_tile_rows(problem, space);
  return turn_to_columns(space, problem.inputs.size()) ? generate_tile_columns(problem, space)
                                                       : generate_tile_rows(problem, space);
}

}  // namespace aicf
