// CUDA rows of scatter_elements and scatter_nd.
#include "kernels/indexing/scatter_cuda.h"

#include "base/comma_list.h"
#include "base/error.h"
#include "kernels/indexing/copy_cuda.h"
#include "kernels/order/merge_cuda.h"

namespace aicf {

namespace {

constexpr int32_t kScatterBlock = 256;
constexpr int64_t kManyLines = 8192;  // enough threads, each walking its updates
constexpr int64_t kFewUpdates = 16;   // per line: a walk is shorter than a sort

CudaCode empty_code() {
  CudaCode code;
  code.source = includes({"indexing/indexing.cuh", "indexing/scatter.cuh"});
  return code;
}

std::string reduction_of(const Dim& param) {
  return std::to_string(param.require_constant("reduction of a scatter"));
}

// A Scatter of this problem, `s`, in a kernel of so many threads.
std::string scatter_text(const CudaProblem& problem, const ScatterProblem& s, const Dim& threads,
                         CudaParams& params) {
  const auto wide_list = [&](const std::vector<Dim>& dims) {
    const std::string list = comma_list(dims, [&](const Dim& dim) { return params.expr(dim); });
    return "{" + (list.empty() ? "0" : list) + "}";
  };
  return "  using I = " + std::string(index_type(problem, threads)) + ";\n  const aicf::Scatter<I, " +
         std::to_string(s.lines.rank()) + ", " + std::to_string(s.places.rank()) + ", " +
         std::to_string(s.block.rank()) + ", " + std::to_string(s.bounds.size()) + "> s = {" +
         walk_value(s.lines, params) + ", " + walk_value(s.places, params) + ", " +
         walk_value(s.block, params) + ", " + wide_list(s.bounds) + ", " + wide_list(s.target_steps) +
         ", I(" + params.expr(s.component_stride) + ")};\n";
}

void add_sorted_updates(CudaCode& code, const CudaProblem& problem, ScatterProblem s,
                        const std::string& reduction) {
  s.places.merge_axes();
  s.block.merge_axes();
  const CudaWindow &updates = problem.inputs[2], &out = problem.outputs[0];
  std::vector<Dim> bases = {updates.offset, out.offset};
  s.lines.merge_axes();
  bases.insert(bases.end(), s.lines.strides[1].begin(), s.lines.strides[1].end());
  bases.insert(bases.end(), s.places.strides[0].begin(), s.places.strides[0].end());
  const int64_t unit = widest_unit(s.block, bases, dtype_bytes(out.dtype));
  const Dim threads = s.lines.count() * floordiv(s.block.count(), Dim(unit));
  const std::string item = sorted_item(problem, s);
  code.workspace_bytes = sorted_bytes(problem, s);
  if (!problem.replaces(0)) add_copy(code, problem, 0, "copy");
  add_sort(code, problem, s, 1);
  CudaParams params;
  const std::string scatter = scatter_text(problem, s, threads, params);
  add_kernel(
      code, problem, flat_launch("apply_updates", blocks_for(threads, kScatterBlock), kScatterBlock, params),
      scatter + "  aicf::apply_updates<" + reduction + ", " + item + ", " + std::to_string(kSortedTile) +
          ", " + std::to_string(unit) + ">(s, static_cast<const " + item + "*>(workspace), in2, out0);\n");
}

void add_update_lines(CudaCode& code, const CudaProblem& problem, size_t axis, const std::string& reduction) {
  const CudaWindow &indices = problem.inputs[1], &updates = problem.inputs[2], &out = problem.outputs[0];
  CudaWalk lines(3);
  for (size_t i = 0; i < out.sizes.size(); ++i)
    if (i != axis) lines.add_axis(indices.sizes[i], {indices.strides[i], updates.strides[i], out.strides[i]});
  lines.merge_axes();
  if (!problem.replaces(0)) add_copy(code, problem, 0, "copy");
  CudaParams params;
  const std::string body = "  using I = " + std::string(index_type(problem, lines.count())) +
                           ";\n  const aicf::ScatterLines<I, " + std::to_string(lines.rank()) + "> s = {" +
                           walk_value(lines, params) + ", I(" + params.expr(indices.sizes[axis]) + "), I(" +
                           params.expr(indices.strides[axis]) + "), I(" + params.expr(updates.strides[axis]) +
                           "), I(" + params.expr(out.strides[axis]) + "), " + params.expr(out.sizes[axis]) +
                           "};\n  aicf::scatter_lines<" + reduction + ">(s, in1, in2, out0, error);\n";
  CudaLaunch launch = flat_launch("scatter_lines", blocks_for(lines.count(), 64), 64, params);
  launch.reports_errors = true;
  add_kernel(code, problem, std::move(launch), body);
}

bool is_narrow(const CudaProblem& problem, const ScatterProblem& s) {
  return is_narrow_item(upper_bound(s.targets, problem.ranges), upper_bound(s.lines.count(), problem.ranges));
}

}  // namespace

std::string sorted_item(const CudaProblem& problem, const ScatterProblem& s) {
  return is_narrow(problem, s) ? "aicf::NarrowItem" : "aicf::WideItem";
}

Dim sorted_bytes(const CudaProblem& problem, const ScatterProblem& s) {
  return sort_buffer_bytes(Dim(1), s.lines.count(), is_narrow(problem, s));
}

void add_sort(CudaCode& code, const CudaProblem& problem, const ScatterProblem& s, size_t indices) {
  const std::string item = sorted_item(problem, s), tile = std::to_string(kSortedTile);
  const Dim count = s.lines.count();
  CudaParams params;
  const std::string scatter = scatter_text(problem, s, count * s.block.count(), params);
  CudaLaunch sort = flat_launch("sort_targets", blocks_for(count, kSortedTile), kScatterBlock, params);
  sort.reports_errors = true;
  add_kernel(code, problem, std::move(sort),
             scatter + "  aicf::sort_targets<" + item + ", " + tile + ">(s, in" + std::to_string(indices) +
                 ", static_cast<" + item + "*>(workspace), error);\n");
  add_merges(code, problem, Dim(1), count, kSortedTile, is_narrow(problem, s));
}

CudaCode generate_scatter_elements(const CudaProblem& problem) {
  const CudaWindow &indices = problem.inputs[1], &updates = problem.inputs[2], &out = problem.outputs[0];
  const size_t axis = cuda_axis(problem, out);
  const std::string reduction = reduction_of(problem.params[1]);
  CudaCode code = empty_code();
  Dim line_count(1);
  for (size_t i = 0; i < out.sizes.size(); ++i)
    if (i != axis) line_count = line_count * indices.sizes[i];
  if (upper_bound(line_count, problem.ranges) >= kManyLines ||
      upper_bound(indices.sizes[axis], problem.ranges) <= kFewUpdates) {
    add_update_lines(code, problem, axis, reduction);
    return code;
  }
  const std::vector<Dim> logical = row_major_strides(out.sizes);
  ScatterProblem s;
  for (size_t i = 0; i < out.sizes.size(); ++i) {
    s.lines.add_axis(indices.sizes[i],
                     {indices.strides[i], updates.strides[i], i == axis ? Dim(0) : logical[i]});
    s.places.add_axis(out.sizes[i], {out.strides[i]});
  }
  s.bounds = {out.sizes[axis]};
  s.target_steps = {logical[axis]};
  s.targets = element_count(out.sizes);
  add_sorted_updates(code, problem, std::move(s), reduction);
  return code;
}

CudaCode generate_scatter_nd(const CudaProblem& problem) {
  const CudaWindow &indices = problem.inputs[1], &updates = problem.inputs[2], &out = problem.outputs[0];
  const size_t index_rank = indices.sizes.size() - 1;
  const auto components =
      static_cast<size_t>(indices.sizes.back().require_constant("components of scatter_nd's indices"));
  CudaCode code = empty_code();
  ScatterProblem s;
  for (size_t i = 0; i < index_rank; ++i)
    s.lines.add_axis(indices.sizes[i], {indices.strides[i], updates.strides[i], Dim(0)});
  const Shape indexed(out.sizes.begin(), out.sizes.begin() + static_cast<std::ptrdiff_t>(components));
  s.target_steps = row_major_strides(indexed);
  s.bounds = indexed;
  s.targets = element_count(indexed);
  for (size_t i = 0; i < out.sizes.size(); ++i) {
    if (i < components)
      s.places.add_axis(out.sizes[i], {out.strides[i]});
    else
      s.block.add_axis(out.sizes[i], {updates.strides[index_rank + i - components], out.strides[i]});
  }
  s.component_stride = indices.strides.back();
  add_sorted_updates(code, problem, std::move(s), reduction_of(problem.params[0]));
  return code;
}

}  // namespace aicf
