#include "build/cuda_build.h"

#include <cstring>

#include "base/error.h"
#include "build/nvrtc.h"
#include "kernels/cuda_kernel.h"

namespace aicf {
namespace {

CudaWindow to_cuda(const Window& w) { return {w.dtype, w.offset, w.sizes, w.strides}; }

}  // namespace

int32_t CudaBuilder::intern_source(const std::string& source) {
  const auto [at, fresh] = index_.emplace(source, static_cast<int32_t>(sources_.size()));
  if (fresh) sources_.push_back(source);
  return at->second;
}

StepLaunches CudaBuilder::add_call(const KernelCall& call, const TileProgram* program) {
  const CudaKernel* kernel = find_cuda_kernel(call.kernel);
  AICF_CHECK(kernel != nullptr, "a selected kernel is not in the table: " + call.kernel);
  CudaProblem problem;
  for (const Window& w : call.inputs) problem.inputs.push_back(to_cuda(w));
  for (const Window& w : call.outputs) problem.outputs.push_back(to_cuda(w));
  problem.params = call.params;
  problem.fparams = call.fparams;
  problem.program = program;
  problem.ranges = &ranges_;
  problem.arch = target_.arch;
  CudaCode code = kernel->generate(problem);
  return {intern_source(code.source), std::move(code.launches), std::move(code.workspace_bytes)};
}

std::vector<StepLaunches> CudaBuilder::add(const KernelCalls& calls,
                                           const std::vector<TileProgram>& programs) {
  std::vector<StepLaunches> result;
  for (const KernelCall& call : calls.calls)
    result.push_back(
        add_call(call, call.region >= 0 ? &programs[static_cast<size_t>(call.region)] : nullptr));
  return result;
}

std::vector<StepLaunches> CudaBuilder::add_init(const KernelCalls& calls) {
  std::vector<StepLaunches> result;
  for (const KernelCall& call : calls.init_calls) result.push_back(add_call(call, nullptr));
  return result;
}

std::vector<Array> CudaBuilder::compile() const {
  std::vector<Array> modules;
  if (sources_.empty()) return modules;
  for (const CudaModuleImage& image : compile_cuda(sources_, target_.code_target())) {
    Array bytes(DType::u8, {static_cast<int64_t>(image.bytes.size())});
    std::memcpy(bytes.mutable_data(), image.bytes.data(), image.bytes.size());
    modules.push_back(std::move(bytes));
  }
  return modules;
}

}  // namespace aicf
