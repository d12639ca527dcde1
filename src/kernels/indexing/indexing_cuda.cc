// CUDA rows of gather, gather_elements, gather_nd, pad, iota and size_of.
#include <algorithm>
#include <numeric>

#include "base/comma_list.h"
#include "base/error.h"
#include "kernels/common/cuda_walk.h"
#include "kernels/indexing/copy_cuda.h"

namespace aicf {

namespace {

constexpr int32_t kBlock = 256;

// Code whose blocks are alike and see only their number.
CudaCode flat_code(const CudaProblem& problem, const std::vector<std::string>& headers) {
  CudaCode code;
  code.source = includes(headers);
  code.member = is_member(problem);
  return code;
}

// What indexing.cuh's Gather is told, in elements.
struct GatherProblem {
  CudaWalk lines{3}, block{2};
  std::vector<Dim> bounds, steps;  // per component
  Dim component_stride;
};

std::string unit_pointer(const CudaWindow& window, int64_t unit, const std::string& name, bool constant) {
  return "reinterpret_cast<" + std::string(constant ? "const " : "") + "aicf::Bits<" +
         std::to_string(unit * dtype_bytes(window.dtype)) + ">*>(" + name + ")";
}

// The unit of a gather: the block's last axis decides, but lines and steps must keep it aligned.
int64_t gather_unit(const CudaProblem& problem, const GatherProblem& g) {
  std::vector<Dim> bases = {problem.inputs[0].offset, problem.outputs[0].offset};
  bases.insert(bases.end(), g.steps.begin(), g.steps.end());
  for (size_t tensor : {0, 2})
    bases.insert(bases.end(), g.lines.strides[tensor].begin(), g.lines.strides[tensor].end());
  return widest_unit(g.block, bases, dtype_bytes(problem.inputs[0].dtype));
}

// A thread moves up to 16 bytes, as long as the threads fill the device.
int units_of_thread(const CudaProblem& problem, const Dim& units, int64_t bytes) {
  constexpr int64_t kThreads = 2048, kBytes = 16;  // of a multiprocessor; of a thread
  const int64_t count = upper_bound(units, problem.ranges),
                device = problem.machine.multiprocessors * kThreads;
  int items = 1;
  while (items * bytes < kBytes && count >= 2 * items * device) items *= 2;
  return items;
}

CudaCode gather_code(const CudaProblem& problem, const std::string& name, GatherProblem g) {
  g.lines.merge_axes();
  g.block.merge_axes();
  const CudaWindow &x = problem.inputs[0], &out = problem.outputs[0];
  const int64_t unit = gather_unit(problem, g);
  use_units(g.block, unit);
  for (size_t tensor : {0, 2})
    for (Dim& stride : g.lines.strides[tensor]) stride = in_units(stride, unit);
  for (Dim& step : g.steps) step = in_units(step, unit);
  const Dim units = g.lines.count() * g.block.count();
  const int items = units_of_thread(problem, units, unit * dtype_bytes(x.dtype));
  CudaParams params;
  // Members that look up tables of other lengths share their text.
  const std::string bounds = comma_list(g.bounds, [&](const Dim& bound) {
    return is_member(problem) ? params.param(bound) : params.expr(bound);
  });
  const std::string type = "aicf::Gather<I, " + std::to_string(g.lines.rank()) + ", " +
                           std::to_string(g.block.rank()) + ", " + std::to_string(g.steps.size()) + ">";
  const std::string body = "  using I = " + std::string(index_type(problem, units)) + ";\n  const " + type +
                           " g = {" + walk_value(g.lines, params) + ", " + walk_value(g.block, params) +
                           ", {" + (bounds.empty() ? "0" : bounds) + "}, " + braced(g.steps, params) +
                           ", I(" + params.expr(g.component_stride) + ")};\n  aicf::gather<" +
                           std::to_string(items) + ", " + std::to_string(kBlock) + ">(g, block_index, " +
                           unit_pointer(x, unit, "in0", true) + ", in1, " +
                           unit_pointer(out, unit, "out0", false) + ", error);\n";
  CudaCode code = flat_code(problem, {"indexing/indexing.cuh"});
  CudaLaunch launch = flat_launch(name, blocks_for(units, int64_t{kBlock} * items), kBlock, params);
  launch.reports_errors = true;
  add_kernel(code, problem, std::move(launch), body);
  return code;
}

}  // namespace

CudaCode generate_gather(const CudaProblem& problem) {
  const CudaWindow &x = problem.inputs[0], &indices = problem.inputs[1], &out = problem.outputs[0];
  const size_t axis = cuda_axis(problem, x);
  GatherProblem g;
  size_t o = 0;
  for (size_t i = 0; i < axis; ++i) g.lines.add_axis(x.sizes[i], {x.strides[i], Dim(0), out.strides[o++]});
  for (size_t i = 0; i < indices.sizes.size(); ++i)
    g.lines.add_axis(indices.sizes[i], {Dim(0), indices.strides[i], out.strides[o++]});
  for (size_t i = axis + 1; i < x.sizes.size(); ++i)
    g.block.add_axis(x.sizes[i], {x.strides[i], out.strides[o++]});
  g.bounds = {x.sizes[axis]};
  g.steps = {x.strides[axis]};
  return gather_code(problem, "gather", std::move(g));
}

CudaCode generate_gather_nd(const CudaProblem& problem) {
  const CudaWindow &x = problem.inputs[0], &indices = problem.inputs[1], &out = problem.outputs[0];
  const auto batch = static_cast<size_t>(problem.params[0].require_constant("batch_dims of gather_nd"));
  const size_t index_rank = indices.sizes.size() - 1;
  const auto components =
      static_cast<size_t>(indices.sizes.back().require_constant("components of gather_nd's indices"));
  GatherProblem g;
  size_t o = 0;
  for (size_t i = 0; i < index_rank; ++i, ++o)
    g.lines.add_axis(indices.sizes[i],
                     {i < batch ? x.strides[i] : Dim(0), indices.strides[i], out.strides[o]});
  for (size_t i = batch; i < batch + components; ++i) {
    g.bounds.push_back(x.sizes[i]);
    g.steps.push_back(x.strides[i]);
  }
  for (size_t i = batch + components; i < x.sizes.size(); ++i)
    g.block.add_axis(x.sizes[i], {x.strides[i], out.strides[o++]});
  g.component_stride = indices.strides.back();
  return gather_code(problem, "gather_nd", std::move(g));
}

CudaCode generate_gather_elements(const CudaProblem& problem) {
  const CudaWindow &x = problem.inputs[0], &indices = problem.inputs[1], &out = problem.outputs[0];
  const size_t axis = cuda_axis(problem, x);
  // Behind the last axis that indices run along, whole rows move.
  size_t rows = axis + 1;
  for (size_t i = rows; i < x.sizes.size(); ++i)
    if (!(indices.strides[i] == Dim(0)) && !(indices.sizes[i] == Dim(1))) rows = i + 1;
  GatherProblem g;
  for (size_t i = 0; i < x.sizes.size(); ++i) {
    const bool repeats = x.sizes[i] == Dim(1);  // an axis of one position serves every index
    const Dim x_stride = i == axis || repeats ? Dim(0) : x.strides[i];
    if (i < rows)
      g.lines.add_axis(indices.sizes[i], {x_stride, indices.strides[i], out.strides[i]});
    else
      g.block.add_axis(indices.sizes[i], {x_stride, out.strides[i]});
  }
  g.bounds = {x.sizes[axis]};
  g.steps = {x.strides[axis]};
  return gather_code(problem, "gather_elements", std::move(g));
}

void add_copy(CudaCode& code, const CudaProblem& problem, size_t input, const std::string& name,
              size_t output) {
  const CudaWindow &x = problem.inputs[input], &out = problem.outputs[output];
  const bool fills =
      std::all_of(x.strides.begin(), x.strides.end(), [](const Dim& stride) { return stride == Dim(0); });
  CudaWalk walk = fills ? walk_windows({&out}) : walk_windows({&x, &out});
  const int64_t unit = widest_unit(walk, {fills ? Dim(0) : x.offset, out.offset}, dtype_bytes(x.dtype));
  use_units(walk, unit);
  CudaParams params;
  const std::string body = "  using I = " + std::string(index_type(problem, walk.count())) + ";\n  const " +
                           walk_type(walk) + " walk = " + walk_value(walk, params) +
                           ";\n  aicf::" + (fills ? "fill" : "copy") + "(walk, " +
                           unit_pointer(x, fills ? 1 : unit, "in" + std::to_string(input), true) + ", " +
                           unit_pointer(out, unit, "out" + std::to_string(output), false) + ");\n";
  add_kernel(code, problem, flat_launch(name, blocks_for(walk.count(), kBlock), kBlock, params), body);
}

// Its axes, those of the longest strides first.
std::vector<size_t> by_stride(const CudaWindow& window, const SymbolRanges& ranges) {
  std::vector<size_t> order(window.sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<int64_t> strides;
  for (const Dim& stride : window.strides) strides.push_back(bounds(stride, ranges).hi);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  return order;
}

CudaCode generate_pad(const CudaProblem& problem) {
  const CudaWindow &x = problem.inputs[0], &out = problem.outputs[0];
  const size_t rank = x.sizes.size();
  const int64_t mode = problem.params[0].require_constant("mode of pad");
  // In the order of the result's memory, neighbouring axes that are not padded merge, so that whole rows move
  // in wide units.
  const std::vector<size_t> order = by_stride(out, ranges_of(problem));
  struct Axes {
    std::vector<Dim> sizes, out_strides, x_sizes, x_strides, low;
  } axes;
  std::vector<bool> whole;
  for (const size_t i : order) {
    const Dim low = problem.params[1 + i];
    const bool is_whole = low == Dim(0) && problem.params[1 + rank + i] == Dim(0);
    if (is_whole && x.sizes[i] == Dim(1)) continue;
    const size_t last = whole.size() - 1;
    if (is_whole && !whole.empty() && whole[last] && axes.x_strides[last] == x.strides[i] * x.sizes[i] &&
        axes.out_strides[last] == out.strides[i] * out.sizes[i]) {
      axes.sizes[last] = axes.sizes[last] * out.sizes[i];
      axes.x_sizes[last] = axes.sizes[last];
      axes.out_strides[last] = out.strides[i];
      axes.x_strides[last] = x.strides[i];
      continue;
    }
    whole.push_back(is_whole);
    axes.sizes.push_back(out.sizes[i]);
    axes.out_strides.push_back(out.strides[i]);
    axes.x_sizes.push_back(x.sizes[i]);
    axes.x_strides.push_back(x.strides[i]);
    axes.low.push_back(low);
  }
  int64_t unit = 1;
  if (!whole.empty() && whole.back()) {
    CudaWalk walk(2);
    for (size_t i = 0; i < axes.sizes.size(); ++i)
      walk.add_axis(axes.sizes[i], {axes.x_strides[i], axes.out_strides[i]});
    unit = widest_unit(walk, {x.offset, out.offset}, dtype_bytes(x.dtype));
    use_units(walk, unit);
    axes.sizes = walk.sizes, axes.x_strides = walk.strides[0], axes.out_strides = walk.strides[1];
    axes.x_sizes.back() = walk.sizes.back();
  }
  const Dim units = element_count(axes.sizes);
  const int64_t bytes = dtype_bytes(x.dtype);
  int items = units_of_thread(problem, units, unit * bytes);
  if (axes.out_strides != row_major_strides(axes.sizes)) items = 1;
  while (!is_multiple(out.offset, unit * items)) items /= 2;
  const std::string element = "aicf::Bits<" + std::to_string(bytes) + ">",
                    unit_type = "aicf::Bits<" + std::to_string(unit * bytes) + ">";
  CudaParams params;
  const std::string value =
      problem.inputs.size() == 2 ? "*reinterpret_cast<const " + element + "*>(in1)" : element + "(0)";
  const std::string body = "  using I = " + std::string(index_type(problem, units)) +
                           ";\n  const aicf::Pad<I, " + std::to_string(axes.sizes.size()) + "> p = {" +
                           braced(axes.sizes, params) + ", " + braced(axes.out_strides, params) + ", " +
                           braced(axes.x_sizes, params) + ", " + braced(axes.x_strides, params) + ", " +
                           braced(axes.low, params) + "};\n  aicf::pad<" + std::to_string(kBlock) + ", " +
                           std::to_string(mode) + ", " + std::to_string(items) + ">(p, block_index, " +
                           unit_pointer(x, unit, "in0", true) + ", aicf::filled<" + unit_type + ">(" + value +
                           "), " + unit_pointer(out, unit, "out0", false) + ");\n";
  CudaCode code = flat_code(problem, {"indexing/indexing.cuh"});
  add_kernel(code, problem, flat_launch("pad", blocks_for(units, int64_t{kBlock} * items), kBlock, params),
             body);
  return code;
}

CudaCode generate_iota(const CudaProblem& problem) {
  const CudaWindow& out = problem.outputs[0];
  const size_t axis = cuda_axis(problem, out);
  CudaWalk walk(2);
  for (size_t i = 0; i < out.sizes.size(); ++i)
    walk.add_axis(out.sizes[i], {out.strides[i], Dim(i == axis ? 1 : 0)});
  walk.merge_axes();
  CudaParams params;
  const std::string body = "  using I = " + std::string(index_type(problem, walk.count())) + ";\n  const " +
                           walk_type(walk) + " walk = " + walk_value(walk, params) + ";\n  aicf::iota<" +
                           std::to_string(kBlock) + ">(walk, block_index, out0);\n";
  CudaCode code = flat_code(problem, {"indexing/indexing.cuh"});
  add_kernel(code, problem, flat_launch("iota", blocks_for(walk.count(), kBlock), kBlock, params), body);
  return code;
}

CudaCode generate_size_of(const CudaProblem& problem) {
  CudaParams params;
  const std::string type(cuda_type(problem.outputs[0].dtype)), value = params.expr(problem.params[0]);
  const std::string body =
      "  using E = aicf::Element<" + type + ">;\n  *out0 = E::store(E::Value(" + value + "));\n";
  CudaCode code = flat_code(problem, {"indexing/elements.cuh"});
  add_kernel(code, problem, flat_launch("size_of", Dim(1), 1, params), body);
  return code;
}

}  // namespace aicf
