// The row of weight gradients of depthwise convolutions.
#include <algorithm>

#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/common/cuda_walk.h"
#include "kernels/conv/cuda/weight_gradient_problem.h"

namespace aicf {
namespace {

constexpr size_t kRowAxis = 1, kColumnAxis = 2;  // of the three spatial axes, the first of which is empty
constexpr int64_t kMostTaps = 64;                // sums of a thread
constexpr int64_t kMostUnitsOfBlock = 32;        // neighbouring threads with neighbouring channels

int64_t known(const Dim& dim) { return dim.require_constant("a size of a depthwise weight gradient"); }

// What runs.
struct DepthwisePlan {
  int64_t channels = 1, positions = 1;  // of a thread; one of them is 1
  int64_t units = 1, slices = 1;        // threads of a block side by side in channels; blocks
  int64_t threads = 128, rows = 1;      // of a block; positions of a column
  Dim columns;                          // of a part
  WeightGradientParts parts;
};

// Blocks of a multiprocessor at least, whatever their registers.
int resident_blocks(const DepthwisePlan& plan) { return plan.threads == 256 ? 2 : 3; }

// The most neighbours of 16 bytes for which `fits`.
template <class Fits>
int64_t widest_that(DType dtype, Fits fits) {
  int64_t unit = 16 / dtype_bytes(dtype);
  while (unit > 1 && !fits(unit)) unit /= 2;
  return unit;
}

// Neighbouring channels that a thread takes: the sums of all their taps have registers.
int64_t channels_of_thread(const CudaProblem& problem, const WeightGradientProblem& w) {
  constexpr int64_t kMostSums = 50;
  return widest_that(problem.inputs[0].dtype, [&](int64_t unit) {
    if (unit * w.taps > kMostSums || w.groups % unit != 0) return false;
    return std::all_of(problem.inputs.begin(), problem.inputs.end(), [&](const CudaWindow& x) {
      if (!(x.strides[1] == Dim(1)) || !is_multiple(x.offset, unit)) return false;
      for (size_t i = 0; i < x.sizes.size(); ++i)
        if (i != 1 && !(x.sizes[i] == Dim(1)) && !is_multiple(x.strides[i], unit)) return false;
      return true;
    });
  });
}

// Neighbouring positions along a row, which start aligned units in x and in dy.
int64_t positions_of_thread(const CudaProblem& problem, const WeightGradientProblem& w) {
  constexpr int64_t kMostValues = 100, kMost = 4;
  const int64_t height = known(w.axes[kRowAxis].kernel), width = known(w.axes[kColumnAxis].kernel),
                stride = known(w.axes[kColumnAxis].stride);
  return widest_that(problem.inputs[0].dtype, [&](int64_t unit) {
    if (unit > kMost || height * (2 * width + (unit - 1) * stride) > kMostValues) return false;
    if (!(w.axes[kColumnAxis].dilation == Dim(1))) return false;
    return std::all_of(problem.inputs.begin(), problem.inputs.end(), [&](const CudaWindow& x) {
      if (!(x.strides.back() == Dim(1)) || !is_multiple(x.sizes.back(), unit) || !is_multiple(x.offset, unit))
        return false;
      for (size_t i = 0; i + 1 < x.sizes.size(); ++i)
        if (!(x.sizes[i] == Dim(1)) && !is_multiple(x.strides[i], unit)) return false;
      return true;
    });
  });
}

DepthwisePlan depthwise_plan(const CudaProblem& problem, const WeightGradientProblem& w) {
  DepthwisePlan plan;
  plan.channels = channels_of_thread(problem, w);
  if (plan.channels == 1) plan.positions = positions_of_thread(problem, w);
  const bool last = problem.inputs[0].strides[1] == Dim(1) && plan.positions == 1;
  if (last) {
    const int64_t units = w.groups / plan.channels;
    plan.slices = ceil_div(units, kMostUnitsOfBlock);
    plan.units = ceil_div(units, plan.slices);
    // Sums and a window of x: small blocks where two large ones have no registers for them.
    constexpr int64_t kMostOfLarge = 80;
    if (2 * w.taps * plan.channels <= kMostOfLarge) plan.threads = 256;
  } else {
    plan.slices = w.groups;
  }
  // Columns so long that every thread of the machine has some, but that the rows of x above them are few.
  constexpr int64_t kColumnsOfThread = 4, kWindows = 4;
  const int64_t threads = 512 * problem.machine.multiprocessors,
                height = std::max<int64_t>(size_to_choose_by(w.axes[kRowAxis].out, problem), 1),
                across = size_to_choose_by(problem.inputs[0].sizes[0] * w.axes[kColumnAxis].out, problem) /
                         plan.positions,
                all = std::max<int64_t>(across * (w.groups / plan.channels), 1),
                pieces = ceil_div(kColumnsOfThread * threads, all),
                least = std::min(height, kWindows * known(w.axes[kRowAxis].kernel));
  // Columns of one length: a thread that has a short one waits for those with long ones.
  plan.rows = ceil_div(height, ceil_div(height, std::max(least, ceil_div(height, pieces))));
  // Blocks of several channels have long parts, as many as run at a time; of one channel, so many that the
  // last ones leave few idle.
  const int64_t most_blocks = (last ? resident_blocks(plan) : 16) * problem.machine.multiprocessors;
  const int64_t lanes = plan.threads / plan.units,
                columns = std::max<int64_t>(across * ceil_div(height, plan.rows), 1),
                wanted = std::clamp<int64_t>(most_blocks / plan.slices, 1, ceil_div(columns, lanes)),
                rounds = ceil_div(ceil_div(columns, wanted), lanes);
  plan.parts.count = ceil_div(columns, rounds * lanes);
  const Dim all_columns = problem.inputs[0].sizes[0] * ceildiv(w.axes[kRowAxis].out, Dim(plan.rows)) *
                          floordiv(w.axes[kColumnAxis].out, Dim(plan.positions));
  plan.columns = ceildiv(all_columns, Dim(plan.parts.count));
  plan.parts.group_maps = plan.parts.maps = plan.parts.row = w.groups;
  plan.parts.part = plan.parts.group = w.taps * w.groups;
  return plan;
}

std::string depthwise_shape_text(const WeightGradientProblem& w) {
  std::string text = "struct Shape {\n";
  const auto add = [&](const char* name, const Dim& value) {
    text += std::string("  static constexpr int ") + name + " = " + std::to_string(known(value)) + ";\n";
  };
  add("kKernelH", w.axes[kRowAxis].kernel), add("kKernelW", w.axes[kColumnAxis].kernel);
  add("kStrideH", w.axes[kRowAxis].stride), add("kStrideW", w.axes[kColumnAxis].stride);
  add("kDilationH", w.axes[kRowAxis].dilation), add("kDilationW", w.axes[kColumnAxis].dilation);
  add("kLowW", w.axes[kColumnAxis].low);
  return text + "};\n";
}

}  // namespace

bool can_run_weight_gradient_depthwise(const Problem& problem) {
  if (problem.inputs.size() != 2 || problem.outputs.size() != 1) return false;
  const Shape &x = problem.inputs[0].sizes, &out = problem.outputs[0].sizes;
  const DType dtype = problem.inputs[0].dtype;
  const bool is_known = std::all_of(out.begin(), out.end(), [](const Dim& d) { return d.is_constant(); });
  if (!is_known || !(is_half(dtype) || dtype == DType::f32) || x.size() > 4) return false;
  const Dim taps = element_count(Shape(out.begin() + 2, out.end()));
  return !asks_tf32(problem.params) && out[1] == Dim(1) && x[1] == out[0] && known(taps) <= kMostTaps;
}

CudaCode generate_weight_gradient_depthwise(const CudaProblem& problem) {
  const WeightGradientProblem w = weight_gradient_problem(problem);
  const DepthwisePlan plan = depthwise_plan(problem, w);
  const CudaWindow &x = problem.inputs[0], &dy = problem.inputs[1];
  const std::string type(cuda_type(x.dtype));
  CudaCode code;
  code.compile_cost = kLongToCompile;
  code.workspace_bytes = Dim(plan.parts.bytes());
  code.source = includes({"conv/cuda/weight_gradient_depthwise.cuh"}) + depthwise_shape_text(w);
  CudaParams params;
  const auto number = [&](const Dim& dim) { return ", I(" + params.expr(dim) + ")"; };
  const auto comma = [](int64_t v) { return std::to_string(v) + ", "; };
  const std::string body =
      weight_gradient_index_text(problem, Dim(0), plan.parts) + "  const aicf::DepthwiseGradientOperands<" +
      type + ", I> o = {in0, in1, " + window_axes_text(w.axes, params) + number(x.sizes[0]) +
      number(Dim(w.groups)) + number(x.strides[0]) + number(x.strides[1]) + number(dy.strides[0]) +
      number(dy.strides[1]) + "};\n  aicf::DepthwiseGradient<" + type + ", Shape, " + comma(plan.channels) +
      comma(plan.positions) + comma(plan.units) + comma(plan.threads) + std::to_string(plan.rows) +
      ">::run(o" + number(plan.columns) + ", static_cast<float*>(workspace)" + number(Dim(plan.parts.part)) +
      ");\n";
  CudaLaunch launch = flat_launch("weight_gradient_depthwise_" + std::string(dtype_name(x.dtype)),
                                  Dim(plan.parts.count), static_cast<int32_t>(plan.threads), params);
  launch.grid[1] = Dim(plan.slices);
  add_kernel(code, problem, std::move(launch), body, resident_blocks(plan));
  add_weight_gradient_sum(code, problem, w, plan.parts, Dim(0));
  return code;
}

}  // namespace aicf
