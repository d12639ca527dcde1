// Scatters on a copy of x of which the result does not depend on the order of the updates, by atomic operations: sums
// of integers, maxima and minima, sums of floats that all are whole numbers without rounding, one element everywhere.
#pragma once

#include "indexing/scatter.cuh"

namespace aicf {

template <class T>
struct HasNan : IsFloat<T> {};
template <>
struct HasNan<f16> {
  static constexpr bool value = true;
};
template <>
struct HasNan<bf16> {
  static constexpr bool value = true;
};

__device__ __forceinline__ bool is_nan(float x) { return x != x; }
__device__ __forceinline__ bool is_nan(double x) { return x != x; }
template <class Half>
__device__ __forceinline__ bool is_nan(Half x) {
  return is_nan(to_float(x));
}

// The bits of a float as a number that ascends with it; -0 comes before 0.
template <class Word>
__device__ __forceinline__ int64_t ascending(Word bits) {
  constexpr Word kSign = Word(Word(1) << (8 * sizeof(Word) - 1));
  return (bits & kSign) != 0 ? -int64_t(Word(bits & Word(~kSign))) - 1 : int64_t(bits);
}

// The larger or smaller of floats. A NaN stays, and one that comes has always the same bits. What is there only grows, or
// only shrinks, so most updates need no more than a look.
template <int kReduction, class T>
__device__ __forceinline__ void combine_floats_atomically(T* to, T update) {
  using Word = Bits<sizeof(T)>;
  const bool makes_nan = is_nan(update);
  const Word bits = makes_nan ? Word(Word(~Word(0)) >> 1) : *reinterpret_cast<const Word*>(&update);
  Word* place = reinterpret_cast<Word*>(to);
  Word old = *static_cast<const volatile Word*>(place);
  while (!is_nan(*reinterpret_cast<const T*>(&old))) {
    const bool stays = kReduction == kMax ? ascending(bits) <= ascending(old) : ascending(bits) >= ascending(old);
    if (stays && !makes_nan) return;
    const Word seen = atomicCAS(place, old, bits);
    if (seen == old) return;
    old = seen;
  }
}

template <int kReduction, class T>
__device__ __forceinline__ void combine_atomically(T* to, T update) {
  if constexpr (kReduction == kReplace)
    *to = update;
  else if constexpr ((kReduction == kMax || kReduction == kMin) && HasNan<T>::value)
    combine_floats_atomically<kReduction>(to, update);
  else if constexpr (kReduction == kMax)
    atomicMax(to, update);
  else if constexpr (kReduction == kMin)
    atomicMin(to, update);
  else if constexpr (IsFloat<T>::value || sizeof(T) == 4)
    atomicAdd(to, update);
  else  // wraps
    atomicAdd(reinterpret_cast<uint64_t*>(to), uint64_t(update));
}

// Where element `offset` of the block of an update goes in the output, and where it comes from; -1 if it is left out.
template <class Index, class I, int LR, int PR, int BR, int K>
__device__ __forceinline__ int64_t place_of(const Scatter<I, LR, PR, BR, K>& s, const Index* indices, I line, I offset,
                                            I& from, CallError* error) {
  const WideItem item = s.template item<WideItem, true, false>(indices, kNotCarried, line, error);
  if (item.is_last()) return -1;
  I place[2] = {0, 0}, inner[3] = {0, 0, 0};
  s.places.locate(I(item.key()), place);
  s.block.locate(offset, inner);
  from = s.update(line) + inner[0];
  return place[0] + inner[1];
}

// One thread per element of the updates. kAlike: all are one element, so that a warp adds what it has for one place at once.
template <int kReduction, bool kAlike, class T, class Index, class I, int LR, int PR, int BR, int K>
__device__ __forceinline__ void combine_in_any_order(const Scatter<I, LR, PR, BR, K>& s, const Index* indices,
                                                     const T* updates, T* out, CallError* error) {
  const I length = s.block.count(), flat = flat_thread<I>();
  int64_t to = -1;
  I from = 0;
  if (!past(flat, s.lines.count() * length)) {
    const I line = divide(flat, length);
    to = place_of(s, indices, line, flat - line * length, from, error);
  }
  T update{};
  if (to >= 0) update = updates[from];
  if constexpr (kAlike && kReduction == kAdd) {
    const uint32_t equal = __ballot_sync(0xffffffffu, to == __shfl_sync(0xffffffffu, to, 0));
    if (equal & 1u << threadIdx.x % 32) {
      if (threadIdx.x % 32 != 0) return;
      update = wrapping_mul<T>(update, T(__popc(equal)));
    }
  }
  if (to >= 0) combine_atomically<kReduction>(out + to, update);
}

// How often each of few targets is met, times the update that all are. Blocks share out the updates; dynamic shared memory has
// four bytes for each target.
template <class T, class Index, class I, int LR, int PR, int BR, int K>
__device__ __forceinline__ void count_updates(const Scatter<I, LR, PR, BR, K>& s, const Index* indices, int64_t count,
                                              int targets, const T* updates, T* out, CallError* error) {
  constexpr int kAhead = 4;
  extern __shared__ __align__(16) char order_memory[];
  uint32_t* counts = reinterpret_cast<uint32_t*>(order_memory);
  for (int t = threadIdx.x; t < targets; t += blockDim.x) counts[t] = 0;
  __syncthreads();
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; first < count; first += kAhead * step) {
    WideItem items[kAhead];  // read at once: no load passes a report
#pragma unroll
    for (int n = 0; n < kAhead; ++n)
      items[n] = s.template item<WideItem, false, false>(indices, kNotCarried, min(first + n * step, count - 1), error);
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      if (first + n * step >= count) break;
      if (items[n].is_last())
        s.template item<WideItem, true, false>(indices, kNotCarried, first + n * step, error);
      else
        atomicAdd(&counts[items[n].key()], 1u);
    }
  }
  __syncthreads();
  for (int t = threadIdx.x; t < targets; t += blockDim.x) {
    if (counts[t] == 0) continue;
    I place[2] = {0, 0};
    s.places.locate(I(t), place);
    combine_atomically<kAdd>(out + place[0], wrapping_mul<T>(*updates, T(counts[t])));
  }
}

}  // namespace aicf
