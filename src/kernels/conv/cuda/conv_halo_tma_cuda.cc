#include "kernels/conv/cuda/conv_halo_tma_cuda.h"

#include "base/error.h"
#include "base/rounding.h"
#include "kernels/common/cuda_walk.h"
#include "kernels/conv/cuda/conv_halo_tma_ways.h"
#include "kernels/conv/cuda/conv_problem_cuda.h"
#include "kernels/conv/cuda/conv_tma_cuda.h"
#include "kernels/matmul/cuda/matmul_cuda.h"
#include "kernels/matmul/cuda/wgmma_text.h"
#include "kernels/tile/cuda/tile_cuda.h"

namespace aicf {
namespace {

constexpr size_t kHaloDepth = 0, kHaloRows = 1, kHaloColumns = 2;  // of the three spatial axes

int64_t halo_size(const Dim& dim) { return dim.require_constant("a size of a convolution"); }
bool takes_halves(const CudaProblem& epilogue) { return epilogue_tile(*epilogue.program).has_value(); }

// Of f32 for which no tf32 is asked.
bool is_by_parts(const CudaProblem& problem) {
  return problem.inputs[0].dtype == DType::f32 && !asks_tf32(problem.params);
}

HaloTmaSizes halo_tma_sizes(const CudaProblem& problem, const ConvProblem& conv) {
  const CudaWindowAxes& axes = conv.axes;
  const CudaWindow &x = problem.inputs[0], &w = problem.inputs[1];
  HaloTmaSizes sizes;
  sizes.images = upper_bound(x.sizes[0], problem.ranges);
  sizes.depth = halo_size(axes[kHaloDepth].out), sizes.depth_taps = halo_size(axes[kHaloDepth].kernel);
  sizes.height = halo_size(axes[kHaloRows].out), sizes.width = halo_size(axes[kHaloColumns].out);
  sizes.groups = halo_size(conv.groups);
  sizes.channels = halo_size(w.sizes[1]), sizes.maps = halo_size(w.sizes[0]) / sizes.groups;
  for (const size_t axis : {kHaloRows, kHaloColumns}) {
    sizes.kernel[axis - kHaloRows] = halo_size(axes[axis].kernel);
    sizes.stride[axis - kHaloRows] = halo_size(axes[axis].stride);
    sizes.dilation[axis - kHaloRows] = halo_size(axes[axis].dilation);
  }
  sizes.element_bytes = dtype_bytes(x.dtype);
  sizes.by_parts = is_by_parts(problem);
  sizes.tile_bytes = takes_halves(conv.epilogue) ? 2 : 4;
  sizes.pixel_rows = conv.pixel_rows;
  sizes.result_bytes = conv_result_bytes(problem);
  sizes.scattered = conv.pixel_rows ? 0 : scattered_outputs(conv);
  sizes.machine = problem.machine;
  return sizes;
}

HaloTmaPlan choose_halo_tma(const CudaProblem& problem, const HaloTmaSizes& sizes) {
  for (const HaloTmaPlan& plan : halo_tma_plans(sizes))
    if (!is_named(problem.way) || Way(halo_tma_way(plan)) == problem.way) return plan;
  AICF_CHECK(false, "a convolution that cannot run so: " + to_string(problem.way));
}

std::string halo_tma_shape_text(const HaloTmaSizes& s, const CudaWindowAxes& axes, const HaloTmaPlan& plan,
                                size_t spatial_axes) {
  std::string text = "struct Shape {\n";
  const auto add = [&](const char* name, int64_t value) {
    text += std::string("  static constexpr int ") + name + " = " + std::to_string(value) + ";\n";
  };
  add("kSpatialAxes", static_cast<int64_t>(spatial_axes));
  add("kHalves", s.element_bytes / 2);
  add("kSlices", plan.slices), add("kLastInstructions", plan.last_instructions);
  add("kGroups", s.groups), add("kChannels", s.channels), add("kMaps", s.maps);
  add("kOutW", s.width), add("kOutH", s.height), add("kOutD", s.depth);
  add("kRows", plan.rows), add("kColumns", plan.columns), add("kImages", plan.images);
  text += "  static constexpr bool kPatches = " + flag(plan.patches) + ";\n";
  add("kKernelW", s.kernel[1]), add("kKernelH", s.kernel[0]);
  add("kStrideW", s.stride[1]), add("kStrideH", s.stride[0]);
  add("kDilationW", s.dilation[1]), add("kDilationH", s.dilation[0]);
  add("kLowW", halo_size(axes[kHaloColumns].low)), add("kLowH", halo_size(axes[kHaloRows].low));
  const CudaWindowAxis& depth = axes[kHaloDepth];
  add("kKernelD", s.depth_taps), add("kStrideD", halo_size(depth.stride));
  add("kDilationD", halo_size(depth.dilation)), add("kLowD", halo_size(depth.low));
  return text + "};\n";
}

// Whether registers have room for the operands of two chunks of maps beside the sums.
bool fetches_ahead(const ConvProblem& conv) {
  if (!conv.pixel_rows) return false;
  const CudaProblem& epilogue = conv.epilogue;
  constexpr int kRoom = 48, kVectors = 2;
  const bool halves = takes_halves(epilogue);
  const ChunkRegisters chunk = chunk_registers(epilogue, kConvInputs, halves, 64);
  const int pieces = halves ? 1 : 2;  // vectors have 8 maps here, of f32 twice those of WgmmaChunks
  return pieces * (2 * kVectors * chunk.own + chunk.shared) <= kRoom;
}

std::string halo_tma_type_text(const CudaProblem& problem, const ConvProblem& conv, const HaloTmaPlan& plan) {
  const auto number = [](int64_t v) { return std::to_string(v) + ", "; };
  const std::string first = is_by_parts(problem) ? "MultiplyFirst" : "aicf::NoParts";
  return "aicf::ConvHaloTma<Multiply, " + first + ", Shape, " + number(plan.maps) + number(plan.buffers) +
         number(plan.stages) + flag(plan.keeps_weights) + ", " + flag(conv.pixel_rows) + ", " +
         flag(fetches_ahead(conv)) + ", " + flag(problem.inputs[1].constant) + ">";
}

// The instructions, of the pixels of a warpgroup.
std::string multiply_text(DType dtype, const HaloTmaSizes& s, const HaloTmaPlan& plan) {
  const int pixels = static_cast<int>(plan.pixels);
  if (!s.by_parts) return wgmma_multiply_text(dtype, pixels, true, true);
  const int columns = plan.maps == 64 ? round_up((pixels + 1) / 2, 8) : pixels;
  return wgmma_multiply_tf32_text(columns) + wgmma_multiply_tf32_text(columns, false);
}

std::vector<TensorMapSpec> halo_tma_maps(const CudaProblem& problem, const CudaWindowAxes& axes,
                                         const HaloTmaPlan& plan) {
  constexpr int32_t kSwizzle = 128;
  const auto number = [](int64_t v) { return static_cast<int32_t>(v); };
  const CudaWindow &x = problem.inputs[0], &w = problem.inputs[1];
  const int32_t channels = number(stage_channels(x));
  TensorMapSpec boxes{0, {1}, {channels}, kSwizzle, {1}};
  const auto add_axis = [&](int32_t axis, int64_t box, int64_t step) {
    boxes.axes.push_back(axis), boxes.box.push_back(number(box)), boxes.steps.push_back(number(step));
  };
  const size_t rank = x.sizes.size();
  add_axis(number(static_cast<int64_t>(rank)) - 1, plan.width, halo_size(axes[kHaloColumns].stride));
  if (rank >= 4)
    add_axis(number(static_cast<int64_t>(rank)) - 2, plan.height, halo_size(axes[kHaloRows].stride));
  if (rank >= 5) add_axis(2, 1, 1);  // a plane at a time
  add_axis(0, plan.images, 1);
  TensorMapSpec weights{1, weight_axes(w, axes), {}, kSwizzle};
  weights.box.assign(weights.axes.size(), 1);
  weights.box.front() = channels;
  weights.box.back() = number(plan.maps);
  return {boxes, weights};
}

}  // namespace

bool conv_halo_tma_fits(const CudaProblem& problem, const ConvProblem& conv) {
  const CudaWindowAxes& axes = conv.axes;
  const bool f32 = problem.inputs[0].dtype == DType::f32;
  if (!copies_boxes(problem, axes) || (f32 && !fills_stages(problem.inputs[1]))) return false;
  constexpr int64_t kInstructionBytes = 32, kMapsVector = 8;
  if (!(conv.groups == Dim(1)) &&
      (!is_multiple(conv.channels, kInstructionBytes / dtype_bytes(problem.inputs[0].dtype)) ||
       !is_multiple(conv.maps, kMapsVector)))
    return false;
  const auto is_one = [](const Dim& dim) { return dim == Dim(1); };
  const CudaWindowAxis &rows = axes[kHaloRows], &columns = axes[kHaloColumns];
  const bool strided = !is_one(rows.stride) || !is_one(columns.stride);
  const bool dilated = !is_one(rows.dilation) || !is_one(columns.dilation);
  const Dim& channels = problem.inputs[1].sizes[1];
  return channels.is_constant() && halo_size(channels) > 0 && !(strided && dilated) &&
         (is_by_parts(problem) || !(is_one(rows.kernel) && is_one(columns.kernel)));
}

std::vector<KernelVariant> conv_halo_tma_variants(const CudaProblem& problem, const ConvProblem& conv) {
  std::vector<KernelVariant> variants;
  for (const HaloTmaPlan& plan : halo_tma_plans(halo_tma_sizes(problem, conv)))
    variants.push_back({halo_tma_way(plan), plan.microseconds});
  return variants;
}

CudaCode conv_halo_tma_code(const CudaProblem& problem, const ConvProblem& conv) {
  const CudaWindowAxes& axes = conv.axes;
  const CudaProblem& epilogue_problem = conv.epilogue;
  const HaloTmaSizes sizes = halo_tma_sizes(problem, conv);
  const HaloTmaPlan plan = choose_halo_tma(problem, sizes);
  const CudaWindow &x = problem.inputs[0], &w = problem.inputs[1];
  CudaParams params;
  const CudaEpilogue epilogue = cuda_epilogue(epilogue_problem, kConvInputs, params);
  CudaCode code;
  code.compile_cost = kLongToCompile;
  code.source = includes({"conv/cuda/conv_halo_tma.cuh"}) + epilogue.text +
                multiply_text(x.dtype, sizes, plan) +
                halo_tma_shape_text(sizes, axes, plan, w.sizes.size() - 2);
  const std::string body = (sizes.by_parts ? operands_text(problem, conv, "in0", "in1", params) : "") +
                           "  const Epilogue epilogue = " + epilogue.make + ";\n  " +
                           halo_tma_type_text(problem, conv, plan) + "::run(&map0, &map1, epilogue, int(" +
                           params.expr(x.sizes[0] * Dim(sizes.depth)) + ")" + (sizes.by_parts ? ", o" : "") +
                           ");\n}\n";
  CudaLaunch launch;
  launch.function = (sizes.by_parts ? "conv_tf32x3_" : "conv_halo_tma_") + std::string(dtype_name(x.dtype));
  launch.block = 384;
  const Dim tiles(ceil_div(sizes.height, plan.rows) * ceil_div(sizes.width, plan.columns) * sizes.groups *
                  ceil_div(sizes.maps, plan.maps));
  launch.grid[0] = min(tiles * ceildiv(x.sizes[0] * Dim(sizes.depth), Dim(plan.images)),
                       Dim(problem.machine.multiprocessors));
  launch.shared_bytes = plan.shared_bytes;
  launch.params = params.dims();
  launch.tensor_maps = halo_tma_maps(problem, axes, plan);
  if (w.constant) launch.early_inputs = {1};
  code.source += "\n" + cuda_kernel_head(problem, launch, false, 1) + body;
  code.launches.push_back(std::move(launch));
  return code;
}

}  // namespace aicf
