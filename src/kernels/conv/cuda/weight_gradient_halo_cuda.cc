#include "kernels/conv/cuda/weight_gradient_halo_cuda.h"

#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/common/cuda_walk.h"
#include "kernels/conv/cuda/conv_problem_cuda.h"
#include "kernels/conv/cuda/conv_tma_cuda.h"
#include "kernels/matmul/cuda/matmul_cuda.h"
#include "kernels/matmul/cuda/wgmma_text.h"

namespace aicf {
namespace {

constexpr size_t kDownAxis = 1, kAcrossAxis = 2;  // of the three spatial axes, the first of which is empty
constexpr int64_t kBoxColumns = 8;                // of a box
constexpr int64_t kMostBoxRows = 32;              // 256 positions
constexpr int64_t kSliceChannels = 64;            // of halves in 128 bytes
constexpr int64_t kSliceBytes = 128, kPhaseAlignment = 1024, kMostBoxAxis = 256;
constexpr int64_t kMapsOfRow = 8;  // rows of the parts are whole such
constexpr int64_t kPanelMaps = 64, kMostCluster = 8;
constexpr int64_t kBarrierBytes = 16;  // of a stage

int64_t constant_of(const Dim& dim) { return dim.require_constant("a size of a weight gradient"); }
double real(int64_t n) { return static_cast<double>(n); }

int64_t kernel_rows(const WeightGradientProblem& w) { return constant_of(w.axes[kDownAxis].kernel); }
int64_t kernel_columns(const WeightGradientProblem& w) { return constant_of(w.axes[kAcrossAxis].kernel); }
int64_t out_rows(const WeightGradientProblem& w) { return constant_of(w.axes[kDownAxis].out); }
int64_t boxes_of_image(const WeightGradientProblem& w, const WeightGradientHaloPlan& p) {
  return ceil_div(out_rows(w), p.rows) * ceil_div(constant_of(w.axes[kAcrossAxis].out), kBoxColumns);
}
int64_t halo_tiles(const WeightGradientProblem& w, const WeightGradientHaloPlan& p) {
  return kernel_rows(w) / p.tap_rows * ceil_div(w.channels, kSliceChannels) * ceil_div(w.maps, p.maps);
}

bool copies_positions(const CudaProblem& problem, const WeightGradientProblem& w) {
  const CudaWindow& x = problem.inputs[0];
  if (problem.arch != 90 || x.sizes.size() != 4 || w.groups != 1 || w.taps == 1 || w.channels < 1 ||
      w.maps < 1)
    return false;
  bool is_strided = false, is_dilated = false;
  for (const size_t at : {kDownAxis, kAcrossAxis}) {
    const CudaWindowAxis& axis = w.axes[at];
    for (const Dim* size : {&axis.in, &axis.out, &axis.kernel, &axis.stride, &axis.low, &axis.dilation})
      if (!size->is_constant()) return false;
    constexpr int64_t kMostStep = 8;  // of a tensor map
    if (constant_of(axis.in) < 1 || constant_of(axis.out) < 1 || constant_of(axis.kernel) < 1 ||
        constant_of(axis.stride) > kMostStep)
      return false;
    is_strided |= !(axis.stride == Dim(1));
    is_dilated |= !(axis.dilation == Dim(1));
  }
  constexpr int64_t kMostPositions = int64_t{1} << 30;
  const Interval images = bounds(x.sizes[0], problem.ranges != nullptr ? *problem.ranges : SymbolRanges());
  return !(is_strided && is_dilated) && images.lo >= 1 &&
         images.hi <= kMostPositions / out_rows(w) / constant_of(w.axes[kAcrossAxis].out) &&
         maps_channels_last(x, problem.ranges) && maps_channels_last(problem.inputs[1], problem.ranges);
}

// As WeightGradientHalo lays them out: the sums of a panel of maps, which the blocks of a cluster add.
int64_t taps_of_block(const WeightGradientProblem& w, const WeightGradientHaloPlan& p) {
  return p.tap_rows * kernel_columns(w);
}
int64_t panel_sum_bytes(const WeightGradientProblem& w, const WeightGradientHaloPlan& p) {
  constexpr int64_t kRow = 72, kPad = 4;
  return taps_of_block(w, p) * (kSliceChannels * kRow + kPad) * 4;
}
int64_t pipeline_bytes(const WeightGradientHaloPlan& p) { return p.stages * (p.stage_bytes + kBarrierBytes); }
int64_t halo_shared_bytes(const WeightGradientProblem& w, const WeightGradientHaloPlan& p) {
  return p.in_cluster ? std::max(pipeline_bytes(p), panel_sum_bytes(w, p)) : pipeline_bytes(p);
}

// Multiprocessors that clusters of the parts find places on: more than two blocks, not on all (see
// used_multiprocessors in matmul_cycles.cc).
int64_t used_by_clusters(const CudaMachine& machine, const WeightGradientHaloPlan& p) {
  constexpr int64_t kAlways = 2, kOf = 17, kUsed = 15;
  return p.in_cluster && p.parts > kAlways ? machine.multiprocessors * kUsed / kOf : machine.multiprocessors;
}

// Cycles behind the products. In a cluster each block writes its sums to shared memory, reads a share of all
// blocks' and stores the results of these; else the parts are written, read and added by another launch.
double sum_cycles(const WeightGradientProblem& w, const WeightGradientHaloPlan& p, double waves) {
  constexpr double kWritten = 0.04, kOwn = 0.04, kRemote = 0.28, kStored = 0.06;  // of an element
  constexpr double kBarriers = 300, kClusterBarriers = 1500, kSumBytes = 1900;
  if (p.in_cluster) {
    const double sums = real(taps_of_block(w, p) * kSliceChannels * p.maps);
    const double of_panel = p.parts > 1 ? kClusterBarriers : kBarriers, own = 1 / real(p.parts);
    return waves * (of_panel * real(p.maps / kPanelMaps) +
                    sums * (kWritten + kOwn * own + kRemote * (1 - own) + kStored * own));
  }
  return 2 * real(w.taps * w.channels * round_up(w.maps, kMapsOfRow) * 4 * p.parts) / kSumBytes;
}

// Cycles of a multiprocessor. Its matrix units take eight maps of a step of 16 positions in four; shared
// memory moves 128 bytes in each, read by the instructions and written by the copy engine.
double halo_cycles(const CudaProblem& problem, const WeightGradientProblem& w,
                   const WeightGradientHaloPlan& p) {
  constexpr double kSharedBytes = 128, kL2Bytes = 5500, kMemoryBytes = 1400;
  // A launch less where none adds parts.
  constexpr double kStart = 6300, kAlone = 4300, kBusy = 1.04, kBox = 60;
  constexpr double kFirst = 1200, kLoadBytes = 40;  // until a load begins to come, and of it
  const int64_t images = size_to_choose_by(problem.inputs[0].sizes[0], problem), tiles = halo_tiles(w, p);
  const int64_t blocks = tiles * p.parts, all = used_by_clusters(problem.machine, p);
  const double instructions = real(p.rows / 2 * p.warpgroups * p.units);
  const double loaded = real(p.phases * p.width * p.height * kSliceBytes + p.rows * kBoxColumns * p.maps * 2);
  const double moved = instructions * real(2048 + p.maps * 32) + loaded;
  const double box = kBox + kBusy * std::max({instructions * real(p.maps) / 2, moved / kSharedBytes,
                                              loaded * real(std::min(blocks, all)) / kL2Bytes,
                                              (kFirst + loaded / kLoadBytes) / real(p.stages - 1)});
  const int64_t boxes = ceil_div(images * boxes_of_image(w, p), p.parts);
  const double waves = real(ceil_div(blocks, all)), products = waves * (kFirst + real(boxes) * box);
  double operand_bytes = 0;
  for (const CudaWindow& window : problem.inputs)
    operand_bytes += 2 * real(size_to_choose_by(element_count(window.sizes), problem));
  return (p.in_cluster ? kAlone : kStart) + std::max(products, operand_bytes / kMemoryBytes) +
         sum_cycles(w, p, waves);
}

// Warpgroups that share so many taps with the fewest left over: three, or two.
void share_taps(int64_t taps, WeightGradientHaloPlan& p) {
  constexpr int64_t kMostWarpgroups = 3;
  for (int64_t count = std::min(taps, kMostWarpgroups); count >= std::min<int64_t>(taps, 2); --count)
    if (p.units == 0 || count * ceil_div(taps, count) < p.warpgroups * p.units) {
      p.warpgroups = count;
      p.units = ceil_div(taps, count);
    }
}
// Whether a thread has room for its sums: the compiler gives it what all threads of a block may have.
bool holds_sums(const WeightGradientHaloPlan& p) {
  constexpr int64_t kBeside = 32;
  return p.units * p.maps / 2 + kBeside <= 65536 / ((p.warpgroups + 1) * 128);
}

// The plan with boxes of so many rows, if enough of them fit.
bool set_rows(const WeightGradientProblem& w, int64_t rows, WeightGradientHaloPlan& p) {
  constexpr int64_t kMostStages = 8, kFewStages = 3;
  const auto size = [](const Dim& dim) { return constant_of(dim); };
  const CudaWindowAxis &down = w.axes[kDownAxis], &across = w.axes[kAcrossAxis];
  p.rows = rows;
  p.width = kBoxColumns + (size(across.kernel) - 1) * size(across.dilation) / size(across.stride);
  p.height = rows + (p.tap_rows - 1) * size(down.dilation) / size(down.stride);
  p.phases = std::min(size(across.stride), size(across.kernel)) * std::min(size(down.stride), p.tap_rows);
  if (p.width * size(across.stride) > kMostBoxAxis || p.height * size(down.stride) > kMostBoxAxis)
    return false;
  p.stage_bytes = p.phases * round_up(p.width * p.height * kSliceBytes, kPhaseAlignment) +
                  rows * kBoxColumns * p.maps * 2;
  p.stages = std::min(shared_limit(90) / (p.stage_bytes + kBarrierBytes), kMostStages);
  return p.stages >= kFewStages;
}

// With the best parts; `most`: more than these no part has a box.
WeightGradientHaloPlan with_parts(const CudaProblem& problem, const WeightGradientProblem& w,
                                  WeightGradientHaloPlan p, int64_t parts) {
  p.parts = parts;
  p.in_cluster = parts <= kMostCluster && panel_sum_bytes(w, p) <= shared_limit(90);
  p.cycles = halo_cycles(problem, w, p);
  return p;
}
int64_t most_parts(const CudaProblem& problem, const WeightGradientProblem& w,
                   const WeightGradientHaloPlan& p) {
  constexpr int64_t kMostParts = 256;
  const int64_t images = size_to_choose_by(problem.inputs[0].sizes[0], problem);
  return std::clamp<int64_t>(images * boxes_of_image(w, p), 1, kMostParts);
}
WeightGradientHaloPlan with_best_parts(const CudaProblem& problem, const WeightGradientProblem& w,
                                       const WeightGradientHaloPlan& p) {
  WeightGradientHaloPlan best = with_parts(problem, w, p, 1);
  for (int64_t parts = 2; parts <= most_parts(problem, w, p); ++parts) {
    const WeightGradientHaloPlan plan = with_parts(problem, w, p, parts);
    if (plan.cycles < best.cycles) best = plan;
  }
  return best;
}

std::string halo_gradient_shape_text(const WeightGradientProblem& w, const WeightGradientHaloPlan& p) {
  std::string text = "struct Shape {\n";
  const auto add = [&](const char* name, int64_t value) {
    text += std::string("  static constexpr int ") + name + " = " + std::to_string(value) + ";\n";
  };
  const CudaWindowAxis &down = w.axes[kDownAxis], &across = w.axes[kAcrossAxis];
  const auto size = [](const Dim& dim) { return constant_of(dim); };
  add("kSlices", ceil_div(w.channels, kSliceChannels));
  add("kOutW", size(across.out)), add("kOutH", size(down.out));
  add("kRows", p.rows), add("kColumns", kBoxColumns), add("kImages", 1);
  text += "  static constexpr bool kPatches = true;\n";
  add("kTapRows", kernel_rows(w));
  add("kKernelW", kernel_columns(w)), add("kKernelH", p.tap_rows);
  add("kStrideW", size(across.stride)), add("kStrideH", size(down.stride));
  add("kDilationW", size(across.dilation)), add("kDilationH", size(down.dilation));
  add("kLowW", size(across.low)), add("kLowH", size(down.low));
  return text + "};\n";
}

std::vector<TensorMapSpec> halo_gradient_maps(const WeightGradientProblem& w,
                                              const WeightGradientHaloPlan& p) {
  const auto narrow = [](int64_t v) { return static_cast<int32_t>(v); };
  const std::vector<int32_t> axes{1, 3, 2, 0};
  const int32_t slice = narrow(kSliceChannels);
  return {{0,
           axes,
           {slice, narrow(p.width), narrow(p.height), 1},
           narrow(kSliceBytes),
           {1, narrow(constant_of(w.axes[kAcrossAxis].stride)), narrow(constant_of(w.axes[kDownAxis].stride)),
            1}},
          {1, axes, {slice, narrow(kBoxColumns), narrow(p.rows), 1}, narrow(kSliceBytes)}};
}

}  // namespace

WeightGradientWay halo_gradient_way(const WeightGradientProblem& w, const WeightGradientHaloPlan& plan) {
  return {static_cast<int>(plan.tap_rows * kernel_columns(w) * kSliceChannels), static_cast<int>(plan.maps),
          static_cast<int>(plan.parts), static_cast<int>(plan.rows)};
}

std::vector<WeightGradientHaloPlan> weight_gradient_halo_plans(const CudaProblem& problem,
                                                               const WeightGradientProblem& w) {
  std::vector<WeightGradientHaloPlan> plans;
  if (!copies_positions(problem, w)) return plans;
  for (int64_t tap_rows = 1; tap_rows <= kernel_rows(w); ++tap_rows)
    for (const int64_t maps : {64, 128, 256}) {
      WeightGradientHaloPlan p{.tap_rows = tap_rows, .maps = maps, .units = 0}, best;
      share_taps(tap_rows * kernel_columns(w), p);
      if (kernel_rows(w) % tap_rows != 0 || !holds_sums(p) || maps >= 2 * round_up(w.maps, int64_t{64}))
        continue;
      for (int64_t rows = 2; rows <= kMostBoxRows; rows += 2) {
        const int64_t even = round_up(ceil_div(out_rows(w), ceil_div(out_rows(w), rows)), int64_t{2});
        if (rows != even || !set_rows(w, rows, p)) continue;
        const WeightGradientHaloPlan plan = with_best_parts(problem, w, p);
        if (best.cycles == 0 || plan.cycles < best.cycles) best = plan;
      }
      if (best.cycles == 0) continue;
      const int64_t most = most_parts(problem, w, best);
      for (const int64_t parts : std::set<int64_t>{best.parts, std::max<int64_t>(best.parts / 2, 1),
                                                   std::min(2 * best.parts, most)})
        plans.push_back(with_parts(problem, w, best, parts));
    }
  return plans;
}

CudaCode weight_gradient_halo_code(const CudaProblem& problem, const WeightGradientProblem& w,
                                   const WeightGradientHaloPlan& plan) {
  const CudaWindow &x = problem.inputs[0], &dy = problem.inputs[1];
  const WeightGradientParts parts =
      weight_gradient_parts(w, plan.parts, 1, w.channels, round_up(w.maps, kMapsOfRow));
  CudaWindowAxes axes = w.axes;  // in_stride, out_stride: of x and dy
  CudaParams params;
  const auto number = [&](const Dim& dim) { return ", I(" + params.expr(dim) + ")"; };
  const auto comma = [](int64_t v) { return std::to_string(v) + ", "; };
  const std::string type(cuda_type(x.dtype));
  const std::string body =
      weight_gradient_index_text(problem, Dim(0), parts) +
      weight_gradient_result_text(problem, w, parts, "result", params) +
      "  const aicf::WeightGradientOperands<" + type + ", I> o = {in0, in1, " +
      window_axes_text(axes, params) + number(x.sizes[0]) + number(Dim(w.channels)) + number(Dim(w.maps)) +
      number(x.strides[0]) + number(x.strides[1]) + number(Dim(0)) + number(dy.strides[0]) +
      number(dy.strides[1]) + number(Dim(0)) + number(Dim(0)) + number(Dim(0)) +
      "};\n  aicf::WeightGradientHalo<" + type + ", Multiply, Shape, " + comma(plan.maps) +
      comma(plan.units) + comma(plan.warpgroups) + comma(plan.stages) +
      comma(plan.in_cluster ? plan.parts : 0) + flag(!(problem.outputs[0].strides[1] == Dim(1))) +
      ">::run(&map0, &map1, o, " + std::to_string(plan.parts) + "u, " +
      (plan.in_cluster ? "nullptr" : "static_cast<float*>(workspace)") + number(Dim(parts.row)) +
      number(Dim(parts.part)) + ", result);\n";
  CudaCode code;
  code.compile_cost = kLongToCompile;
  if (!plan.in_cluster) code.workspace_bytes = Dim(parts.bytes());
  code.source = includes({"conv/cuda/weight_gradient_halo.cuh"}) +
                wgmma_multiply_text(x.dtype, static_cast<int>(plan.maps), false, false) +
                halo_gradient_shape_text(w, plan);
  CudaLaunch launch = flat_launch("weight_gradient_halo_" + std::string(dtype_name(x.dtype)),
                                  Dim(halo_tiles(w, plan) * plan.parts),
                                  static_cast<int32_t>((plan.warpgroups + 1) * 128), params);
  launch.shared_bytes = halo_shared_bytes(w, plan);
  if (plan.in_cluster && plan.parts > 1) launch.cluster = static_cast<int32_t>(plan.parts);
  launch.tensor_maps = halo_gradient_maps(w, plan);
  add_kernel(code, problem, std::move(launch), body, 1);
  if (!plan.in_cluster) add_weight_gradient_sum(code, problem, w, parts, Dim(0));
  return code;
}

}  // namespace aicf
