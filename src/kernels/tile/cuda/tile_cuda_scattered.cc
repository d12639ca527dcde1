// Pointwise regions of which one operand is zeros to which a scatter has added rows: as generate_tile_flat,
// but that operand's elements are added up where they are used. The updates are sorted by row first.
#include "base/error.h"
#include "kernels/indexing/scatter_cuda.h"
#include "kernels/tile/cuda/tile_writer.h"

namespace aicf {
namespace {

constexpr int32_t kCountBlock = 256;

// Of updates [indices' axes but the last…, row] that go to rows of `out`, one index each.
ScatterProblem scatter_of(const CudaWindow& indices, const CudaWindow& out) {
  ScatterProblem s;
  for (size_t i = 0; i + 1 < indices.sizes.size(); ++i)
    s.lines.add_axis(indices.sizes[i], {indices.strides[i], Dim(0), Dim(0)});
  s.lines.merge_axes();
  s.bounds = {out.sizes[0]};
  s.target_steps = {Dim(1)};
  s.targets = out.sizes[0];
  s.component_stride = indices.strides.back();
  return s;
}

CudaWindow numbers_of_rows(const CudaWindow& out) {
  CudaWindow rows = out;
  rows.dtype = DType::i32;
  rows.offset = Dim(0);
  rows.sizes.assign(out.sizes.size(), Dim(1));
  rows.strides.assign(out.sizes.size(), Dim(0));
  rows.sizes[0] = out.sizes[0];
  rows.strides[0] = Dim(1);
  return rows;
}

}  // namespace

bool can_run_tile_scattered(const Problem& problem) { return problem.inputs.size() >= 2; }

CudaCode generate_tile_scattered(const CudaProblem& problem) {
  AICF_CHECK(problem.program != nullptr && problem.params.size() == 1 && problem.indexed &&
                 problem.inputs.size() == problem.program->inputs.size() + 1,
             "a region over scattered rows needs a program, updates and indices");
  const CudaWindow &indices = problem.inputs.back(), &out = problem.outputs[0];
  AddedRows rows{&problem, static_cast<size_t>(*problem.indexed)};
  CudaProblem region = problem;
  region.inputs.pop_back();
  region.inputs[rows.view].sizes = out.sizes;
  region.inputs[rows.view].strides = row_major_strides(out.sizes);
  std::vector<CudaWindow> windows = all_windows(region);
  windows.push_back(numbers_of_rows(out));
  TileSpace space = tile_space(windows, 0, AxisOrder::kKept, AxisOrder::kKept, ranges_of(problem));
  AICF_CHECK(space.rank() > 1 && space.views.back().strides[0] == Dim(1),
             "scattered rows are not the first of several axes");
  const ScatterProblem s = scatter_of(indices, out);
  const Dim elements = s.lines.count() * space.views[rows.view].strides[0];  // of the updates
  space.wide = space.wide || upper_bound(elements, ranges_of(problem)) > INT32_MAX / 2;

  const std::string item = sorted_item(problem, s);
  CudaCode code;
  code.source = includes({"indexing/indexing.cuh", "indexing/scatter.cuh"});
  const Dim starts = sorted_bytes(problem, s);
  code.workspace_bytes = starts + (out.sizes[0] + Dim(1)) * Dim(4);
  add_sort(code, problem, s, problem.inputs.size() - 1);
  const auto tables = [&](CudaParams& params) {
    return "const " + item + "* sorted = aicf::sorted_items<" + item + ", " + std::to_string(kSortedTile) +
           ">(workspace, " + params.expr(s.lines.count()) +
           ");\nint32_t* starts = reinterpret_cast<int32_t*>(static_cast<char*>(workspace) + " +
           params.expr(starts) + ");\n";
  };
  CudaParams params;
  const std::string count = tables(params) + "  aicf::count_before(sorted, " + params.expr(s.lines.count()) +
                            ", " + params.expr(out.sizes[0]) + ", starts);\n";
  add_kernel(code, problem,
             flat_launch("count_before", blocks_for(out.sizes[0] + Dim(1), kCountBlock), kCountBlock, params),
             count);
  rows.tables = tables;
  CudaCode flat = generate_tile_flat(region, space, &rows);
  code.source += flat.source;
  code.launches.push_back(flat.launches[0]);
  return code;
}

}  // namespace aicf
