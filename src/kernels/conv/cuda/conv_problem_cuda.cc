#include "kernels/conv/cuda/conv_problem_cuda.h"

#include <algorithm>

#include "kernels/common/cuda_walk.h"
#include "kernels/conv/cuda/conv_program.h"

namespace aicf {
namespace {

constexpr int64_t kVector = 8;  // halves in 16 bytes

// [N, M, spatial…] to [N, spatial…, M].
CudaWindow maps_last(CudaWindow w) {
  std::rotate(w.sizes.begin() + 1, w.sizes.begin() + 2, w.sizes.end());
  std::rotate(w.strides.begin() + 1, w.strides.begin() + 2, w.strides.end());
  return w;
}

// To [N, M, pixels] if the spatial axes lie one behind the other.
std::optional<CudaWindow> merged_pixels(CudaWindow w) {
  CudaWalk walk(1);
  for (size_t i = 2; i < w.sizes.size(); ++i) walk.add_axis(w.sizes[i], {w.strides[i]});
  walk.merge_axes();
  if (walk.rank() > 1) return std::nullopt;
  w.sizes.resize(2);
  w.strides.resize(2);
  w.sizes.push_back(walk.rank() == 0 ? Dim(1) : walk.sizes[0]);
  w.strides.push_back(walk.rank() == 0 ? Dim(0) : walk.strides[0][0]);
  return w;
}

CudaWindow broadcast_to(const CudaWindow& window, const Shape& sizes) {
  CudaWindow result = window;
  result.sizes = sizes;
  result.strides.assign(sizes.size(), Dim(0));
  const size_t missing = sizes.size() - window.sizes.size();
  for (size_t i = 0; i < window.sizes.size(); ++i)
    if (!(window.sizes[i] == Dim(1))) result.strides[missing + i] = window.strides[i];
  return result;
}

CudaWindow bias_window(const CudaWindow& bias, const Shape& sizes) {
  CudaWindow result = bias;
  result.sizes = sizes;
  result.strides.assign(sizes.size(), Dim(0));
  result.strides[1] = bias.strides[0];
  return result;
}

// Rows of pixels where maps are neighbours in the result, or where nothing else can be; else columns of
// pixels.
void set_domain(ConvProblem& c, const CudaProblem& problem) {
  const Shape& sizes = problem.outputs[0].sizes;
  std::vector<CudaWindow> windows(problem.inputs.begin() + kConvInputs, problem.inputs.end());
  const bool has_bias = problem.params[2] == Dim(1);
  for (size_t i = 0; i < windows.size(); ++i)
    windows[i] = i == 0 && has_bias ? bias_window(windows[i], sizes) : broadcast_to(windows[i], sizes);
  const size_t inputs = windows.size();
  windows.insert(windows.end(), problem.outputs.begin(), problem.outputs.end());
  std::vector<CudaWindow> merged;
  for (const CudaWindow& w : windows)
    if (auto m = merged_pixels(w)) merged.push_back(*m);
  c.pixel_rows = problem.outputs[0].strides[1] == Dim(1) || merged.size() < windows.size();
  if (c.pixel_rows)
    for (CudaWindow& w : windows) w = maps_last(w);
  else
    windows = merged;
  c.epilogue = problem;
  const auto first_output = windows.begin() + static_cast<std::ptrdiff_t>(inputs);
  std::copy(windows.begin(), first_output, c.epilogue.inputs.begin() + kConvInputs);
  c.epilogue.outputs.assign(first_output, windows.end());
  c.program = conv_program(problem.program, problem.inputs[0].dtype, problem.outputs[0].dtype, has_bias);
}

}  // namespace

ConvProblem conv_problem(const CudaProblem& problem, bool transposed) {
  const CudaWindow &x = problem.inputs[0], &w = problem.inputs[1], &out = problem.outputs[0];
  ConvProblem c;
  c.transposed = transposed;
  c.groups = problem.params[1];
  c.kernel.assign(w.sizes.begin() + 2, w.sizes.end());
  c.axes = window_axes(problem, x, out, c.kernel, 3);
  c.images = x.sizes[0];
  c.channels = transposed ? floordiv(x.sizes[1], c.groups) : w.sizes[1];
  c.maps = transposed ? w.sizes[1] : floordiv(w.sizes[0], c.groups);
  c.pixels = c.axes[0].out * c.axes[1].out * c.axes[2].out;
  c.x_batch = x.strides[0];
  c.x_channel = x.strides[1];
  c.w_map = w.strides[transposed ? 1 : 0];
  c.w_channel = w.strides[transposed ? 0 : 1];
  c.w_taps.assign(kSpatialAxes, Dim(0));
  std::copy(w.strides.begin() + 2, w.strides.end(),
            c.w_taps.end() - static_cast<std::ptrdiff_t>(c.kernel.size()));
  set_domain(c, problem);
  return c;
}

Dim depth_of(const ConvProblem& c) { return element_count(c.kernel) * c.channels; }
Dim rows_of(const ConvProblem& c) { return c.pixel_rows ? c.images * c.pixels : c.maps; }
Dim columns_of(const ConvProblem& c) { return c.pixel_rows ? c.maps : c.pixels; }
Dim batches_of(const ConvProblem& c) { return c.pixel_rows ? Dim(1) : c.images; }

bool keeps_vectors(const ConvProblem& c) {
  return !c.pixel_rows || c.groups == Dim(1) || is_multiple(c.maps, kVector);
}

double conv_result_bytes(const CudaProblem& problem) {
  double bytes = 0;
  for (const CudaWindow& out : problem.outputs) bytes += static_cast<double>(dtype_bytes(out.dtype));
  for (size_t i = kConvInputs; i < problem.inputs.size(); ++i) {
    const CudaWindow& operand = problem.inputs[i];
    const bool repeats =
        std::find(operand.strides.begin(), operand.strides.end(), Dim(0)) != operand.strides.end();
    if (operand.sizes == problem.outputs[0].sizes && !repeats)
      bytes += static_cast<double>(dtype_bytes(operand.dtype));
  }
  return bytes;
}

int64_t scattered_outputs(const ConvProblem& c) {
  constexpr int64_t kSector = 32;
  return std::count_if(c.epilogue.outputs.begin(), c.epilogue.outputs.end(), [](const CudaWindow& out) {
    const std::optional<int64_t> stride = out.strides.back().constant();
    return !(out.sizes.back() == Dim(1)) && (!stride || *stride * dtype_bytes(out.dtype) >= kSector);
  });
}

std::string operands_text(const CudaProblem& problem, const ConvProblem& c, const std::string& x,
                          const std::string& w, CudaParams& params) {
  const std::string type(cuda_type(problem.inputs[0].dtype));
  const auto number = [&](const Dim& dim) { return ", I(" + params.expr(dim) + ")"; };
  const Dim results = max(c.images * c.pixels, Dim(1)) * max(c.groups * c.maps, Dim(1));
  const Dim weights = depth_of(c) * c.groups * c.maps, input = c.images * c.x_batch;
  return "  using I = " + std::string(index_type(problem, max(results, max(weights, input)))) +
         ";\n  const aicf::ConvOperands<" + type + ", I> o = {" + x + ", " + w + ", " +
         window_axes_text(c.axes, params) + number(c.images) + number(c.channels) + number(c.maps) +
         number(c.x_batch) + number(c.x_channel) + number(c.w_map) + number(c.w_channel) + ", " +
         braced(c.w_taps, params) + "};\n";
}

std::string workspace_copy(const CudaProblem& problem, const Dim& offset, CudaParams& params) {
  return "reinterpret_cast<" + std::string(cuda_type(problem.inputs[0].dtype)) +
         "*>(static_cast<char*>(workspace) + " + params.expr(offset) + ")";
}
std::string flag(bool value) { return value ? "true" : "false"; }
std::string conv_accumulator(DType dtype) { return dtype == DType::f64 ? "double" : "float"; }

}  // namespace aicf
