// Gradients of attention in any float type without matrix units; half types accumulate in f32. Blocks of 256 threads: thread
// (tx, ty) has scores of rows ty + 16 i and columns tx + 16 j, and of sums the same rows and columns kVec (tx + 16 c) on.
//
// Order: scores are chains of fma over the depth; dq of a row is a chain over the keys that its tile sees; dk and dv of a key
// are chains over the rows that see its tile, head by head of the group; a row's sum has 16 lanes (key mod 16), rescaled once per block
// of keys and combined pairwise; `along` is 16 lanes likewise.
#pragma once

#include "attention/cuda/backward_simt_tiles.cuh"

namespace aicf::attention {

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
  int32_t first, start, end;                          // row; keys that its tile sees, from the first of a block of them
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
    start = first_key(call, first) / Shape::kKeys * Shape::kKeys;
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
    for (int32_t from = start; from < end; from += Shape::kKeys) measure(from, maximum, sum);
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
    for (int32_t from = start; from < end; from += Shape::kKeys) add_keys(from, o);
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
struct DkvSimt {
  using Shape = BackwardShape<Traits>;
  using A = typename Shape::A;
  using T = typename Traits::Element;
  static constexpr int kR = Shape::kRows / 16, kK = Shape::kKeys / 16, kStep = 16 * Vec<A>::kSize;
  static constexpr int kC = (Shape::kDepth + kStep - 1) / kStep, kValueC = (Shape::kValueDepth + kStep - 1) / kStep;

  // A tile of keys of a head of k and v.
  struct Place {
    int64_t b, kv_head;
    int32_t first;
    int keys;

    __device__ __forceinline__ void load(const BackwardCall<Traits>& call, A* k, A* v) const {
      load_tile<Shape::kDepth, Shape::kKeys, Traits::kVectorK>(
          k, Shape::kStride, call.k + b * call.k_view.batch + kv_head * call.k_view.head + first * call.k_view.row,
          call.k_view.row, call.k_view.column, keys);
      load_tile<Shape::kValueDepth, Shape::kKeys, Traits::kVectorV>(
          v, Shape::kValueStride, call.v + b * call.v_view.batch + kv_head * call.v_view.head + first * call.v_view.row,
          call.v_view.row, call.v_view.column, keys);
    }
    __device__ __forceinline__ void store(const BackwardCall<Traits>& call, const A (&dk)[kK][kC][Vec<A>::kSize],
                                          const A (&dv)[kK][kValueC][Vec<A>::kSize], int tx, int ty) const {
      store_sums<Shape::kDepth>(dk, A(Traits::kScale),
                                call.dk + b * call.dk_view.batch + kv_head * call.dk_view.head + first * call.dk_view.row,
                                call.dk_view.row, call.dk_view.column, keys, tx, ty);
      store_sums<Shape::kValueDepth>(dv, A(1),
                                     call.dv + b * call.dv_view.batch + kv_head * call.dv_view.head + first * call.dv_view.row,
                                     call.dv_view.row, call.dv_view.column, keys, tx, ty);
    }
  };

  // Of rows `from` on and keys `first` on: products to weights, which go to shared memory too, and the products with dout to
  // slopes. `number` is that of the head's first row in `numbers`.
  static __device__ __forceinline__ void weigh(const ScoreBlock<Traits>& block, const RowNumbers<A>& numbers, int64_t number,
                                               int32_t from, int32_t first, int tx, int ty, A (&s)[kK][kR], A (&dp)[kK][kR],
                                               A* scores) {
#pragma unroll
    for (int j = 0; j < kR; ++j) {
      const int32_t row = from + tx + 16 * j;
      const A level = row < block.call.queries ? numbers.level[number + row] : infinity<A>();
      const A along = row < block.call.queries ? numbers.along[number + row] : A(0);
#pragma unroll
      for (int i = 0; i < kK; ++i) {
        A bend;
        const A score = block.score(s[i][j], row, first + ty + 16 * i, bend);
        s[i][j] = block.weight(score, level);
        dp[i][j] = s[i][j] * (dp[i][j] - along) * bend;
        scores[(ty + 16 * i) * Shape::kScoreStride + tx + 16 * j] = s[i][j];
      }
    }
  }
};

template <class Traits>
__device__ __forceinline__ void attention_dkv_simt(const BackwardCall<Traits>& call, void* workspace, int32_t kv_heads) {
  using Dkv = DkvSimt<Traits>;
  using Shape = typename Dkv::Shape;
  using A = typename Dkv::A;
  using T = typename Dkv::T;
  constexpr int kR = Dkv::kR, kK = Dkv::kK;
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
  const typename Dkv::Place at{b, kv_head, first, keys};

  wait_for_inputs();
  launch_dependents();
  at.load(call, k, v);
  const RowNumbers<A> numbers = row_numbers<A>(call, workspace, int64_t(gridDim.x / tiles) * call.group);
  A dk[kK][Dkv::kC][Vec<A>::kSize], dv[kK][Dkv::kValueC][Vec<A>::kSize];
  clear(dk);
  clear(dv);
  for (int64_t h = kv_head * call.group; h < (kv_head + 1) * call.group; ++h) {
    const ScoreBlock<Traits> block{call, Traits::kHasMask ? call.mask + b * call.mask_view.batch + h * call.mask_view.head : nullptr};
    const T* q = call.q + b * call.q_view.batch + h * call.q_view.head;
    const T* dout = call.dout + b * call.dout_view.batch + h * call.dout_view.head;
    const int64_t number = (b * call.heads + h) * numbers.padded;
    const int32_t end = end_query(call, first + keys - 1);
    for (int32_t from = first_query(call, first) / Shape::kRows * Shape::kRows; from < end; from += Shape::kRows) {
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
      Dkv::weigh(block, numbers, number, from, first, tx, ty, s, dp, scores);
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
  at.store(call, dk, dv, tx, ty);
}

}  // namespace aicf::attention
