// The operations of chains on vectors, for the files compiled once per ISA level. The bits are those of the
// single operations in tile_functions.h.
#pragma once

#include "kernels/tile/cpu/tile_chain.h"
#include "kernels/tile/cpu/vector_math.h"

namespace aicf {
namespace AICF_ISA_NAMESPACE {

// Lambdas below must be inlined: an array that one of them takes the address of would live in memory.
#define AICF_LAMBDA __attribute__((always_inline))

// Calls f(j) for all j.value < kCount. Not a loop where vectors are registers, so that arrays of them become
// registers. Vectors that the compiler emulates lie in memory in any case: a loop there, because unrolled
// code for dozens of them takes a minute to compile.
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
struct Index {
  int value;
};
template <int kCount, class F>
static HWY_INLINE void each_index(const F& f) {
#pragma GCC unroll 1
  for (int j = 0; j < kCount; ++j) f(Index{j});
}
#else
template <int J>
struct Index {
  static constexpr int value = J;
};
template <int kCount, int J = 0, class F>
static HWY_INLINE void each_index(const F& f) {
  if constexpr (J < kCount) {
    f(Index<J>());
    each_index<kCount, J + 1>(f);
  }
}
#endif

// Functions of one value. Not inlined: their constants would take the registers that hold the values of all
// others.
template <int kCount, class D, class V>
static HWY_NOINLINE void apply_chain_function(D d, int32_t op, V* v) {
#define AICF_EACH_VECTOR(function)                           \
  for (int j = 0; j < kCount; ++j) v[j] = function(d, v[j]); \
  return
  switch (op) {
    case kChainExp:
      AICF_EACH_VECTOR(vector_exp);
    case kChainLog:
      AICF_EACH_VECTOR(vector_log);
    case kChainTanh:
      AICF_EACH_VECTOR(vector_tanh);
    case kChainSigmoid:
      AICF_EACH_VECTOR(vector_sigmoid);
    case kChainGelu:
      AICF_EACH_VECTOR(vector_gelu);
    case kChainGeluTanh:
      AICF_EACH_VECTOR(vector_gelu_tanh);
  }
#undef AICF_EACH_VECTOR
}

// v[j] = v[j] op operand(j), operands the other way round if reversed, for kCount vectors at once: an
// operation then costs more than choosing it. `operand` is called only by operations that have one.
template <int kCount, class D, class V, class Operand>
static HWY_INLINE void apply_chain_op(D d, int32_t op, int32_t reversed, V (&v)[kCount],
                                      const Operand& operand) {
#define AICF_EACH_VECTOR(expression)           \
  each_index<kCount>([&](auto j) AICF_LAMBDA { \
    const V x = v[j.value];                    \
    v[j.value] = expression;                   \
  });                                          \
  return
#define AICF_EACH_ORDERED(forward, backward) \
  if (reversed) {                            \
    AICF_EACH_VECTOR(backward);              \
  }                                          \
  AICF_EACH_VECTOR(forward)
  switch (op) {
    case kChainAdd:
      AICF_EACH_VECTOR(hn::Add(x, operand(j)));
    case kChainMul:
      AICF_EACH_VECTOR(hn::Mul(x, operand(j)));
    case kChainSub:
      AICF_EACH_ORDERED(hn::Sub(x, operand(j)), hn::Sub(operand(j), x));
    case kChainDiv:
      AICF_EACH_ORDERED(hn::Div(x, operand(j)), hn::Div(operand(j), x));
    case kChainMax:
      AICF_EACH_ORDERED(max_nan(d, x, operand(j)), max_nan(d, operand(j), x));
    case kChainMin:
      AICF_EACH_ORDERED(min_nan(d, x, operand(j)), min_nan(d, operand(j), x));
    case kChainSqrt:
      AICF_EACH_VECTOR(hn::Sqrt(x));
    case kChainRsqrt:
      AICF_EACH_VECTOR(hn::Div(hn::Set(d, 1), hn::Sqrt(x)));
    case kChainNeg:
      AICF_EACH_VECTOR(hn::Neg(x));
    default: {
      V values[kCount];
      each_index<kCount>([&](auto j) AICF_LAMBDA { values[j.value] = v[j.value]; });
      apply_chain_function<kCount>(d, op, values);
      each_index<kCount>([&](auto j) AICF_LAMBDA { v[j.value] = values[j.value]; });
    }
  }
#undef AICF_EACH_ORDERED
#undef AICF_EACH_VECTOR
}

}  // namespace AICF_ISA_NAMESPACE
}  // namespace aicf
