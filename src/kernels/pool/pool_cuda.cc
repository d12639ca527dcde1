// CUDA rows of max_pool, max_pool_indices and avg_pool.
#include <algorithm>

#include "kernels/conv/cuda/windows_cuda.h"

namespace aicf {

namespace {

constexpr int32_t kBlock = 256;

// Channels that a thread takes together: as many as one access moves, if they are neighbours on both sides.
int64_t channel_unit(const CudaWindow& x, const CudaWindow& out) {
  CudaWalk walk(2);
  for (size_t i = 0; i < x.sizes.size(); ++i)
    if (i != 1) walk.add_axis(Dim(1), {x.strides[i], out.strides[i]});
  walk.add_axis(x.sizes[1], {x.strides[1], out.strides[1]});
  return widest_unit(walk, {x.offset, out.offset}, dtype_bytes(x.dtype));
}

// Positions along the last axis that a thread takes together, where the result has them one behind the other:
// as many as one access moves, up to four, as long as the threads fill the device.
int64_t positions_across(const CudaProblem& problem, int64_t unit) {
  const CudaWindow& out = problem.outputs[0];
  if (unit > 1 || out.strides.back() != Dim(1)) return 1;
  CudaWalk walk(1);
  for (size_t i = 0; i < out.sizes.size(); ++i) walk.add_axis(out.sizes[i], {out.strides[i]});
  int64_t across = std::min<int64_t>(4, widest_unit(walk, {out.offset}, dtype_bytes(out.dtype)));
  const int64_t filling = 2048 * problem.machine.multiprocessors,
                count = upper_bound(element_count(out.sizes), problem.ranges);
  while (across > 1 && (count / across < 2 * filling || !is_multiple(out.sizes.back(), across))) across /= 2;
  return across;
}

// The result's axes (batch, channel, spatial) with the contiguous one last, so that neighbouring threads
// write neighbours; offsets are the logical indices themselves.
CudaWalk output_walk(const CudaWindow& out, int64_t unit, int64_t across) {
  std::vector<size_t> order;
  const bool channels_last = unit > 1 || out.strides[1] == Dim(1);
  for (size_t i = 0; i < out.sizes.size(); ++i)
    if (!(channels_last && i == 1)) order.push_back(i);
  if (channels_last) order.push_back(1);
  CudaWalk walk(5);
  for (size_t axis : order) {
    std::vector<Dim> strides(5, Dim(0));
    strides[axis < 2 ? axis : axis + 5 - out.sizes.size()] = Dim(1);
    const int64_t together = axis == 1 ? unit : axis + 1 == out.sizes.size() ? across : 1;
    walk.add_axis(together > 1 ? in_units(out.sizes[axis], together) : out.sizes[axis], strides);
  }
  return walk;
}

// ", KY, KX" of Pool.
std::string unrolled_kernel(const std::vector<Dim>& kernel) {
  std::string text;
  for (const size_t from_last : {2, 1})
    text += ", " + std::to_string(from_last > kernel.size()
                                      ? 1
                                      : kernel[kernel.size() - from_last].constant().value_or(0));
  return text;
}

CudaCode pool_code(const CudaProblem& problem, const std::string& name, int64_t unit, int64_t across,
                   const std::string& flags) {
  const CudaWindow &x = problem.inputs[0], &out = problem.outputs[0];
  const size_t spatial = x.sizes.size() - 2;
  const std::vector<Dim> kernel(problem.params.begin() + 3,
                                problem.params.begin() + 3 + static_cast<std::ptrdiff_t>(spatial));
  const CudaWalk walk = output_walk(out, unit, across);
  CudaParams params;
  const std::string text =
      "  using I = " + std::string(index_type(problem, walk.count())) + ";\n  const aicf::Pool<I, " +
      std::to_string(walk.rank()) + unrolled_kernel(kernel) + "> p = {" + walk_value(walk, params) + ", " +
      window_axes_text(window_axes(problem, x, out, kernel, 3 + spatial), params) + ", I(" +
      params.expr(x.sizes[1]) + "), I(" + params.expr(x.strides[0]) + "), I(" + params.expr(x.strides[1]) +
      "), I(" + params.expr(out.strides[0]) + "), I(" + params.expr(out.strides[1]) + ")};\n  aicf::" + name +
      "<" + flags + ">(p, in0, out0);\n";
  CudaCode code;
  code.source = includes({"pool/pool.cuh"});
  add_kernel(code, problem, flat_launch(name, blocks_for(walk.count(), kBlock), kBlock, params), text);
  return code;
}

bool flag(const CudaProblem& problem) { return problem.params[2].require_constant("flag of a pooling") != 0; }

}  // namespace

CudaCode generate_max_pool(const CudaProblem& problem) {
  const int64_t unit = channel_unit(problem.inputs[0], problem.outputs[0]),
                across = positions_across(problem, unit);
  return pool_code(problem, "max_pool", unit, across, std::to_string(unit) + ", " + std::to_string(across));
}

CudaCode generate_max_pool_indices(const CudaProblem& problem) {
  return pool_code(problem, "max_pool_indices", 1, 1, flag(problem) ? "true" : "false");
}

CudaCode generate_avg_pool(const CudaProblem& problem) {
  const int64_t unit = channel_unit(problem.inputs[0], problem.outputs[0]),
                across = positions_across(problem, unit);
  return pool_code(
      problem, "avg_pool", unit, across,
      std::to_string(unit) + ", " + std::to_string(across) + (flag(problem) ? ", true" : ", false"));
}

}  // namespace aicf
