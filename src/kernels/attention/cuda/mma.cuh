// Attention of half types, and of f32 in tf32, with mma.sync (sm_80): FlashAttention-2 (Dao 2023). A warp holds 16·kRowTiles query
// rows and the whole head depth in registers; a block of kWarps warps shares blocks of kKeys keys in shared
// memory. While scores are computed the values of the block arrive, and while those are added the next keys
// arrive.
//
// Order, for every row alone: blocks of kKeys keys from the first visible one, hidden ones skipped; how many rows a warp or a
// block holds does not matter.
#pragma once

#include "attention/cuda/fragments.cuh"

namespace aicf::attention {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return uint32_t(__cvta_generic_to_shared(pointer));
}

// Copies `bytes` (at most 16) from global to shared memory and fills the 16 with zeros.
__device__ __forceinline__ void copy_async(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

template <class T>
__device__ __forceinline__ void multiply_add(float* c, const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void multiply_add<f16>(float* c, const uint32_t (&a)[4], uint32_t b0,
                                                  uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
      "%1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply_add<bf16>(float* c, const uint32_t (&a)[4], uint32_t b0,
                                                   uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// In tf32.
template <>
__device__ __forceinline__ void multiply_add<float>(float* c, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// What the matrix units, which leave out the last 13 bits, take for round_tf32(x).
__device__ __forceinline__ uint32_t to_tf32(float x) {
  const uint32_t bits = __float_as_uint(x);
  return fabsf(x) < __int_as_float(0x7f800000) ? bits + 0x1000 : bits;
}

// A tile of rows in shared memory, each padded by 16 bytes so that ldmatrix meets no bank twice.
template <class T, int kColumns>
struct RowTile {
  static constexpr int kStep = 32 / sizeof(T);  // elements that one mma reduces over
  static constexpr int kSteps = (kColumns + kStep - 1) / kStep;
  static constexpr int kPadded = (kColumns + 15) / 16 * 16;
  static constexpr int kChunk = 16 / sizeof(T);  // elements that are copied at once
  static constexpr int kStride = kPadded + kChunk;  // elements
  static constexpr int kBytesPerRow = kStride * sizeof(T);
};
template <int kColumns>
using HalfTile = RowTile<f16, kColumns>;

// One row of the tile from global memory by one thread's share: chunk `chunk` of its columns. Rows outside and
// columns past kColumns become 0. `from` is the row's first element; any valid address if the row is outside.
template <int kColumns, bool kVector, class T>
__device__ __forceinline__ void copy_chunk(uint32_t tile, char* tile_pointer, int row, int chunk,
                                           const T* from, int64_t column_stride, bool inside) {
  using Tile = RowTile<T, kColumns>;
  constexpr int kChunk = Tile::kChunk;
  const int offset = row * Tile::kBytesPerRow + chunk * 16;
  const int left = kColumns - chunk * kChunk;
  const int count = kColumns == Tile::kPadded || left > kChunk ? kChunk : left;
  if constexpr (kVector) {
    const bool reads = inside && count > 0;
    copy_async(tile + offset, reads ? from + chunk * kChunk : from, reads ? count * int(sizeof(T)) : 0);
  } else {
    alignas(16) T values[kChunk] = {};
#pragma unroll
    for (int i = 0; i < kChunk; ++i)
      if (inside && i < count) values[i] = from[(chunk * kChunk + i) * column_stride];
    *reinterpret_cast<uint4*>(tile_pointer + offset) = *reinterpret_cast<const uint4*>(values);
  }
}

// Rows [0, rows) of the source into a tile of kRows, by kThreads threads of which this one is `thread`.
template <int kColumns, int kRows, int kThreads, bool kVector, class T>
__device__ __forceinline__ void copy_rows(char* tile, const T* from, int64_t row_stride,
                                          int64_t column_stride, int rows, int thread = int(threadIdx.x)) {
  using Tile = RowTile<T, kColumns>;
  constexpr int kChunks = Tile::kPadded / Tile::kChunk;
  const uint32_t address = shared_address(tile);
  if constexpr (kVector && kThreads % kChunks == 0 && kRows % (kThreads / kChunks) == 0 && kColumns == Tile::kPadded) {
    if (rows >= kRows) {  // the whole tile, as most are: no bounds, one step from row to row
      constexpr int kStep = kThreads / kChunks;
      const int row = thread / kChunks, chunk = thread % kChunks;
      const T* at = from + row * row_stride + chunk * Tile::kChunk;
      const uint32_t to = address + uint32_t(row * Tile::kBytesPerRow + chunk * 16);
#pragma unroll
      for (int i = 0; i < kRows / kStep; ++i, at += kStep * row_stride)
        copy_async(to + uint32_t(i * kStep * Tile::kBytesPerRow), at, 16);
      return;
    }
  }
#pragma unroll
  for (int start = 0; start < kRows * kChunks; start += kThreads) {
    const int at = start + thread;
    if (kRows * kChunks % kThreads != 0 && at >= kRows * kChunks) break;
    const int row = at / kChunks;
    const bool inside = row < rows;
    copy_chunk<kColumns, kVector>(address, tile, row, at % kChunks, inside ? from + row * row_stride : from,
                                  column_stride, inside);
  }
}

// Rounds the chunks that this thread has copied of a tile of f32, as the matrix units take them.
template <int kColumns, int kRows, int kThreads>
__device__ __forceinline__ void round_rows(char* tile) {
  using Tile = RowTile<float, kColumns>;
  constexpr int kChunks = Tile::kPadded / Tile::kChunk;
#pragma unroll
  for (int start = 0; start < kRows * kChunks; start += kThreads) {
    const int at = start + int(threadIdx.x);
    if (kRows * kChunks % kThreads != 0 && at >= kRows * kChunks) break;
    uint4* const chunk = reinterpret_cast<uint4*>(tile + at / kChunks * Tile::kBytesPerRow + at % kChunks * 16);
    const float4 x = *reinterpret_cast<const float4*>(chunk);
    *chunk = make_uint4(to_tf32(x.x), to_tf32(x.y), to_tf32(x.z), to_tf32(x.w));
  }
}

// Weights of 16 keys as the left operand.
template <class T>
__device__ __forceinline__ void pack_weights(uint32_t (&a)[4], const float* s) {
  a[0] = pack<T>(s[0], s[1]);
  a[1] = pack<T>(s[2], s[3]);
  a[2] = pack<T>(s[4], s[5]);
  a[3] = pack<T>(s[6], s[7]);
}

// Lane's share of the addresses for ldmatrix: of the left operand and of values (16 rows of 32 bytes, rows
// first), and of keys (columns first).
template <class Tile>
__device__ __forceinline__ uint32_t lane_rows_first() {
  const int lane = int(threadIdx.x) % 32;
  return uint32_t(lane % 16 * Tile::kBytesPerRow + lane / 16 * 16);
}
template <class Tile>
__device__ __forceinline__ uint32_t lane_columns_first() {
  const int lane = int(threadIdx.x) % 32;
  return uint32_t((lane / 16 * 8 + lane % 8) * Tile::kBytesPerRow + lane / 8 % 2 * 16);
}
// And of values of f32, read in pairs: rows 2·(lane%4) and the next, columns 2·(lane/4) and the next.
template <class Tile>
__device__ __forceinline__ uint32_t lane_pairs() {
  const int lane = int(threadIdx.x) % 32;
  return uint32_t(lane % 4 * 2 * Tile::kBytesPerRow + lane / 4 * 8);
}

// One block's queries: kWarps warps with 16 · kRowTiles rows each, against blocks of kKeys keys. The copies of the next
// keys run under the scores' exponentials, those of the next values under the product with the keys.
template <class Traits, int kWarps, int kRowTiles>
struct MmaAttention {
  using T = typename Traits::Element;
  using Mask = typename Traits::Mask;
  static constexpr int kDepth = Traits::kDepth, kValueDepth = Traits::kValueDepth, kKeys = Traits::kKeys;
  static constexpr int kThreads = 32 * kWarps, kMaskLoads = (kKeys + kThreads - 1) / kThreads;
  using Keys = RowTile<T, kDepth>;
  using Values = RowTile<T, kValueDepth>;
  static constexpr int kSteps = Keys::kSteps, kColumns = Values::kPadded;
  static constexpr int kRowBytes = Keys::kBytesPerRow, kValueBytes = Values::kBytesPerRow;
  static constexpr bool kTf32 = sizeof(T) == 4;
  static constexpr bool kMaskPerRow = Traits::kHasMask && !Traits::kMaskPerKey;
  // What a lane holds of the mask of a row while products run; of larger tiles there are too few registers.
  static constexpr bool kHoldsMask = kMaskPerRow && kRowTiles * kKeys <= 64;
  using Held = typename HeldMask<kHoldsMask, Traits, kKeys / 2>::Type;
  static constexpr bool kWindow = Traits::kWindow > 0;
  // Beyond this depth the queries would not fit in registers beside the result.
  static constexpr bool kHoldsQueries = kSteps * kRowTiles <= (kTf32 ? 16 : 8);
  static_assert(Traits::kRows == 16 * kRowTiles * kWarps);

  const Call<Traits>& call;
  const T *q, *k, *v;
  const Mask* mask = nullptr;
  int64_t batch, head;
  int32_t first, end;  // the first query, and the end of the keys that some query of the block sees
  char *q_tile, *k_tile, *v_tile;
  float* mask_tile;  // of a mask that is the same for all rows: two blocks of keys, one in use and the next
  float mask_held[kMaskLoads];

  Rows state[kRowTiles];
  float o[kRowTiles][kColumns / 2];
  int32_t row[kRowTiles];
  SeenKeys<Traits> seen[kRowTiles];
  uint32_t q_address, k_address, v_address;  // the lane's, for ldmatrix
  uint32_t q_held[kRowTiles][kHoldsQueries ? kSteps : 1][4];

  __device__ __forceinline__ MmaAttention(const Call<Traits>& c, char* shared) : call(c) {
    const Place place = place_of_block(call);
    batch = place.batch;
    head = place.head;
    first = place.tile * Traits::kRows;
    const int64_t kv_head = head / call.group;
    q = call.q + batch * call.q_view.batch + head * call.q_view.head + first * call.q_view.row;
    k = call.k + batch * call.k_view.batch + kv_head * call.k_view.head;
    v = call.v + batch * call.v_view.batch + kv_head * call.v_view.head;
    if (Traits::kHasMask) mask = call.mask + batch * call.mask_view.batch + head * call.mask_view.head;
    end = visible_keys(call, first + rows() - 1);
    q_tile = shared;
    k_tile = q_tile + Traits::kRows * kRowBytes;
    v_tile = k_tile + kKeys * kRowBytes;
    mask_tile = reinterpret_cast<float*>(v_tile + kKeys * kValueBytes);
    q_address = shared_address(q_tile) + warp() * kRowTiles * 16 * kRowBytes + lane_rows_first<Keys>();
    k_address = shared_address(k_tile) + lane_columns_first<Keys>();
    v_address = shared_address(v_tile) + (kTf32 ? lane_pairs<Values>() : lane_rows_first<Values>());
  }
  static __device__ __forceinline__ int warp() { return int(threadIdx.x) / 32; }
  static __device__ __forceinline__ int lane() { return int(threadIdx.x) % 32; }
  // Where the blocks of keys begin that some query of the block sees, with a window. Without one a literal 0 takes its
  // place, which takes fewer registers.
  __device__ __forceinline__ int32_t start() const { return first_key(call, first) / kKeys * kKeys; }
  __device__ __forceinline__ int32_t rows() const {
    return call.queries - first < Traits::kRows ? call.queries - first : Traits::kRows;
  }

  // ---- into shared memory ----

  __device__ __forceinline__ void copy_queries() const {
    copy_rows<kDepth, Traits::kRows, kThreads, Traits::kVectorQ>(q_tile, q, call.q_view.row, call.q_view.column,
                                                                 rows());
  }
  __device__ __forceinline__ void copy_keys(int32_t from) const {
    copy_rows<kDepth, kKeys, kThreads, Traits::kVectorK>(k_tile, k + from * call.k_view.row, call.k_view.row,
                                                         call.k_view.column, call.keys - from);
    commit_copies();
  }
  __device__ __forceinline__ void copy_values(int32_t from) const {
    copy_rows<kValueDepth, kKeys, kThreads, Traits::kVectorV>(
        v_tile, v + from * call.v_view.row, call.v_view.row, call.v_view.column, call.keys - from);
    commit_copies();
  }
  __device__ __forceinline__ void load_mask(int32_t from) {
    if constexpr (Traits::kMaskPerKey) {
#pragma unroll
      for (int i = 0; i < kMaskLoads; ++i) {
        const int32_t key = from + i * kThreads + int(threadIdx.x);
        mask_held[i] = 0;
        if (key < call.keys)
          mask_held[i] = Scores<Traits>::template mask_value<float>(mask[key * call.mask_view.column]);
      }
    }
  }
  __device__ __forceinline__ float* mask_of(int32_t from) const { return mask_tile + from / kKeys % 2 * kKeys; }
  __device__ __forceinline__ void keep_mask(int32_t from) const {
    if constexpr (Traits::kMaskPerKey) {
#pragma unroll
      for (int i = 0; i < kMaskLoads; ++i) {
        const int at = i * kThreads + int(threadIdx.x);
        if (at < kKeys) mask_of(from)[at] = mask_held[i];
      }
    }
  }

  // ---- in registers ----

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      row[t] = first + (warp() * kRowTiles + t) * 16 + lane() / 4;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        seen[t].set(half, call, row[t] + 8 * half, row[t] + 8 * half < call.queries);
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) o[t][i] = 0;
    }
  }
  __device__ __forceinline__ void load_query(uint32_t (&a)[4], int t, int d) const {
    load_matrices(a, q_address + t * 16 * kRowBytes + d * 32);
  }
  __device__ __forceinline__ void hold_queries() {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
      for (int d = 0; d < (kHoldsQueries ? kSteps : 0); ++d) load_query(q_held[t][d], t, d);
  }

  // s = q · kᵀ of the block of keys in shared memory.
  __device__ __forceinline__ void multiply_keys(float (&s)[kRowTiles][kKeys / 2]) const {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) s[t][i] = 0;
#pragma unroll
    for (int d = 0; d < kSteps; ++d) {
      uint32_t a[kRowTiles][4];
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
        if constexpr (!kHoldsQueries)
          load_query(a[t], t, d);
        else
#pragma unroll
          for (int i = 0; i < 4; ++i) a[t][i] = q_held[t][d][i];
      }
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        uint32_t keys[4];
        load_matrices(keys, k_address + n * 16 * kRowBytes + d * 32);
#pragma unroll
        for (int t = 0; t < kRowTiles; ++t) {
          multiply_add<T>(s[t] + n * 8, a[t], keys[0], keys[1]);
          multiply_add<T>(s[t] + n * 8 + 4, a[t], keys[2], keys[3]);
        }
      }
    }
  }

  // The mask of the block of keys; the products need not wait for it.
  __device__ __forceinline__ void load_rows_mask(Held (&held)[kRowTiles], int32_t from) const {
    if constexpr (kHoldsMask) {
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
        const Mask* const line[2] = {mask + row[t] * call.mask_view.row, mask + (row[t] + 8) * call.mask_view.row};
        held[t].load(line, call.mask_view.column, from + lane() % 4 * 2, seen[t]);
      }
    }
  }

  // Scores become weights, and what was summed before is scaled to the new maximum.
  __device__ __forceinline__ void weigh_scores(float (&s)[kRowTiles][kKeys / 2],
                                               const Held (&held)[kRowTiles], int32_t from) {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      const bool hides = __any_sync(0xffffffffu, seen[t].hides_any(from, kKeys));
      const int32_t key = from + lane() % 4 * 2;
      if constexpr (Traits::kMaskPerKey) {
        const float* const values = mask_of(from) + lane() % 4 * 2;
        finish_scores<Traits>(
            s[t], [&](int tile) { return *reinterpret_cast<const float2*>(values + tile * 8); }, key,
            seen[t], hides);
      } else if constexpr (kMaskPerRow && !kHoldsMask) {
        const Mask* const line[2] = {mask + row[t] * call.mask_view.row, mask + (row[t] + 8) * call.mask_view.row};
        finish_scores<Traits>(s[t], line, call.mask_view.column, key, seen[t], hides);
      } else {
        finish_scores<Traits>(s[t], held[t], key, seen[t], hides);
      }
      float scale[2];
      weigh<Traits>(s[t], state[t], scale);
      rescale(o[t], scale);
    }
  }

  // o += weights · values of the block in shared memory, in tf32: a lane's columns of weights are keys 2·(lane%4) and the
  // next, which the product takes as its columns lane%4 and lane%4 + 4; its columns of o are 16n + 4·(lane%4) to + 3.
  __device__ __forceinline__ void add_wide_values(const float (&s)[kRowTiles][kKeys / 2]) {
#pragma unroll
    for (int key = 0; key < kKeys / 8; ++key) {
      uint32_t a[kRowTiles][4];
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) a[t][i] = to_tf32(s[t][key * 4 + i / 2 + i % 2 * 2]);
#pragma unroll
      for (int n = 0; n < kColumns / 16; ++n) {
        uint32_t values[4];
#pragma unroll
        for (int i = 0; i < 2; ++i)
          asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                       : "=r"(values[2 * i]), "=r"(values[2 * i + 1])
                       : "r"(v_address + (key * 8 + i) * kValueBytes + n * 64)
                       : "memory");
#pragma unroll
        for (int t = 0; t < kRowTiles; ++t) {
          multiply_add<T>(o[t] + n * 8, a[t], values[0], values[2]);
          multiply_add<T>(o[t] + n * 8 + 4, a[t], values[1], values[3]);
        }
      }
    }
  }
  // The same of halves.
  __device__ __forceinline__ void add_values(const float (&s)[kRowTiles][kKeys / 2]) {
#pragma unroll
    for (int key = 0; key < kKeys / 16; ++key) {
      uint32_t a[kRowTiles][4];
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) pack_weights<T>(a[t], s[t] + key * 8);
#pragma unroll
      for (int n = 0; n < kColumns / 16; ++n) {
        uint32_t values[4];
        load_matrices_transposed(values, v_address + key * 16 * kValueBytes + n * 32);
#pragma unroll
        for (int t = 0; t < kRowTiles; ++t) {
          multiply_add<T>(o[t] + n * 8, a[t], values[0], values[1]);
          multiply_add<T>(o[t] + n * 8 + 4, a[t], values[2], values[3]);
        }
      }
    }
  }

  __device__ __forceinline__ void store() {
    T* out = call.out + batch * call.out_view.batch + head * call.out_view.head;
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      total_sums(state[t]);
      store_rows<Traits>(o[t], state[t], call, out, row[t]);
      store_lse(state[t], call, batch * call.heads + head, row[t]);
    }
  }

  __device__ __forceinline__ void block_of_keys(int32_t from) {
    if (from == (kWindow ? start() : 0)) {
      wait_copies<1>();
      if constexpr (kTf32) round_rows<kDepth, Traits::kRows, kThreads>(q_tile);
      if constexpr (kTf32) round_rows<kDepth, kKeys, kThreads>(k_tile);
      __syncthreads();
      if (kHoldsQueries) hold_queries();
    } else {
      wait_copies<0>();
      if constexpr (kTf32) round_rows<kDepth, kKeys, kThreads>(k_tile);
      __syncthreads();
      copy_values(from);
    }
    Held held[kRowTiles];
    load_rows_mask(held, from);
    float s[kRowTiles][kKeys / 2];
    multiply_keys(s);
    __syncthreads();
    const int32_t next = from + kKeys;
    if (next < end) {
      copy_keys(next);
      load_mask(next);
    }
    weigh_scores(s, held, from);
    if (next < end) {
      keep_mask(next);
      wait_copies<1>();
    } else {
      wait_copies<0>();
    }
    if constexpr (kTf32) round_rows<kValueDepth, kKeys, kThreads>(v_tile);
    __syncthreads();
    if constexpr (kTf32)
      add_wide_values(s);
    else
      add_values(s);
  }

  __device__ __forceinline__ void run() {
    wait_for_inputs();
    launch_dependents();
    copy_queries();
    const int32_t begin = kWindow ? start() : 0;
    if (end > 0) {
      copy_keys(begin);
      copy_values(begin);
      load_mask(begin);
      keep_mask(begin);
    }
    clear();
    for (int32_t from = begin; from < end; from += kKeys) block_of_keys(from);
    store();
  }
};

template <class Traits, int kWarps, int kRowTiles>
__device__ __forceinline__ void attend_mma(const Call<Traits>& call) {
  extern __shared__ __align__(16) char shared[];
  MmaAttention<Traits, kWarps, kRowTiles>(call, shared).run();
}

}  // namespace aicf::attention
