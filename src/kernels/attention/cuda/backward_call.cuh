// What the kernels of attention's gradients share. With weights P = softmax(s) of scores s and dP = dout v^T, the gradient
// of a score is dS = P (dP - sum over the keys of P dP), and that sum is `along` = sum(dout out) (Dao et al. 2022,
// "FlashAttention", appendix B). The first launch gives dq, and of every row the number from which weights are computed
// again: weight = 2^(kMultiplier s - level) with level = log2 of the row's sum of 2^(kMultiplier s). The second gives dk and
// dv. Scores are computed again by each; none is stored. `Traits` as in call.cuh, and
//   kVectorDout, kVectorDq, kVectorDk, kVectorDv   rows may be accessed by 16 bytes
//   kHasSums                                       the forward pass left the logarithms of the rows' sums
#pragma once

#include "attention/cuda/call.cuh"

namespace aicf::attention {

template <class Traits>
struct BackwardCall : Call<Traits> {
  using T = typename Traits::Element;
  const T *result, *dout;  // result: out of the forward pass, whose strides are out_view
  const float* sums;       // as the forward pass's Call::lse, or null
  T *dq, *dk, *dv;
  View dout_view, dq_view, dk_view, dv_view;
};

// Of each row, in the workspace: [batch · head][padded queries]. Rows beyond the last and rows without keys have a level of
// +infinity, so that their weights are 0.
template <class A>
struct RowNumbers {
  A *level, *along;
  int64_t padded;  // rows of a head, a multiple of 128
};

template <class A, class Traits>
__device__ __forceinline__ RowNumbers<A> row_numbers(const BackwardCall<Traits>& call, void* workspace, int64_t all_heads) {
  const int64_t padded = (int64_t(call.queries) + 127) / 128 * 128;
  A* const level = static_cast<A*>(workspace);
  return {level, level + all_heads * padded, padded};
}

// Queries [first_query, end_query) are those that see key `key`; of a range of keys, from the first's to the last's. The
// end may be at or before the first, if no query sees any.
template <class Traits>
__device__ __forceinline__ int32_t first_query(const Call<Traits>& call, int32_t key) {
  if (kAhead<Traits> == 0) return 0;
  const int32_t first = key - (kAhead<Traits> - 1) - (call.keys - call.queries);
  return first < 0 ? 0 : first;
}
template <class Traits>
__device__ __forceinline__ int32_t end_query(const Call<Traits>& call, int32_t key) {
  if (Traits::kWindow == 0) return call.queries;
  const int32_t end = key + Traits::kWindow - (call.keys - call.queries);
  return end < call.queries ? end : call.queries;
}

// A score as Scores gives it, and in `bend` its derivative by scale · product.
template <class Traits, class A>
__device__ __forceinline__ A score_and_bend(A product, A mask, A& bend) {
  bend = A(1);
  if constexpr (Traits::kSoftcap > 0) {
    const A t = tanh(product * A(Traits::kScale) / A(Traits::kSoftcap));
    bend = A(1) - t * t;
  }
  return Scores<Traits>::score(product, mask);
}

}  // namespace aicf::attention
