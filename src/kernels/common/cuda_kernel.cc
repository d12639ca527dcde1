#include "kernels/common/cuda_kernel.h"

#include <algorithm>

#include "kernels/common/kernel_revision.h"

namespace aicf {

#define AICF_CUDA_KERNEL(name, family, params, fparams, accumulation, tolerance, priority, accepts_program, \
                         min_arch, can_run, generate, ...)                                                  \
  bool can_run(const Problem& problem);                                                                     \
  CudaCode generate(const CudaProblem& problem);
#include "kernels/cuda_kernels.def"
#undef AICF_CUDA_KERNEL
#define AICF_CUDA_VARIANTS(kernel, variants, revision) \
  std::vector<KernelVariant> variants(const CudaProblem& problem);
#include "kernels/cuda_variants.def"
#undef AICF_CUDA_VARIANTS

const SymbolRanges& ranges_of(const CudaProblem& problem) {
  static const SymbolRanges kNone;
  return problem.ranges != nullptr ? *problem.ranges : kNone;
}

const std::vector<CudaKernel>& cuda_kernel_table() {
  static const std::vector<CudaKernel> table = {
#define AICF_CUDA_KERNEL(name, family, params, fparams, accumulation, tolerance, priority, accepts_program, \
                         min_arch, can_run, generate, ...)                                                  \
  CudaKernel{{#name,                                                                                        \
              #family,                                                                                      \
              params,                                                                                       \
              fparams,                                                                                      \
              accumulation,                                                                                 \
              tolerance,                                                                                    \
              priority,                                                                                     \
              accepts_program,                                                                              \
              can_run,                                                                                      \
              {__VA_ARGS__}},                                                                               \
             min_arch,                                                                                      \
             generate},
#include "kernels/cuda_kernels.def"
#undef AICF_CUDA_KERNEL
  };
  return table;
}

const CudaKernel* find_cuda_kernel(std::string_view name) {
  for (const CudaKernel& kernel : cuda_kernel_table())
    if (kernel.name == name) return &kernel;
  return nullptr;
}

std::vector<const CudaKernel*> cuda_candidates(const Problem& problem, int arch) {
  std::vector<const CudaKernel*> found;
  for (const CudaKernel& kernel : cuda_kernel_table()) {
    if (kernel.family != problem.family || kernel.min_arch > arch) continue;
    if (problem.has_program && !kernel.accepts_program) continue;
    if (kernel.can_run(problem)) found.push_back(&kernel);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const CudaKernel* a, const CudaKernel* b) { return a->priority > b->priority; });
  return found;
}

std::vector<KernelVariant> cuda_variants(const CudaKernel& kernel, const CudaProblem& problem) {
#define AICF_CUDA_VARIANTS(row, variants, revision) \
  if (kernel.name == #row) return variants(problem);
#include "kernels/cuda_variants.def"
#undef AICF_CUDA_VARIANTS
  return {};
}

int kernel_revision(std::string_view kernel) {
#define AICF_CUDA_VARIANTS(row, variants, revision) \
  if (kernel == #row) return revision;
#include "kernels/cuda_variants.def"
#undef AICF_CUDA_VARIANTS
  return 0;
}

}  // namespace aicf
