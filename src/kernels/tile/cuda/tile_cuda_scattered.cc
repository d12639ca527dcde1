// Pointwise regions of which one operand is zeros to which a scatter has added rows: as generate_tile_flat,
// but that operand's elements are added up where they are used. The updates are sorted by row first.
#include "base/error.h"
#include "kernels/indexing/scatter_cuda.h"
#include "kernels/tile/cuda/tile_writer.h"

namespace aicf {
namespace {

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

// Elements of a row that move as one, of rows that lie one behind the other.
int64_t unit_of_rows(const CudaWindow& rows, const Dim& length) {
  CudaWalk row(1);
  row.add_axis(length, {Dim(1)});
  return widest_unit(row, {rows.offset}, dtype_bytes(rows.dtype));
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

  const Dim length = space.views[rows.view].strides[0];
  const SortedUpdates updates =
      sorted_updates(problem, s, problem.inputs[rows.view].dtype, ScatterReduction::add, length,
                     unit_of_rows(problem.inputs[rows.view], length), true, true, OrderMemory::kWorkspace);
  CudaCode code;
  code.source = includes({"indexing/indexing.cuh", "indexing/scatter.cuh"});
  code.workspace_bytes = updates.bytes;
  const std::string from = "in" + std::to_string(rows.view);
  add_tables(code, problem, s, updates, problem.inputs.size() - 1, [&](CudaParams& params) {
    return "  const auto at = aicf::stored<" + std::to_string(updates.unit) + ">([&](const " +
           updates.item() + "* item) { return " + from + " + item->index() * " + params.expr(length) +
           " + offset; });\n";
  });
  rows.tables = [&](CudaParams& params) { return tables_text(updates, params); };
  CudaCode flat = generate_tile_flat(region, space, &rows);
  code.source += flat.source;
  code.launches.push_back(flat.launches[0]);
  return code;
}

}  // namespace aicf
