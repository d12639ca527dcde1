// The CUDA row of convolutions of few channels whose windows lie in shared memory (conv_halo.cuh), of sm_90a.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "kernels/common/cuda_walk.h"
#include "kernels/common/element.h"
#include "kernels/conv/cuda/conv_halo_ways.h"
#include "kernels/conv/cuda/conv_problem_cuda.h"
#include "kernels/matmul/cuda/wgmma_text.h"
#include "kernels/tile/cuda/tile_cuda.h"

namespace aicf {
namespace {

constexpr int64_t kHaloUnit = 8;  // halves in 16 bytes

BoxedWindows halo_windows(const CudaProblem& problem) {
  const CudaWindow &x = problem.inputs[0], &w = problem.inputs[1];
  return *boxed_windows(x.sizes[1], w.sizes[0], Shape(w.sizes.begin() + 2, w.sizes.end()), problem.params);
}

HaloSizes halo_sizes(const CudaProblem& problem, const ConvProblem& c) {
  const auto size = [&](const Dim& dim) { return std::max<int64_t>(size_to_choose_by(dim, problem), 1); };
  HaloSizes sizes;
  sizes.windows = halo_windows(problem);
  sizes.images = size(c.images), sizes.height = size(c.axes[1].out), sizes.width = size(c.axes[2].out);
  sizes.by_elements = channel_unit(problem.inputs[0]) != kHaloUnit;
  sizes.weights_by_elements = channel_unit(problem.inputs[1]) != kHaloUnit;
  sizes.result_bytes = conv_result_bytes(problem);
  sizes.scattered = c.pixel_rows ? 0 : scattered_outputs(c);
  sizes.machine = problem.machine;
  return sizes;
}

HaloPlan choose_halo(const CudaProblem& problem, const HaloSizes& sizes) {
  for (const HaloPlan& plan : halo_plans(sizes))
    if (!is_named(problem.way) || Way(halo_way(sizes, plan)) == problem.way) return plan;
  AICF_CHECK(false, "a convolution that cannot run so: " + to_string(problem.way));
}

std::string halo_type_text(const CudaProblem& problem, const ConvProblem& conv, const HaloSizes& sizes,
                           const HaloPlan& plan) {
  const auto number = [](int64_t v) { return ", " + std::to_string(v); };
  const int64_t stored = conv.pixel_rows ? std::gcd(sizes.windows.maps, kHaloUnit) : 1;
  return "aicf::ConvHalo<" + std::string(cuda_type(problem.inputs[0].dtype)) + ", Multiply, Shape" +
         number(plan.maps) + number(sizes.by_elements ? 1 : kHaloUnit) +
         number(sizes.weights_by_elements ? 1 : kHaloUnit) + ", " + flag(plan.patches) +
         number(plan.together) + number(plan.warpgroups) + number(plan.buffers) + ", " +
         flag(conv.pixel_rows) + number(stored) + ", " + flag(problem.inputs[1].constant) + ">";
}

}  // namespace

bool can_run_conv_halo(const Problem& problem) {
  if (problem.inputs.size() < 2 || problem.outputs.empty()) return false;
  const ProblemTensor &x = problem.inputs[0], &w = problem.inputs[1];
  if (!is_half(x.dtype) || x.dtype != w.dtype || x.sizes.size() < 3) return false;
  const auto windows =
      boxed_windows(x.sizes[1], w.sizes[0], Shape(w.sizes.begin() + 2, w.sizes.end()), problem.params);
  return windows && has_halo_plan(*windows);
}

CudaCode generate_conv_halo(const CudaProblem& problem) {
  ConvProblem conv = conv_problem(problem, false);
  conv.epilogue.program = &conv.program;
  const HaloSizes sizes = halo_sizes(problem, conv);
  const HaloPlan plan = choose_halo(problem, sizes);
  const DType dtype = problem.inputs[0].dtype;
  CudaParams params;
  const CudaEpilogue epilogue = cuda_epilogue(conv.epilogue, kConvInputs, params);
  const std::string body = operands_text(problem, conv, "in0", "in1", params) +
                           "  const Epilogue epilogue = " + epilogue.make + ";\n  " +
                           halo_type_text(problem, conv, sizes, plan) + "::run(o, epilogue);\n}\n";
  CudaCode code;
  code.compile_cost = kLongToCompile;
  code.source = includes({"conv/cuda/conv_halo.cuh"}) + epilogue.text +
                wgmma_multiply_text(dtype, static_cast<int>(plan.maps), true, true) +
                box_shape_text(sizes.windows, 1, plan.box);
  CudaLaunch launch;
  launch.function = "conv_halo_" + std::string(dtype_name(dtype));
  launch.grid = {min(box_count(conv.images, conv.axes, plan.box), Dim(plan.blocks)), Dim(plan.slices),
                 Dim(1)};
  launch.block = static_cast<int32_t>(128 * plan.warpgroups);
  launch.shared_bytes = plan.shared_bytes;
  launch.params = params.dims();
  if (problem.inputs[1].constant) launch.early_inputs = {1};
  code.source += "\n" + cuda_kernel_head(problem, launch, false, 1) + body;
  code.launches.push_back(std::move(launch));
  return code;
}

std::vector<KernelVariant> conv_halo_variants(const CudaProblem& problem) {
  const HaloSizes sizes = halo_sizes(problem, conv_problem(problem, false));
  std::vector<KernelVariant> variants;
  for (const HaloPlan& plan : halo_plans(sizes))
    variants.push_back({halo_way(sizes, plan), plan.microseconds});
  return variants;
}

}  // namespace aicf
