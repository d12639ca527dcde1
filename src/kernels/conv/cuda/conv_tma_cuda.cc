#include "kernels/conv/cuda/conv_tma_cuda.h"

#include <algorithm>

#include "base/error.h"
#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/common/cuda_walk.h"
#include "kernels/conv/cuda/conv_ways.h"
#include "kernels/matmul/cuda/matmul_cuda.h"
#include "kernels/matmul/cuda/matmul_cycles.h"
#include "kernels/matmul/cuda/wgmma_text.h"
#include "kernels/tile/cuda/tile_cuda.h"

namespace aicf {
namespace {

constexpr int64_t kMaxStep = 8;       // of a tensor map
constexpr int64_t kMostPassed = 256;  // elements along an axis of its box
constexpr int64_t kFewPixels = 16;
constexpr size_t kD = 0, kH = 1, kW = 2;  // of the three spatial axes

struct Box {
  int64_t w = 1, h = 1, n = 1;
  int64_t rows() const { return w * h * n; }
};

int64_t constant(const Dim& dim) { return dim.require_constant("a size of a convolution"); }

// Of an element: so often K counts it.
int64_t halves_of(const CudaWindow& window) { return dtype_bytes(window.dtype) / 2; }
int64_t tma_vector(const CudaWindow& window) { return 16 / dtype_bytes(window.dtype); }
// K of a tap of the weights, in units of 2 bytes: channels that lack in its last stage come as zeros.
int64_t tap_depth(const CudaWindow& w) {
  return halves_of(w) * round_up(constant(w.sizes[1]), stage_channels(w));
}
// Spatial axes.
size_t spatial_axes(const CudaWindow& w) { return w.sizes.size() - 2; }

int64_t boxes(const Box& box, int64_t w, int64_t h, int64_t images) {
  return ceil_div(w, box.w) * ceil_div(h, box.h) * ceil_div(images, box.n);
}

// The box of at most `rows` pixels that covers the result with the fewest, wide before high; at most so wide
// and high.
Box best_box(int64_t w, int64_t h, int64_t images, int64_t rows, int64_t most_w, int64_t most_h) {
  Box best;
  for (int64_t bw = std::min({w, rows, most_w}); bw >= 1; --bw)
    for (int64_t bh = std::min({h, rows / bw, most_h}); bh >= 1; --bh) {
      const Box box{bw, bh, std::min(images, rows / (bw * bh))};
      if (boxes(box, w, h, images) < boxes(best, w, h, images)) best = box;
    }
  return best;
}

// A tensor map can have the axis: a positive stride of whole 16 bytes.
bool maps_axis(const CudaWindow& window, size_t axis, const SymbolRanges* ranges) {
  const Dim& stride = window.strides[axis];
  return is_multiple(stride, tma_vector(window)) &&
         bounds(stride, ranges != nullptr ? *ranges : SymbolRanges()).lo > 0;
}

// What runs where loads by the copy engine are asked for.
struct Plan {
  MatmulWay way;
  Box box;
  Dim tiles;  // of all maps
  Dim row_tiles;
  int64_t depth = 0, maps = 0;  // K in units of 2 bytes
};

WgmmaTile wgmma_tile(const CudaProblem& problem, const CudaProblem& epilogue, const MatmulWay& way,
                     int64_t box_rows) {
  const bool halves = epilogue_tile(*epilogue.program).has_value();
  return {.x_rows = static_cast<int>(box_rows),
          .constant_y = problem.inputs[1].constant,
          .half_tile = halves,
          .rounds_x = problem.inputs[0].dtype == DType::f32,
          .chunk = chunk_registers(epilogue, 2, halves, way.block_n),
          .boxes = true,
          .machine = problem.machine};
}

// With as many stages as fit beside the epilogue; the fastest first.
std::vector<PricedMatmul> tma_ways_of(const CudaProblem& problem, const CudaWindowAxes& axes,
                                      const CudaProblem& epilogue) {
  const CudaWindow &x = problem.inputs[0], &w = problem.inputs[1];
  const int64_t pixels = constant(axes[kW].out) * constant(axes[kH].out);
  MatmulSizes sizes{1, upper_bound(x.sizes[0], problem.ranges) * pixels, constant(w.sizes[0]),
                    tap_depth(w) * constant(axes[kW].kernel) * constant(axes[kH].kernel), true};
  sizes.f32 = w.dtype == DType::f32;
  sizes.machine = problem.machine;
  const auto per_stride = [](const CudaWindowAxis& axis) {
    return std::max(1.0,
                    static_cast<double>(constant(axis.kernel)) / static_cast<double>(constant(axis.stride)));
  };
  sizes.repeats = per_stride(axes[kW]) * per_stride(axes[kH]);
  std::vector<PricedMatmul> ways;
  for (auto [way, microseconds] : tma_ways(sizes, problem.arch)) {
    way.stages = std::min(way.stages, wgmma_most_stages(way, {true, true, way.block_m}));
    const bool is_known = std::any_of(ways.begin(), ways.end(), [&](const auto& w) { return w.way == way; });
    const double waits = wgmma_operand_waits(way, wgmma_tile(problem, epilogue, way, way.block_m));
    const double waited = matmul_operand_cycles(sizes, way, waits) / kCyclesPerMicrosecond;
    if (!is_known) ways.push_back({way, microseconds + waited});
  }
  std::stable_sort(ways.begin(), ways.end(),
                   [](const auto& a, const auto& b) { return a.microseconds < b.microseconds; });
  return ways;
}

MatmulWay choose_boxed(const CudaProblem& problem, const CudaWindowAxes& axes, const CudaProblem& epilogue) {
  for (const auto& [way, microseconds] : tma_ways_of(problem, axes, epilogue))
    if (!is_named(problem.way) || Way(ConvWay{ConvLoads::tma, way}) == problem.way) return way;
  AICF_CHECK(false, "a convolution that cannot run so: " + to_string(problem.way));
}

Plan resolve_boxes(const MatmulWay& way, const CudaProblem& problem, const CudaWindowAxes& axes) {
  const CudaWindow &x = problem.inputs[0], &w = problem.inputs[1];
  const int64_t images = upper_bound(x.sizes[0], problem.ranges), out_w = constant(axes[kW].out),
                out_h = constant(axes[kH].out);
  Plan plan;
  plan.way = way;
  plan.maps = constant(w.sizes[0]);
  plan.depth = tap_depth(w) * constant(axes[kW].kernel) * constant(axes[kH].kernel);
  plan.box = best_box(out_w, out_h, images, way.block_m, kMostPassed / constant(axes[kW].stride),
                      kMostPassed / constant(axes[kH].stride));
  plan.row_tiles =
      Dim(ceil_div(out_w, plan.box.w) * ceil_div(out_h, plan.box.h)) * ceildiv(x.sizes[0], Dim(plan.box.n));
  plan.tiles = plan.row_tiles * Dim(ceil_div(plan.maps, way.block_n));
  return plan;
}

std::string shape_text(const CudaProblem& problem, const CudaWindowAxes& axes, const Plan& plan) {
  std::string text = "struct Shape {\n";
  const auto add = [&](const char* name, int64_t value) {
    text += std::string("  static constexpr int ") + name + " = " + std::to_string(value) + ";\n";
  };
  add("kSpatialAxes", static_cast<int64_t>(spatial_axes(problem.inputs[1])));
  add("kHalves", halves_of(problem.inputs[1]));
  add("kChannels", tap_depth(problem.inputs[1]));
  add("kKernelW", constant(axes[kW].kernel));
  add("kOutW", constant(axes[kW].out)), add("kOutH", constant(axes[kH].out));
  add("kBoxW", plan.box.w), add("kBoxH", plan.box.h), add("kBoxN", plan.box.n);
  add("kRows", plan.way.block_m);
  add("kStrideW", constant(axes[kW].stride)), add("kStrideH", constant(axes[kH].stride));
  add("kDilationW", constant(axes[kW].dilation)), add("kDilationH", constant(axes[kH].dilation));
  add("kLowW", constant(axes[kW].low)), add("kLowH", constant(axes[kH].low));
  return text + "};\n";
}

std::string operands_text(const CudaWindowAxes& axes) {
  std::string text =
      "struct Operands : aicf::ConvTmaOperands<Shape> {\n"
      "  __device__ __forceinline__ void load_y(const CUtensorMap* map, uint32_t to, uint32_t barrier, int "
      "k, int "
      "column,\n                                         uint32_t) const {\n"
      "    const uint32_t tap = uint32_t(k) / Shape::kChannels;\n"
      "    aicf::load_box(map, to, barrier, int(uint32_t(k) % Shape::kChannels) / Shape::kHalves";
  if (!(axes[kW].kernel == Dim(1))) text += ", int(tap % Shape::kKernelW)";
  if (!(axes[kH].kernel == Dim(1))) text += ", int(tap / Shape::kKernelW)";
  return text + ", column);\n  }\n};\n";
}

std::vector<TensorMapSpec> maps_of(const CudaWindow& window, const CudaWindowAxes& axes, const Plan& plan) {
  const auto number = [](int64_t v) { return static_cast<int32_t>(v); };
  const bool is_plane = spatial_axes(window) == 2;
  TensorMapSpec x{0, {1}, {number(stage_channels(window))}, 128, {1}};
  const auto add_axis = [&](int32_t axis, int64_t box, int64_t step) {
    x.axes.push_back(axis), x.box.push_back(number(box)), x.steps.push_back(number(step));
  };
  add_axis(is_plane ? 3 : 2, plan.box.w, constant(axes[kW].stride));
  if (is_plane) add_axis(2, plan.box.h, constant(axes[kH].stride));
  add_axis(0, plan.box.n, 1);
  TensorMapSpec w{1, weight_axes(window, axes), {}, 128};
  w.box.assign(w.axes.size(), 1);
  w.box.front() = number(stage_channels(window));
  w.box.back() = plan.way.block_n;
  return {x, w};
}

}  // namespace

// Stages are of one tap. In tf32, where gathered operands are multiplied at half the rate, less than half of
// what is loaded may lack.
bool fills_stages(const CudaWindow& w) {
  if (!w.sizes[1].is_constant() || constant(w.sizes[1]) < 1) return false;
  return w.dtype == DType::f32 ? tap_depth(w) < 2 * halves_of(w) * constant(w.sizes[1])
                               : is_multiple(w.sizes[1], stage_channels(w));
}

int64_t stage_channels(const CudaWindow& window) { return kStepDepth / halves_of(window); }

std::vector<int32_t> weight_axes(const CudaWindow& w, const CudaWindowAxes& axes) {
  const auto last = static_cast<int32_t>(w.sizes.size()) - 1;
  std::vector<int32_t> list{1};
  if (!(axes[kW].kernel == Dim(1))) list.push_back(last);
  if (!(axes[kH].kernel == Dim(1))) list.push_back(last - 1);
  if (!(axes[kD].kernel == Dim(1))) list.push_back(last - 2);
  list.push_back(0);
  return list;
}

bool maps_channels_last(const CudaWindow& window, const SymbolRanges* ranges) {
  if (!(window.strides[1] == Dim(1)) || !is_multiple(window.offset, tma_vector(window))) return false;
  for (size_t axis = 0; axis < window.sizes.size(); ++axis)
    if (axis != 1 && !maps_axis(window, axis, ranges)) return false;
  return true;
}

bool copies_boxes(const CudaProblem& problem, const CudaWindowAxes& axes) {
  const CudaWindow &x = problem.inputs[0], &w = problem.inputs[1];
  if (asks_tf32(problem.params) && !(problem.params.back() == Dim(kRoundedY))) return false;
  if (problem.arch != 90 || x.sizes.size() < 3 || !problem.params[1].is_constant()) return false;
  int64_t pixels = 1;
  constexpr int64_t kMostRows = int64_t{1} << 30;
  for (const CudaWindowAxis& axis : axes) {
    for (const Dim* size : {&axis.in, &axis.out, &axis.kernel, &axis.stride, &axis.low, &axis.dilation})
      if (!size->is_constant()) return false;
    if (constant(axis.stride) > kMaxStep || constant(axis.in) < 1 || constant(axis.out) < 1 ||
        constant(axis.out) > kMostRows / pixels)
      return false;
    pixels *= constant(axis.out);
  }
  if (!w.sizes[0].is_constant() || constant(w.sizes[0]) < 1) return false;
  const Interval images = bounds(x.sizes[0], ranges_of(problem));
  if (images.lo < 1 || images.hi > kMostRows / pixels || images.hi * pixels <= kFewPixels) return false;
  if (!maps_channels_last(x, problem.ranges)) return false;
  if (!(w.strides[1] == Dim(1)) || !is_multiple(w.offset, tma_vector(w))) return false;
  for (const int32_t axis : weight_axes(w, axes))
    if (axis != 1 && !maps_axis(w, static_cast<size_t>(axis), problem.ranges)) return false;
  return true;
}

bool conv_tma_fits(const CudaProblem& problem, const CudaWindowAxes& axes) {
  return problem.params[1] == Dim(1) && spatial_axes(problem.inputs[0]) <= 2 && copies_boxes(problem, axes) &&
         fills_stages(problem.inputs[1]);
}

std::vector<KernelVariant> conv_tma_variants(const CudaProblem& problem, const CudaWindowAxes& axes,
                                             const CudaProblem& epilogue_problem) {
  std::vector<KernelVariant> variants;
  for (const auto& [way, microseconds] : tma_ways_of(problem, axes, epilogue_problem))
    variants.push_back({ConvWay{ConvLoads::tma, way}, microseconds});
  return variants;
}

CudaCode conv_tma_code(const CudaProblem& problem, const CudaWindowAxes& axes,
                       const CudaProblem& epilogue_problem) {
  const Plan plan = resolve_boxes(choose_boxed(problem, axes, epilogue_problem), problem, axes);
  const MatmulWay& c = plan.way;
  const WgmmaTile tile = wgmma_tile(problem, epilogue_problem, c, plan.box.rows());
  const Dim part_depth(ceil_div(ceil_div(plan.depth, split_parts(c)), kStepDepth) * kStepDepth);
  const DType dtype = problem.inputs[0].dtype;
  const bool tf32 = dtype == DType::f32;
  CudaParams params;
  const CudaEpilogue epilogue = cuda_epilogue(epilogue_problem, 2, params);
  CudaCode code;
  code.compile_cost = kLongToCompile;
  code.source =
      "#include \"prelude.cuh\"\n#include \"conv/cuda/conv_tma.cuh\"\n" + epilogue.text +
      (tf32 ? wgmma_multiply_tf32_text(c.block_n) : wgmma_multiply_text(dtype, c.block_n, true, true)) +
      shape_text(problem, axes, plan) + operands_text(axes);
  const std::string images = params.expr(problem.inputs[0].sizes[0]),
                    rows = params.expr(plan.row_tiles * Dim(c.block_m));
  const std::string body =
      "  const Epilogue inner = " + epilogue.make +
      ";\n  const aicf::BoxEpilogue<Shape, Epilogue> epilogue{inner, uint32_t(" + images +
      ")};\n  const Operands operands{{int32_t(" + rows + "), " + std::to_string(plan.maps) + ", " +
      std::to_string(plan.depth) + "}};\n  " +
      (tf32 ? "aicf::WgmmaTf32<" + wgmma_type_text(c, tile) + ", Multiply>" : wgmma_type_text(c, tile)) +
      "::run(operands, &map0, &map1, epilogue, " + part_depth.to_string() + ");\n}\n";
  CudaLaunch launch = wgmma_launch(c, tile, plan.tiles);
  launch.function = "conv_tma_" + std::string(dtype_name(dtype)) + "_" + std::to_string(c.block_m) + "x" +
                    std::to_string(c.block_n);
  launch.params = params.dims();
  launch.tensor_maps = maps_of(problem.inputs[0], axes, plan);
  code.source += cuda_kernel_head(problem, launch, false, c.occupancy) + body;
  code.launches.push_back(std::move(launch));
  return code;
}

}  // namespace aicf
