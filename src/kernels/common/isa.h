// Reaching code that exists once per ISA level. A file *_isa.cc is compiled for every level into namespace
// isa_portable, isa_avx2 or isa_avx512; its header declares the functions for all of them with
// AICF_DECLARE_PER_ISA and ordinary code, which includes kernels/common/abi.h, takes the one of a level with
// AICF_PICK_ISA. On other machines than x86-64 only the portable level exists.
#pragma once

#if AICF_X86
#define AICF_DECLARE_PER_ISA(...) \
  namespace isa_portable {        \
  __VA_ARGS__;                    \
  }                               \
  namespace isa_avx2 {            \
  __VA_ARGS__;                    \
  }                               \
  namespace isa_avx512 {          \
  __VA_ARGS__;                    \
  }
// Address of `function` as compiled for `level`.
#define AICF_PICK_ISA(level, function)                                  \
  ((level) == ::aicf::IsaLevel::kAvx512 ? &::aicf::isa_avx512::function \
   : (level) == ::aicf::IsaLevel::kAvx2 ? &::aicf::isa_avx2::function   \
                                        : &::aicf::isa_portable::function)
#else
#define AICF_DECLARE_PER_ISA(...) \
  namespace isa_portable {        \
  __VA_ARGS__;                    \
  }
#define AICF_PICK_ISA(level, function) ((void)(level), &::aicf::isa_portable::function)
#endif
