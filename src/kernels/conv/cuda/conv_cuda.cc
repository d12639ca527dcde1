// CUDA rows of conv and conv_transpose; those on matrix units are in conv_mma_cuda.cc, the depthwise ones in
// conv_depthwise_cuda.cc.
#include <algorithm>

#include "kernels/common/cuda_walk.h"
#include "kernels/common/element.h"
#include "kernels/conv/cuda/conv_problem_cuda.h"
#include "kernels/indexing/copy_cuda.h"
#include "kernels/tile/cuda/tile_cuda.h"

namespace aicf {
namespace {

constexpr int64_t kSimtTile = 64;
constexpr int32_t kBlock = 256;

CudaCode simt_code(const CudaProblem& problem, const ConvProblem& c, const std::string& name) {
  CudaParams params;
  const CudaEpilogue epilogue = cuda_epilogue(c.epilogue, kConvInputs, params);
  const DType dtype = problem.inputs[0].dtype;
  const bool pixels_fast = !(problem.inputs[0].strides[1] == Dim(1));
  const std::string body = operands_text(problem, c, "in0", "in1", params) +
                           "  const Epilogue epilogue = " + epilogue.make + ";\n  aicf::ConvSimt<" +
                           std::string(cuda_type(dtype)) + ", " + conv_accumulator(dtype) + ", " +
                           flag(c.pixel_rows) + ", " + flag(c.transposed) + ", " + flag(pixels_fast) + ", " +
                           flag(keeps_vectors(c)) + ">::run(o, epilogue);\n";
  CudaCode code;
  code.source = includes({"conv/cuda/conv_simt.cuh"}) + epilogue.text;
  CudaLaunch launch;
  launch.function = name + "_simt_" + std::string(dtype_name(dtype));
  launch.grid = {batches_of(c) * ceildiv(rows_of(c), Dim(kSimtTile)) * ceildiv(columns_of(c), Dim(kSimtTile)),
                 c.groups, Dim(1)};
  launch.block = kBlock;
  launch.params = params.dims();
  add_kernel(code, problem, std::move(launch), body);
  return code;
}

bool is_conv(const Problem& problem) {
  if (problem.inputs.size() < 2 || problem.outputs.empty() ||
      problem.inputs[0].dtype != problem.inputs[1].dtype)
    return false;
  const size_t rank = problem.inputs[0].sizes.size();
  return is_float(problem.inputs[0].dtype) && rank >= 3 && rank <= kSpatialAxes + 2;
}

}  // namespace

bool can_run_conv_mma(const Problem& problem) {
  return is_conv(problem) && (is_half(problem.inputs[0].dtype) || asks_tf32(problem.params));
}
bool can_run_conv_simt(const Problem& problem) { return is_conv(problem) && !asks_tf32(problem.params); }

// A thread reads its channel anew for each map: with more maps than the narrowest tile of a product has
// columns, a product reads it less often.
bool can_run_conv_depthwise(const Problem& problem) {
  constexpr int64_t kMostMaps = 8;  // of a channel
  if (!can_run_conv_simt(problem) || !(problem.inputs[1].sizes[1] == Dim(1))) return false;
  const std::optional<int64_t> maps = problem.inputs[1].sizes[0].constant(),
                               groups = problem.params[1].constant();
  return maps && groups && *maps <= kMostMaps * *groups;
}

bool can_run_conv_w_channels_last(const Problem& problem) {
  return problem.inputs.size() == 1 && problem.outputs.size() == 1 &&
         (is_half(problem.inputs[0].dtype) || problem.inputs[0].dtype == DType::f32);
}
CudaCode generate_conv_w_channels_last(const CudaProblem& problem) {
  CudaCode code;
  code.source = includes({"indexing/indexing.cuh"});
  add_copy(code, problem, 0, "conv_w_channels_last");
  return code;
}

CudaCode generate_conv_simt(const CudaProblem& problem) {
  ConvProblem conv = conv_problem(problem, false);
  conv.epilogue.program = &conv.program;
  return simt_code(problem, conv, "conv");
}
CudaCode generate_conv_transpose(const CudaProblem& problem) {
  ConvProblem conv = conv_problem(problem, true);
  conv.epilogue.program = &conv.program;
  return simt_code(problem, conv, "conv_transpose");
}

}  // namespace aicf
