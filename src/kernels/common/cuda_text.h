// Writing kernel text: names of types, symbolic sizes as launch params, and the signature of the launch ABI
// with its fixed names. Used by the rows of the CUDA table.
#pragma once

#include <string>
#include <vector>

#include "kernels/common/cuda_kernel.h"

namespace aicf {

// "float", "aicf::f16", "int64_t", …: element types of prelude.cuh.
std::string_view cuda_type(DType dtype);

// Sizes and strides in kernel text: a constant is written out, anything else becomes a launch param `p<i>`,
// each Dim once.
class CudaParams {
 public:
  // A parenthesised expression of type int64_t.
  std::string expr(const Dim& dim);
  // A launch param of its own, also for a constant: texts that do not depend on sizes are shared.
  std::string param(const Dim& dim);
  const std::vector<Dim>& dims() const { return dims_; }

 private:
  std::vector<Dim> dims_;
};

// The head of a kernel up to and including the opening brace:
//   extern "C" __global__ void __launch_bounds__(block) name(
//       const T* in0, …, T* __restrict__ out0, …, void* workspace, int64_t p0, …, double f0, …,
//       const __grid_constant__ CUtensorMap map0, …, aicf::CallError* error) {
// and the number of the block as `block_index`. For a member of a bundle it is a function that the bundle's
// kernel calls:
//   static __device__ __forceinline__ void name(const uint32_t block_index, const T* in0, …) {
// Of inputs only constants are `__restrict__`: memory known to be read only is read past the caches that see
// writes, and before aicf::wait_for_inputs(), whatever the text says (seen on H200). No pointer of a member
// is: what one writes, the next reads. `launch` says how many params, fparams and maps there are;
// `min_blocks` per multiprocessor, 0 leaves it open.
std::string cuda_kernel_head(const CudaProblem& problem, const CudaLaunch& launch, bool workspace,
                             int min_blocks = 0);

// The wait for the launches before, after which the next one may begin; nothing for a member, whose kernel
// has waited.
std::string cuda_wait_text(const CudaProblem& problem);

}  // namespace aicf
