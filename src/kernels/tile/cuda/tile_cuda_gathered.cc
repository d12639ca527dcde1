// Regions over rows of which one operand is rows of a table: as generate_tile_rows, but that operand's rows
// begin where an index says.
#include "base/error.h"
#include "kernels/tile/cuda/tile_cuda.h"
#include "kernels/tile/cuda/tile_cuda_rows.h"

namespace aicf {

CudaWindow rows_in_order(const CudaWindow& table, const CudaWindow& indices) {
  CudaWindow rows = table;
  rows.sizes.erase(rows.sizes.begin());
  Dim stride = rows.strides.front();
  rows.strides.erase(rows.strides.begin());
  for (size_t axis = indices.sizes.size(); axis-- > 0;) {
    rows.sizes.insert(rows.sizes.begin(), indices.sizes[axis]);
    rows.strides.insert(rows.strides.begin(), stride);
    stride = stride * indices.sizes[axis];
  }
  return rows;
}

CudaWindow over_rows(CudaWindow indices, size_t rank) {
  indices.sizes.resize(rank, Dim(1));
  indices.strides.resize(rank, Dim(0));
  return indices;
}

bool can_run_tile_gathered(const Problem& problem) { return problem.inputs.size() >= 2; }

CudaCode generate_tile_gathered(const CudaProblem& problem) {
  AICF_CHECK(problem.program != nullptr && problem.params.size() == 1 && problem.indexed &&
                 problem.inputs.size() == problem.program->inputs.size() + 1,
             "a region over gathered rows needs a program, a table and indices");
  const CudaWindow& indices = problem.inputs.back();
  GatheredRows rows{&problem, static_cast<size_t>(*problem.indexed)};
  const CudaWindow& table = problem.inputs[rows.view];
  CudaProblem region = problem;
  region.inputs.pop_back();
  region.inputs[rows.view] = rows_in_order(table, indices);
  region.inputs[rows.view].constant = false;  // its rows are known after the wait for the indices
  std::vector<CudaWindow> windows = all_windows(region);
  windows.push_back(over_rows(indices, region.outputs[0].sizes.size()));
  TileSpace space = rows_space(region, windows);
  const Dim elements = table.sizes.front() * table.strides.front();
  space.wide = space.wide || upper_bound(elements, ranges_of(problem)) > INT32_MAX / 2;
  rows.size = table.sizes.front();
  rows.stride = table.strides.front();
  return generate_tile_rows(region, space, &rows);
}

}  // namespace aicf
