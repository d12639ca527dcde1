#include "kernels/common/kernel.h"

#include <algorithm>
#include <unordered_map>

#include "kernels/common/cuda_kernel.h"

#if AICF_X86
#include <cpuid.h>
#endif

namespace aicf {

#define AICF_KERNEL(name, family, params, fparams, accumulation, tolerance, priority, accepts_program, \
                    can_run, prepare, ...)                                                             \
  bool can_run(const Problem& problem);                                                                \
  void prepare(BoundCall& call);
#include "kernels/kernels.def"
#undef AICF_KERNEL

const std::vector<Kernel>& kernel_table() {
  static const std::vector<Kernel> table = {
#define AICF_KERNEL(name, family, params, fparams, accumulation, tolerance, priority, accepts_program, \
                    can_run, prepare, ...)                                                             \
  Kernel{{#name,                                                                                       \
          #family,                                                                                     \
          params,                                                                                      \
          fparams,                                                                                     \
          accumulation,                                                                                \
          tolerance,                                                                                   \
          priority,                                                                                    \
          accepts_program,                                                                             \
          can_run,                                                                                     \
          {__VA_ARGS__}},                                                                              \
         prepare},
#include "kernels/kernels.def"
#undef AICF_KERNEL
  };
  return table;
}

const Kernel* find_kernel(std::string_view name) {
  for (const Kernel& kernel : kernel_table())
    if (kernel.name == name) return &kernel;
  return nullptr;
}

std::vector<const Kernel*> candidates(const Problem& problem) {
  std::vector<const Kernel*> found;
  for (const Kernel& kernel : kernel_table()) {
    if (kernel.family != problem.family || (problem.has_program && !kernel.accepts_program)) continue;
    if (kernel.can_run(problem)) found.push_back(&kernel);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Kernel* a, const Kernel* b) { return a->priority > b->priority; });
  return found;
}

const KernelRow* find_row(std::string_view name) {
  static const std::unordered_map<std::string_view, const KernelRow*> rows = [] {
    std::unordered_map<std::string_view, const KernelRow*> all;
    for (const Kernel& row : kernel_table()) all.emplace(row.name, &row);
    for (const CudaKernel& row : cuda_kernel_table()) all.emplace(row.name, &row);
    return all;
  }();
  const auto found = rows.find(name);
  return found == rows.end() ? nullptr : found->second;
}

const KernelFacts& facts_of(std::string_view kernel) {
  static const KernelFacts kNone;
  const KernelRow* row = find_row(kernel);
  return row == nullptr ? kNone : row->facts;
}

bool overwrites_operand(std::string_view family, size_t input) {
  const auto says = [&](const KernelRow& row) { return row.family == family && row.overwrites(input); };
  return std::any_of(kernel_table().begin(), kernel_table().end(), says) ||
         std::any_of(cuda_kernel_table().begin(), cuda_kernel_table().end(), says);
}

#if AICF_X86
namespace {

// State components that the operating system saves: bits 1 and 2 are the 128- and 256-bit registers, 5 to 7
// the masks and the 512-bit registers.
uint64_t saved_state() {
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

IsaLevel probe_isa() {
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return IsaLevel::kPortable;
  // FMA, AES, PCLMUL, F16C, OSXSAVE, AVX: what the flags of the avx2 level let the compiler use.
  constexpr uint32_t kLeaf1 = (1u << 12) | (1u << 25) | (1u << 1) | (1u << 29) | (1u << 27) | (1u << 28);
  if ((c & kLeaf1) != kLeaf1) return IsaLevel::kPortable;
  const uint64_t saved = saved_state();
  if ((saved & 0x6) != 0x6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return IsaLevel::kPortable;
  constexpr uint32_t kAvx2Bits = (1u << 5) | (1u << 3) | (1u << 8);  // AVX2, BMI1, BMI2
  if ((b & kAvx2Bits) != kAvx2Bits) return IsaLevel::kPortable;
  constexpr uint32_t kAvx512Bits =
      (1u << 16) | (1u << 17) | (1u << 28) | (1u << 30) | (1u << 31);  // F DQ CD BW VL
  if ((b & kAvx512Bits) != kAvx512Bits || (saved & 0xe6) != 0xe6) return IsaLevel::kAvx2;
  return IsaLevel::kAvx512;
}

}  // namespace

IsaLevel detect_isa() {
  static const IsaLevel level = probe_isa();
  return level;
}
#else
IsaLevel detect_isa() { return IsaLevel::kPortable; }
#endif

std::string_view isa_name(IsaLevel level) {
  switch (level) {
    case IsaLevel::kPortable:
      return "portable";
    case IsaLevel::kAvx2:
      return "avx2";
    case IsaLevel::kAvx512:
      return "avx512";
  }
  return "unknown";
}

}  // namespace aicf
