// Gradients of attention in any float type without matrix units; half types accumulate in f32. Blocks of 256 threads: thread
// (tx, ty) has scores of rows ty + 16 i and columns tx + 16 j, and of sums the same rows and columns kVec (tx + 16 c) on.
//
// Order: scores are chains of fma over the depth; dq of a row is a chain over the keys from key 0; dk and dv of a key are
// chains over the rows from row 0, head by head of the group; a row's sum has 16 lanes (key mod 16), rescaled once per block
// of keys and combined pairwise; `along` is 16 lanes likewise.
#pragma once

#include "attention/cuda/backward_call.cuh"
#include "attention/cuda/simt.cuh"

namespace aicf::attention {

template <class Traits>
struct BackwardShape {
  using A = typename Accumulator<typename Traits::Element>::Type;
  static constexpr int kRows = Traits::kRows, kKeys = Traits::kKeys;
  static constexpr int kDepth = Traits::kDepth, kValueDepth = Traits::kValueDepth;
  static constexpr int kStride = tile_stride<A>(kDepth), kValueStride = tile_stride<A>(kValueDepth);
  static constexpr int kWideStride = kStride > kValueStride ? kStride : kValueStride;
  static constexpr int kScoreStride = tile_stride<A>(kRows > kKeys ? kRows : kKeys);
};

__device__ __forceinline__ float exp_two(float x) { return exp2f(x); }
__device__ __forceinline__ double exp_two(double x) { return exp2(x); }
__device__ __forceinline__ float log_two(float x) { return log2f(x); }
__device__ __forceinline__ double log_two(double x) { return log2(x); }

// s[i][j] = a row · b row over kCount columns.
template <int kCount, class A, int kI, int kJ>
__device__ __forceinline__ void multiply_rows(const A* a, int a_stride, const A* b, int b_stride, int tx, int ty,
                                              A (&s)[kI][kJ]) {
  constexpr int kVec = Vec<A>::kSize;
  using V = typename Vec<A>::Type;
#pragma unroll
  for (int i = 0; i < kI; ++i)
#pragma unroll
    for (int j = 0; j < kJ; ++j) s[i][j] = 0;
#pragma unroll 2
  for (int d = 0; d < kCount; d += kVec) {
    A x[kI][kVec], y[kJ][kVec];
#pragma unroll
    for (int i = 0; i < kI; ++i) *reinterpret_cast<V*>(x[i]) = *reinterpret_cast<const V*>(a + (ty + 16 * i) * a_stride + d);
#pragma unroll
    for (int j = 0; j < kJ; ++j) *reinterpret_cast<V*>(y[j]) = *reinterpret_cast<const V*>(b + (tx + 16 * j) * b_stride + d);
#pragma unroll
    for (int v = 0; v < kVec; ++v)
#pragma unroll
      for (int i = 0; i < kI; ++i)
#pragma unroll
        for (int j = 0; j < kJ; ++j) s[i][j] = fused(x[i][v], y[j][v], s[i][j]);
  }
}

// Sums over rows of `b`: o[i][c] += weights[row i][r] b[r][column of c].
template <int kColumns, int kCount, class A, int kI, int kC>
__device__ __forceinline__ void add_rows(const A* weights, int weight_stride, const A* b, int b_stride, int tx, int ty,
                                         A (&o)[kI][kC][Vec<A>::kSize]) {
  constexpr int kVec = Vec<A>::kSize;
  using V = typename Vec<A>::Type;
#pragma unroll 2
  for (int r = 0; r < kCount; ++r) {
    A w[kI];
#pragma unroll
    for (int i = 0; i < kI; ++i) w[i] = weights[(ty + 16 * i) * weight_stride + r];
#pragma unroll
    for (int c = 0; c < kC; ++c) {
      const int column = (tx + 16 * c) * kVec;
      if (column >= kColumns) continue;
      A values[kVec];
      *reinterpret_cast<V*>(values) = *reinterpret_cast<const V*>(b + r * b_stride + column);
#pragma unroll
      for (int i = 0; i < kI; ++i)
#pragma unroll
        for (int v = 0; v < kVec; ++v) o[i][c][v] = fused(w[i], values[v], o[i][c][v]);
    }
  }
}

template <int kColumns, class T, class A, int kI, int kC>
__device__ __forceinline__ void store_sums(const A (&o)[kI][kC][Vec<A>::kSize], A factor, T* to, int64_t row_stride,
                                           int64_t column_stride, int rows, int tx, int ty) {
#pragma unroll
  for (int i = 0; i < kI; ++i) {
    if (ty + 16 * i >= rows) continue;
#pragma unroll
    for (int c = 0; c < kC; ++c)
#pragma unroll
      for (int v = 0; v < Vec<A>::kSize; ++v) {
        const int column = (tx + 16 * c) * Vec<A>::kSize + v;
        if (column < kColumns) to[(ty + 16 * i) * row_stride + column * column_stride] = narrow<T>(o[i][c][v] * factor);
      }
  }
}

template <class A, int kI, int kC>
__device__ __forceinline__ void clear(A (&o)[kI][kC][Vec<A>::kSize]) {
#pragma unroll
  for (int i = 0; i < kI; ++i)
#pragma unroll
    for (int c = 0; c < kC; ++c)
#pragma unroll
      for (int v = 0; v < Vec<A>::kSize; ++v) o[i][c][v] = 0;
}

template <class A>
__device__ __forceinline__ A infinity() {
  return A(__int_as_float(0x7f800000));
}

// What both kernels do with one block of scores: products become scores, hidden ones -infinity.
template <class Traits>
struct ScoreBlock {
  using A = typename BackwardShape<Traits>::A;
  const BackwardCall<Traits>& call;
  const typename Traits::Mask* mask;  // of the head
  static constexpr A kMultiplier = A(Scores<Traits>::kPlain ? double(A(Traits::kScale)) * kLog2E : kLog2E);

  __device__ __forceinline__ A score(A product, int32_t row, int32_t key, A& bend) const {
    bend = 1;
    if (row >= call.queries || key >= visible_keys(call, row)) return A(minus_infinity());
    A value = 0;
    if constexpr (Traits::kHasMask)
      value = Scores<Traits>::template mask_value<A>(mask[row * call.mask_view.row + key * call.mask_view.column]);
    return score_and_bend<Traits>(product, value, bend);
  }
  static __device__ __forceinline__ A weight(A score, A level) {
    return score == A(minus_infinity()) || level == infinity<A>() ? A(0) : exp_two(kMultiplier * score - level);
  }
};

// dq of a tile of rows, and level and along of its rows.
template <class Traits>
struct DqSimt {
  using Shape = BackwardShape<Traits>;
  using A = typename Shape::A;
  using T = typename Traits::Element;
  static constexpr int kR = Shape::kRows / 16, kK = Shape::kKeys / 16;
  static constexpr int kC = (Shape::kDepth + 16 * Vec<A>::kSize - 1) / (16 * Vec<A>::kSize);

  const BackwardCall<Traits>& call;
  const int tx, ty;
  A *const q, *const dout, *const kv, *const slopes;  // tiles in shared memory
  int32_t first, end;                                 // row; keys that its tile sees
  int rows;
  int64_t b, h;
  const T *k, *v, *result;
  ScoreBlock<Traits> block;
  A level[kR], along[kR];

  __device__ __forceinline__ DqSimt(const BackwardCall<Traits>& call, char* shared)
      : call(call),
        tx(int(threadIdx.x) % 16),
        ty(int(threadIdx.x) / 16),
        q(reinterpret_cast<A*>(shared)),
        dout(q + Shape::kRows * Shape::kStride),
        kv(dout + Shape::kRows * Shape::kValueStride),
        slopes(kv + Shape::kKeys * Shape::kWideStride),
        block{call, nullptr} {
    const Place place = place_of_block(call);
    first = place.tile * Shape::kRows;
    b = place.batch;
    h = place.head;
    const int64_t kv_head = place.head / call.group;
    rows = call.queries - first < Shape::kRows ? call.queries - first : Shape::kRows;
    end = visible_keys(call, first + rows - 1);
    k = call.k + b * call.k_view.batch + kv_head * call.k_view.head;
    v = call.v + b * call.v_view.batch + kv_head * call.v_view.head;
    result = call.result + b * call.out_view.batch + h * call.out_view.head;
    if (Traits::kHasMask) block.mask = call.mask + b * call.mask_view.batch + h * call.mask_view.head;
  }

  __device__ __forceinline__ void load_rows() const {
    load_tile<Shape::kDepth, Shape::kRows, Traits::kVectorQ>(
        q, Shape::kStride, call.q + b * call.q_view.batch + h * call.q_view.head + first * call.q_view.row, call.q_view.row,
        call.q_view.column, rows);
    load_tile<Shape::kValueDepth, Shape::kRows, Traits::kVectorDout>(
        dout, Shape::kValueStride, call.dout + b * call.dout_view.batch + h * call.dout_view.head + first * call.dout_view.row,
        call.dout_view.row, call.dout_view.column, rows);
  }
  __device__ __forceinline__ int count_at(int32_t from) const {
    return call.keys - from < Shape::kKeys ? call.keys - from : Shape::kKeys;
  }
  __device__ __forceinline__ void load_keys(int32_t from) const {
    __syncthreads();
    load_tile<Shape::kDepth, Shape::kKeys, Traits::kVectorK>(kv, Shape::kWideStride, k + from * call.k_view.row,
                                                             call.k_view.row, call.k_view.column, count_at(from));
    __syncthreads();
  }
  __device__ __forceinline__ void load_values(int32_t from) const {
    __syncthreads();
    load_tile<Shape::kValueDepth, Shape::kKeys, Traits::kVectorV>(kv, Shape::kWideStride, v + from * call.v_view.row,
                                                                  call.v_view.row, call.v_view.column, count_at(from));
    __syncthreads();
  }

  // The rows' maxima and sums take in a block of keys.
  __device__ __forceinline__ void measure(int32_t from, A (&maximum)[kR], A (&sum)[kR]) const {
    load_keys(from);
    A s[kR][kK], bend;
    multiply_rows<Shape::kDepth>(q, Shape::kStride, kv, Shape::kWideStride, tx, ty, s);
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      A top = maximum[i];
#pragma unroll
      for (int j = 0; j < kK; ++j) {
        s[i][j] = block.score(s[i][j], first + ty + 16 * i, from + tx + 16 * j, bend);
        top = larger(top, s[i][j]);
      }
#pragma unroll
      for (int lane = 8; lane > 0; lane /= 2) top = larger(top, __shfl_xor_sync(0xffffffffu, top, lane));
      const A reference = top == A(minus_infinity()) ? A(0) : top;
      sum[i] *= exp_two(block.kMultiplier * (maximum[i] - reference));
      maximum[i] = top;
#pragma unroll
      for (int j = 0; j < kK; ++j) sum[i] += exp_two(block.kMultiplier * (s[i][j] - reference));
    }
  }

  __device__ __forceinline__ void find_levels() {
    A maximum[kR], sum[kR];
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      maximum[i] = A(minus_infinity());
      sum[i] = 0;
    }
    for (int32_t from = 0; from < end; from += Shape::kKeys) measure(from, maximum, sum);
#pragma unroll
    for (int i = 0; i < kR; ++i) {
#pragma unroll
      for (int lane = 8; lane > 0; lane /= 2) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], lane);
      level[i] = sum[i] == 0 ? infinity<A>() : block.kMultiplier * maximum[i] + log_two(sum[i]);
    }
  }

  // After the rows have come.
  __device__ __forceinline__ void find_along() {
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      const int row = ty + 16 * i;
      along[i] = 0;
      if (row < rows)
        for (int c = tx; c < Shape::kValueDepth; c += 16)
          along[i] = fused(dout[row * Shape::kValueStride + c],
                           A(widen(result[(first + row) * call.out_view.row + c * call.out_view.column])), along[i]);
#pragma unroll
      for (int lane = 8; lane > 0; lane /= 2) along[i] += __shfl_xor_sync(0xffffffffu, along[i], lane);
    }
  }

  __device__ __forceinline__ void keep_numbers(const RowNumbers<A>& numbers) const {
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      const int32_t row = first + ty + 16 * i;
      if (tx != 0 || row >= numbers.padded) continue;
      const int64_t at = (b * call.heads + h) * numbers.padded + row;
      numbers.level[at] = level[i];
      numbers.along[at] = along[i];
    }
  }

  // Adds what a block of keys gives.
  __device__ __forceinline__ void add_keys(int32_t from, A (&o)[kR][kC][Vec<A>::kSize]) const {
    A s[kR][kK], dp[kR][kK];
    load_keys(from);
    multiply_rows<Shape::kDepth>(q, Shape::kStride, kv, Shape::kWideStride, tx, ty, s);
    load_values(from);
    multiply_rows<Shape::kValueDepth>(dout, Shape::kValueStride, kv, Shape::kWideStride, tx, ty, dp);
#pragma unroll
    for (int i = 0; i < kR; ++i)
#pragma unroll
      for (int j = 0; j < kK; ++j) {
        A bend;
        const A score = block.score(s[i][j], first + ty + 16 * i, from + tx + 16 * j, bend);
        slopes[(ty + 16 * i) * Shape::kScoreStride + tx + 16 * j] = block.weight(score, level[i]) * (dp[i][j] - along[i]) * bend;
      }
    load_keys(from);
    add_rows<Shape::kDepth, Shape::kKeys>(slopes, Shape::kScoreStride, kv, Shape::kWideStride, tx, ty, o);
  }

  __device__ __forceinline__ void run(const RowNumbers<A>& numbers) {
    load_rows();
    find_levels();
    __syncthreads();
    find_along();
    keep_numbers(numbers);
    A o[kR][kC][Vec<A>::kSize];
    clear(o);
    for (int32_t from = 0; from < end; from += Shape::kKeys) add_keys(from, o);
    store_sums<Shape::kDepth>(o, A(Traits::kScale),
                              call.dq + b * call.dq_view.batch + h * call.dq_view.head + first * call.dq_view.row,
                              call.dq_view.row, call.dq_view.column, rows, tx, ty);
  }
};

template <class Traits>
__device__ __forceinline__ void attention_dq_simt(const BackwardCall<Traits>& call, void* workspace) {
  using Shape = BackwardShape<Traits>;
  extern __shared__ __align__(16) char shared[];
  wait_for_inputs();
  launch_dependents();
  const int64_t all_heads = gridDim.x / ((call.queries + Shape::kRows - 1) / Shape::kRows);
  DqSimt<Traits>(call, shared).run(row_numbers<typename Shape::A>(call, workspace, all_heads));
}

// dk and dv of a tile of keys: block x is tile x % tiles of head x / tiles of k and v.
template <class Traits>
__device__ __forceinline__ void attention_dkv_simt(const BackwardCall<Traits>& call, void* workspace, int32_t kv_heads) {
  using Shape = BackwardShape<Traits>;
  using A = typename Shape::A;
  using T = typename Traits::Element;
  constexpr int kR = Shape::kRows / 16, kK = Shape::kKeys / 16, kStep = 16 * Vec<A>::kSize;
  constexpr int kC = (Shape::kDepth + kStep - 1) / kStep, kValueC = (Shape::kValueDepth + kStep - 1) / kStep;
  extern __shared__ __align__(16) char shared[];
  A* const k = reinterpret_cast<A*>(shared);
  A* const v = k + Shape::kKeys * Shape::kStride;
  A* const rows_tile = v + Shape::kKeys * Shape::kValueStride;
  A* const scores = rows_tile + Shape::kRows * Shape::kWideStride;
  const int tx = int(threadIdx.x) % 16, ty = int(threadIdx.x) / 16;
  const uint32_t tiles = (uint32_t(call.keys) + Shape::kKeys - 1) / Shape::kKeys;
  const int32_t first = int32_t(blockIdx.x % tiles) * Shape::kKeys;
  const int64_t b = blockIdx.x / tiles / uint32_t(kv_heads), kv_head = blockIdx.x / tiles % uint32_t(kv_heads);
  const int keys = call.keys - first < Shape::kKeys ? call.keys - first : Shape::kKeys;

  wait_for_inputs();
  launch_dependents();
  load_tile<Shape::kDepth, Shape::kKeys, Traits::kVectorK>(
      k, Shape::kStride, call.k + b * call.k_view.batch + kv_head * call.k_view.head + first * call.k_view.row,
      call.k_view.row, call.k_view.column, keys);
  load_tile<Shape::kValueDepth, Shape::kKeys, Traits::kVectorV>(
      v, Shape::kValueStride, call.v + b * call.v_view.batch + kv_head * call.v_view.head + first * call.v_view.row,
      call.v_view.row, call.v_view.column, keys);
  const RowNumbers<A> numbers = row_numbers<A>(call, workspace, int64_t(gridDim.x / tiles) * call.group);
  A dk[kK][kC][Vec<A>::kSize], dv[kK][kValueC][Vec<A>::kSize];
  clear(dk);
  clear(dv);
  for (int64_t h = kv_head * call.group; h < (kv_head + 1) * call.group; ++h) {
    const ScoreBlock<Traits> block{call, Traits::kHasMask ? call.mask + b * call.mask_view.batch + h * call.mask_view.head : nullptr};
    const T* q = call.q + b * call.q_view.batch + h * call.q_view.head;
    const T* dout = call.dout + b * call.dout_view.batch + h * call.dout_view.head;
    const int64_t number = (b * call.heads + h) * numbers.padded;
    for (int32_t from = first_query(call, first) / Shape::kRows * Shape::kRows; from < call.queries; from += Shape::kRows) {
      const int count = call.queries - from < Shape::kRows ? call.queries - from : Shape::kRows;
      const auto load_queries = [&] {
        __syncthreads();
        load_tile<Shape::kDepth, Shape::kRows, Traits::kVectorQ>(rows_tile, Shape::kWideStride, q + from * call.q_view.row,
                                                                 call.q_view.row, call.q_view.column, count);
        __syncthreads();
      };
      A s[kK][kR], dp[kK][kR];
      load_queries();
      multiply_rows<Shape::kDepth>(k, Shape::kStride, rows_tile, Shape::kWideStride, tx, ty, s);
      __syncthreads();
      load_tile<Shape::kValueDepth, Shape::kRows, Traits::kVectorDout>(
          rows_tile, Shape::kWideStride, dout + from * call.dout_view.row, call.dout_view.row, call.dout_view.column, count);
      __syncthreads();
      multiply_rows<Shape::kValueDepth>(v, Shape::kValueStride, rows_tile, Shape::kWideStride, tx, ty, dp);
#pragma unroll
      for (int j = 0; j < kR; ++j) {
        const int32_t row = from + tx + 16 * j;
        const A level = row < call.queries ? numbers.level[number + row] : infinity<A>();
        const A along = row < call.queries ? numbers.along[number + row] : A(0);
#pragma unroll
        for (int i = 0; i < kK; ++i) {
          A bend;
          const A score = block.score(s[i][j], row, first + ty + 16 * i, bend);
          s[i][j] = block.weight(score, level);
          dp[i][j] = s[i][j] * (dp[i][j] - along) * bend;
          scores[(ty + 16 * i) * Shape::kScoreStride + tx + 16 * j] = s[i][j];
        }
      }
      __syncthreads();
      add_rows<Shape::kValueDepth, Shape::kRows>(scores, Shape::kScoreStride, rows_tile, Shape::kWideStride, tx, ty, dv);
      load_queries();
#pragma unroll
      for (int i = 0; i < kK; ++i)
#pragma unroll
        for (int j = 0; j < kR; ++j) scores[(ty + 16 * i) * Shape::kScoreStride + tx + 16 * j] = dp[i][j];
      __syncthreads();
      add_rows<Shape::kDepth, Shape::kRows>(scores, Shape::kScoreStride, rows_tile, Shape::kWideStride, tx, ty, dk);
    }
  }
  store_sums<Shape::kDepth>(dk, A(Traits::kScale),
                            call.dk + b * call.dk_view.batch + kv_head * call.dk_view.head + first * call.dk_view.row,
                            call.dk_view.row, call.dk_view.column, keys, tx, ty);
  store_sums<Shape::kValueDepth>(dv, A(1), call.dv + b * call.dv_view.batch + kv_head * call.dv_view.head + first * call.dv_view.row,
                                 call.dv_view.row, call.dv_view.column, keys, tx, ty);
}

}  // namespace aicf::attention
