// What every generated translation unit includes first: integer names, the element types, data errors, programmatic
// launch. No header of the toolkit is included, because a user's machine need not have them.
#pragma once

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef unsigned long long uintptr_t;

struct alignas(64) CUtensorMap {
  uint64_t opaque[16];
};

namespace aicf {

// Half types as bits; arithmetic is done in float. Conversions round to nearest even.
struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};

__device__ __forceinline__ float to_float(f16 x) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
  return result;
}
__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float(uint32_t(x.bits) << 16); }
__device__ __forceinline__ float to_float(float x) { return x; }

template <class T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ f16 from_float<f16>(float x) {
  f16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float x) {
  bf16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}

// The first data-dependent error of a launch: an index `value` outside a size of `bound`. In host memory that the
// device maps; the host reads it after the run.
struct CallError {
  int32_t raised;
  int32_t reserved;
  int64_t value, bound;
};

// Several threads may raise; which value is kept does not matter, and an atomic on the host's memory is not possible on
// every machine. All errors of one call have one bound.
__device__ __forceinline__ void raise(CallError* error, int64_t value, int64_t bound) {
  volatile CallError* kept = error;
  kept->value = value;
  kept->bound = bound;
  __threadfence_system();
  kept->raised = 1;
}

// Brings a tensor map close to the copy engine, which would else read it from memory when it first needs it: a microsecond
// after the wait, if it is a launch's own.
__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
#if __CUDA_ARCH__ >= 900
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
#endif
}

// Programmatic dependent launch: the launch before may still be running when this one starts; after the wait all its
// writes are visible. Before, nothing may be written to global memory, and only constant operands be read.
__device__ __forceinline__ void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the next launch start its prologue while this one still runs. Called after the wait, never before: a launch that
// starts before the last but one has ended can meet lines of its inputs in an L1 cache that were read there before they
// were written (seen on H100).
__device__ __forceinline__ void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// All kThreads threads of a kernel's block, or of a member of a bundle, whose block may have more.
template <int kThreads>
__device__ __forceinline__ void sync_threads() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

}  // namespace aicf
