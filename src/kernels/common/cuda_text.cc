#include "kernels/common/cuda_text.h"

#include <algorithm>

#include "base/error.h"

namespace aicf {

std::string_view cuda_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "double";
    case DType::f32:
      return "float";
    case DType::f16:
      return "aicf::f16";
    case DType::bf16:
      return "aicf::bf16";
    case DType::i64:
      return "int64_t";
    case DType::i32:
      return "int32_t";
    case DType::i16:
      return "int16_t";
    case DType::i8:
      return "int8_t";
    case DType::u8:
      return "uint8_t";
    case DType::boolean:
      return "bool";
    default:
      break;
  }
  AICF_CHECK(false, "a dtype without a CUDA type: " + std::string(dtype_name(dtype)));
}

std::string CudaParams::expr(const Dim& dim) {
  if (const auto value = dim.constant()) return "int64_t(" + std::to_string(*value) + ")";
  const auto at = std::find(dims_.begin(), dims_.end(), dim);
  return at == dims_.end() ? param(dim) : "p" + std::to_string(at - dims_.begin());
}

std::string CudaParams::param(const Dim& dim) {
  dims_.push_back(dim);
  return "p" + std::to_string(dims_.size() - 1);
}

std::string cuda_kernel_head(const CudaProblem& problem, const CudaLaunch& launch, bool workspace,
                             int min_blocks) {
  std::vector<std::string> args;
  if (is_member(problem)) args.emplace_back("const uint32_t block_index");
  const auto number = [](const char* prefix, size_t i) { return prefix + std::to_string(i); };
  const auto pointer = [](DType dtype, bool alone) {
    return std::string(cuda_type(dtype)) + (alone ? "* __restrict__ " : "* ");
  };
  for (size_t i = 0; i < problem.inputs.size(); ++i)
    args.push_back("const " +
                   pointer(problem.inputs[i].dtype, !is_member(problem) && problem.inputs[i].constant) +
                   number("in", i));
  for (size_t i = 0; i < problem.outputs.size(); ++i)
    args.push_back(pointer(problem.outputs[i].dtype, !is_member(problem) && problem.replaced.empty()) +
                   number("out", i));
  if (workspace) args.emplace_back("void* workspace");
  for (size_t i = 0; i < launch.params.size(); ++i) args.push_back("int64_t " + number("p", i));
  for (size_t i = 0; i < launch.fparams.size(); ++i) args.push_back("double " + number("f", i));
  for (size_t i = 0; i < launch.tensor_maps.size(); ++i)
    args.push_back("const __grid_constant__ CUtensorMap " + number("map", i));
  if (launch.reports_errors) args.emplace_back("aicf::CallError* error");
  std::string text = is_member(problem)
                         ? "static __device__ __forceinline__ void\n"
                         : "extern \"C\" __global__ void __launch_bounds__(" + std::to_string(launch.block) +
                               (min_blocks > 0 ? ", " + std::to_string(min_blocks) : "") + ")\n";
  text += launch.function + "(";
  for (size_t i = 0; i < args.size(); ++i) text += (i == 0 ? "" : ",\n    ") + args[i];
  return text + (is_member(problem) ? ") {\n" : ") {\n  const uint32_t block_index = blockIdx.x;\n");
}

std::string cuda_wait_text(const CudaProblem& problem) {
  return is_member(problem) ? "" : "aicf::wait_for_inputs();\naicf::launch_dependents();\n";
}

}  // namespace aicf
