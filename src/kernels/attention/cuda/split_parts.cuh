// Parts of attention's rows (split.cuh), each over some of the keys and relative to its own maximum: where they lie, how
// they are added up and stored.
#pragma once

#include "attention/cuda/mma.cuh"
#include "cluster_sends.cuh"

namespace aicf::attention {

// The workspace: sums of values [row][split][columns], then the pairs maximum, sum of weights [row][split].
template <class Traits>
struct Parts {
  static constexpr int kColumns = HalfTile<Traits::kValueDepth>::kPadded;
  float* values;
  float* stats;
  int32_t splits;
  __device__ __forceinline__ Parts(void* workspace, int64_t rows, int32_t count)
      : values(static_cast<float*>(workspace)), stats(values + rows * count * kColumns), splits(count) {}
};

// Tiles of kKeys keys [first_tile_of, tile_count) hold all that any row sees.
template <class Traits, int kKeys>
__device__ __forceinline__ int32_t first_tile_of(const Call<Traits>& call) {
  return first_key(call, 0) / kKeys;
}
template <class Traits, int kKeys>
__device__ __forceinline__ int32_t tile_count(const Call<Traits>& call) {
  return call.keys > 0 ? (call.keys + kKeys - 1) / kKeys : 1;
}
// Parts of kTiles of them in the workspace.
template <class Traits, int kKeys, int kTiles>
__device__ __forceinline__ int32_t part_count(const Call<Traits>& call) {
  if (Traits::kWindow == 0) return tile_count<Traits, kKeys * kTiles>(call);
  return (tile_count<Traits, kKeys>(call) - first_tile_of<Traits, kKeys>(call) + kTiles - 1) / kTiles;
}

__device__ __forceinline__ float reference_of(float maximum) {
  return maximum == minus_infinity() ? 0.0f : maximum;
}

// Stores four neighbouring columns of one row of the result.
template <class Traits>
__device__ __forceinline__ void store_four(const Call<Traits>& call, int64_t batch, int32_t head, int32_t row,
                                           int column, const float (&x)[4]) {
  using T = typename Traits::Element;
  T* out = call.out + batch * call.out_view.batch + head * call.out_view.head + row * call.out_view.row;
  if constexpr (Traits::kVectorOut) {
    if (column < Traits::kValueDepth)
      *reinterpret_cast<uint2*>(out + column) = make_uint2(pack<T>(x[0], x[1]), pack<T>(x[2], x[3]));
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (column + i < Traits::kValueDepth) out[(column + i) * call.out_view.column] = from_float<T>(x[i]);
  }
}

// What the blocks of a cluster send the one that adds their parts: four columns each of every kBlocks-th group of them,
// with the row's maximum and sum of weights.
template <int kBlocks, int kGroups>
struct Sent {
  static constexpr int kOwn = kGroups / kBlocks, kBytes = 6 * sizeof(float);
  float values[kBlocks][kOwn][4], stats[kBlocks][kOwn][2];
  uint64_t barrier;

  // By all threads; `groups`: that have a row. The cluster is synchronised at the end of cluster_wait().
  __device__ __forceinline__ void set_up(int groups, int split) {
    if (threadIdx.x == 0) {
      const int own = groups > split ? (groups - split + kBlocks - 1) / kBlocks : 0;
      expect_sends(shared_address(&barrier), kBlocks * own * kBytes);
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  }
  static __device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

  __device__ __forceinline__ void send(int group, int split, const float (&x)[4], float top, float sum) {
    const int rank = group % kBlocks, slot = group / kBlocks;
    const uint32_t there = in_block(shared_address(&barrier), rank);
    send_four(in_block(shared_address(values[split][slot]), rank), there, x[0], x[1], x[2], x[3]);
    send_two(in_block(shared_address(stats[split][slot]), rank), there, top, sum);
  }
  __device__ __forceinline__ void wait() const { wait_for_sends(shared_address(&barrier)); }
};

// Parts of four columns of one row, each relative to its own maximum, added up relative to the largest.
struct Sum4 {
  float top = 0, sum = 0, x[4] = {0, 0, 0, 0};

  template <class Traits>
  __device__ __forceinline__ void add(const float2& stat, const float4& part) {
    const float factor = power_of_two(Scores<Traits>::kMultiplier * (stat.x - reference_of(top)));
    sum = __fmaf_rn(factor, stat.y, sum);
    x[0] = __fmaf_rn(factor, part.x, x[0]);
    x[1] = __fmaf_rn(factor, part.y, x[1]);
    x[2] = __fmaf_rn(factor, part.z, x[2]);
    x[3] = __fmaf_rn(factor, part.w, x[3]);
  }
  __device__ __forceinline__ void divide() {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = sum == 0 ? 0.0f : __fdiv_rn(x[i], sum);
  }
};

template <class Traits>
__device__ __forceinline__ void store_sum(const Call<Traits>& call, Sum4& total, int64_t batch, int32_t head,
                                          int32_t query, int column) {
  total.divide();
  store_four(call, batch, head, query, column, total.x);
  if (call.lse != nullptr && column == 0)
    call.lse[(batch * call.heads + head) * call.queries + query] =
        total.sum == 0 ? minus_infinity() : natural_maximum<Traits>(total.top) + logf(total.sum);
}

// One block of 128 threads per row adds the row's parts, of kTiles tiles of kKeys keys each.
template <class Traits, int kKeys, int kTiles>
__device__ __forceinline__ void combine_splits(const Call<Traits>& call, void* workspace) {
  constexpr int kColumns = HalfTile<Traits::kValueDepth>::kPadded, kHeld = (kColumns + 31) / 32;
  constexpr float kMultiplier = Scores<Traits>::kMultiplier;
  __shared__ float tops[4], chain_sums[4], chain_values[4][kHeld * 32];
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int32_t splits = part_count<Traits, kKeys, kTiles>(call);
  wait_for_inputs();
  launch_dependents();
  const Parts<Traits> parts(workspace, gridDim.x, splits);
  const int64_t first = int64_t(blockIdx.x) * splits;

  float top = minus_infinity();
  for (int32_t split = int32_t(threadIdx.x); split < splits; split += 128)
    top = fmaxf(top, parts.stats[(first + split) * 2]);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
  if (lane == 0) tops[warp] = top;
  __syncthreads();
  top = fmaxf(fmaxf(tops[0], tops[1]), fmaxf(tops[2], tops[3]));

  float sum = 0, x[kHeld] = {};
  for (int32_t split = warp; split < splits; split += 4) {
    const float2 stat = *reinterpret_cast<const float2*>(parts.stats + (first + split) * 2);
    const float factor = power_of_two(kMultiplier * (stat.x - reference_of(top)));
    sum = __fmaf_rn(factor, stat.y, sum);
#pragma unroll
    for (int c = 0; c < kHeld; ++c)
      if (lane + 32 * c < kColumns)
        x[c] = __fmaf_rn(factor, parts.values[(first + split) * kColumns + lane + 32 * c], x[c]);
  }
  if (lane == 0) chain_sums[warp] = sum;
#pragma unroll
  for (int c = 0; c < kHeld; ++c) chain_values[warp][lane + 32 * c] = x[c];
  __syncthreads();

  sum = ((chain_sums[0] + chain_sums[1]) + chain_sums[2]) + chain_sums[3];
  const int32_t query = int32_t(blockIdx.x % uint32_t(call.queries));
  const uint32_t rest = blockIdx.x / uint32_t(call.queries);
  const int column = int(threadIdx.x) * 4;
  if (column < kColumns) {
    float y[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float total =
          ((chain_values[0][column + i] + chain_values[1][column + i]) + chain_values[2][column + i]) +
          chain_values[3][column + i];
      y[i] = sum == 0 ? 0.0f : __fdiv_rn(total, sum);
    }
    store_four(call, rest / uint32_t(call.heads), int32_t(rest % uint32_t(call.heads)), query, column, y);
  }
  if (call.lse != nullptr && threadIdx.x == 0)
    call.lse[blockIdx.x] = sum == 0 ? minus_infinity() : natural_maximum<Traits>(top) + logf(sum);
}

}  // namespace aicf::attention
