// Reductions of one value per thread over the threads of a group: 1 to 32 neighbouring lanes, or a whole
// block. The order is fixed: pairs of lanes at distance 1, 2, 4, …, then warps the same way. Every thread
// gets the result.
//
// Where a row stays in registers (reduce_items, reduce_block_items) the order is one binary tree over the
// numbers of its elements: neighbours, then neighbouring pairs, and so on, whatever threads have them. Places
// without an element hold the neutral one, which changes nothing; so neither the size of a group, nor that of
// a vector, nor the longest row that was planned for changes a bit.
#pragma once

#include "tile/cuda/tile_math.cuh"

namespace aicf {
namespace tile {

template <class T>
struct Limits;
template <>
struct Limits<float> {
  static AICF_FN float low() { return __uint_as_float(0xff800000); }
  static AICF_FN float high() { return __uint_as_float(0x7f800000); }
};
template <>
struct Limits<double> {
  static AICF_FN double low() { return constant_f64(0xfff0000000000000ull); }
  static AICF_FN double high() { return constant_f64(0x7ff0000000000000ull); }
};
template <>
struct Limits<int32_t> {
  static AICF_FN int32_t low() { return int32_t(0x80000000u); }
  static AICF_FN int32_t high() { return 0x7fffffff; }
};
template <>
struct Limits<int64_t> {
  static AICF_FN int64_t low() { return int64_t(0x8000000000000000ull); }
  static AICF_FN int64_t high() { return 0x7fffffffffffffffll; }
};

// Operations: the neutral element and the combination of two.
template <class T>
struct reduce_sum {
  static AICF_FN T neutral() { return T(0); }
  static AICF_FN T apply(T x, T y) { return add(x, y); }
};
template <class T>
struct reduce_prod {
  static AICF_FN T neutral() { return T(1); }
  static AICF_FN T apply(T x, T y) { return mul(x, y); }
};
template <class T>
struct reduce_max {
  static AICF_FN T neutral() { return Limits<T>::low(); }
  static AICF_FN T apply(T x, T y) { return max(x, y); }
};
template <class T>
struct reduce_min {
  static AICF_FN T neutral() { return Limits<T>::high(); }
  static AICF_FN T apply(T x, T y) { return min(x, y); }
};
template <>
struct reduce_max<bool> {
  static AICF_FN bool neutral() { return false; }
  static AICF_FN bool apply(bool x, bool y) { return x || y; }
};
template <>
struct reduce_min<bool> {
  static AICF_FN bool neutral() { return true; }
  static AICF_FN bool apply(bool x, bool y) { return x && y; }
};

template <class T>
AICF_FN T exchange(T x, int distance) {
  return __shfl_xor_sync(0xffffffffu, x, distance);
}
AICF_FN bool exchange(bool x, int distance) { return __shfl_xor_sync(0xffffffffu, int(x), distance) != 0; }

// The N values of one thread: neighbours, then neighbouring pairs, and so on.
template <class Op, class T, int N>
AICF_FN T combine(const T (&x)[N]) {
  T sums[N];
#pragma unroll
  for (int i = 0; i < N; ++i) sums[i] = x[i];
#pragma unroll
  for (int step = 1; step < N; step *= 2)
#pragma unroll
    for (int i = 0; i + step < N; i += 2 * step) sums[i] = Op::apply(sums[i], sums[i + step]);
  return sums[0];
}

// Over kGroup (a power of two up to 32) neighbouring lanes. All lanes of the warp must call it.
template <class Op, int kGroup, class T>
AICF_FN T reduce_lanes(T x) {
#pragma unroll
  for (int distance = 1; distance < kGroup; distance *= 2) x = Op::apply(x, exchange(x, distance));
  return x;
}

// Over a block of kThreads (a multiple of 32) threads. `shared` has room for kThreads / 32 values, used by
// this call alone.
template <class Op, int kThreads, class T>
AICF_FN T reduce_block(T x, T* shared) {
  constexpr int kWarps = kThreads / 32;
  x = reduce_lanes<Op, 32>(x);
  if (kWarps == 1) return x;
  const int lane = threadIdx.x % 32;
  if (lane == 0) shared[threadIdx.x / 32] = x;
  sync_threads<kThreads>();
  constexpr int kGroup = kWarps <= 2 ? 2 : kWarps <= 4 ? 4 : kWarps <= 8 ? 8 : kWarps <= 16 ? 16 : 32;
  const int warp = lane % kGroup;
  return reduce_lanes<Op, kGroup>(warp < kWarps ? shared[warp] : Op::neutral());
}

constexpr int power_of_two_from(int n) {
  int power = 1;
  while (power < n) power *= 2;
  return power;
}

// Each of N values over kGroup neighbouring lanes, as reduce_lanes does: lane l gets that of value l modulo
// the next power of two of N. At each distance a lane gives away the half of the values that its neighbour
// goes on with, so that about N exchanges do, not N for each distance. N is at most kGroup.
template <class Op, int kGroup, int kDistance = 1, class T, int N>
AICF_FN T reduce_values(const T (&x)[N]) {
  constexpr int kLeft = (N + 1) / 2;
  T left[kLeft];
  const bool odd = (threadIdx.x & kDistance) != 0;
#pragma unroll
  for (int i = 0; i < kLeft; ++i) {
    if constexpr (N == 1) {
      left[i] = Op::apply(x[i], exchange(x[i], kDistance));
    } else {
      const T next = 2 * i + 1 < N ? x[2 * i + 1 < N ? 2 * i + 1 : 0] : Op::neutral();
      left[i] = Op::apply(odd ? next : x[2 * i], exchange(odd ? x[2 * i] : next, kDistance));
    }
  }
  if constexpr (2 * kDistance < kGroup)
    return reduce_values<Op, kGroup, 2 * kDistance>(left);
  else
    return left[0];
}

// Of a row of which value i of lane l is part i * kGroup + l. A sum of negative zeros is a positive one,
// as it is where a neutral element stands beside them.
template <class Op, int kGroup, class T, int N>
AICF_FN T reduce_items(T (&x)[N]) {
  if constexpr (kGroup > 1 && N <= kGroup) {
    const T value = reduce_values<Op, kGroup>(x);
    return Op::apply(Op::neutral(), reduce_lanes<Op, power_of_two_from(N)>(value));
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = reduce_lanes<Op, kGroup>(x[i]);
    return Op::apply(Op::neutral(), combine<Op>(x));
  }
}

// Of a row of which value i of thread t is part i * kThreads + t. `shared` has room for N * kThreads / 32
// values, used by this call alone.
template <class Op, int kThreads, class T, int N>
AICF_FN T reduce_block_items(T (&x)[N], T* shared) {
  constexpr int kWarps = kThreads / 32, kParts = N * kWarps;
  static_assert(N <= 32, "a lane of a warp for each value");
  const T value = reduce_values<Op, 32>(x);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane < N) shared[lane * kWarps + warp] = value;
  sync_threads<kThreads>();
  constexpr int kEach = power_of_two_from((kParts + 31) / 32);
  constexpr int kLanes = power_of_two_from((kParts + kEach - 1) / kEach);
  T parts[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int part = lane % kLanes * kEach + i;
    parts[i] = part < kParts ? shared[part] : Op::neutral();
  }
  return Op::apply(Op::neutral(), reduce_lanes<Op, kLanes>(combine<Op>(parts)));
}

// A cluster of blocks. Between cluster_arrive() and cluster_wait() every block has started, so that others
// may write to its shared memory.
AICF_FN void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
AICF_FN void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
AICF_FN uint32_t remote_address(const void* shared, uint32_t block) {
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(remote)
      : "r"(uint32_t(__cvta_generic_to_shared(shared))), "r"(block));
  return remote;
}
AICF_FN void store_remote(uint32_t to, float x) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory");
}
AICF_FN void store_remote(uint32_t to, double x) {
  asm volatile("st.shared::cluster.f64 [%0], %1;" ::"r"(to), "d"(x) : "memory");
}
AICF_FN void store_remote(uint32_t to, int32_t x) {
  asm volatile("st.shared::cluster.s32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}
AICF_FN void store_remote(uint32_t to, int64_t x) {
  asm volatile("st.shared::cluster.s64 [%0], %1;" ::"r"(to), "l"(x) : "memory");
}
AICF_FN void store_remote(uint32_t to, bool x) {
  asm volatile("st.shared::cluster.u8 [%0], %1;" ::"r"(to), "r"(int(x)) : "memory");
}

// Over the blocks of a cluster of one value per block, in the blocks' order. `shared` has room for kCluster
// values, used by this call alone.
template <class Op, int kCluster, class T>
AICF_FN T reduce_cluster(T x, T* shared) {
  if (threadIdx.x < kCluster) store_remote(remote_address(shared + blockIdx.x % kCluster, threadIdx.x), x);
  cluster_arrive();
  cluster_wait();
  T result = shared[0];
#pragma unroll
  for (int i = 1; i < kCluster; ++i) result = Op::apply(result, shared[i]);
  return result;
}

// Lane by lane over the kDeep threads of a block that share threadIdx.x % kAcross: thread d and d + kDeep/2,
// and so on. kDeep is a power of two. `shared` has room for kDeep * kAcross * N values; it may have been used
// before.
template <class Op, int kAcross, int kDeep, class T, int N>
AICF_FN void reduce_deep(T (&x)[N], T* shared) {
  constexpr int kThreads = kAcross * kDeep;  // between the lanes of one thread, so that neighbours store neighbours
  const int at = threadIdx.x % kAcross, depth = threadIdx.x / kAcross;
  if (kDeep == 1) return;
  sync_threads<kThreads>();
#pragma unroll
  for (int v = 0; v < N; ++v) shared[v * kThreads + depth * kAcross + at] = x[v];
#pragma unroll
  for (int half = kDeep / 2; half > 0; half /= 2) {
    if (2 * half * kAcross > 32)
      sync_threads<kThreads>();
    else
      __syncwarp();  // what is left is of one warp
    if (depth < half) {
#pragma unroll
      for (int v = 0; v < N; ++v) {
        T* own = shared + v * kThreads + depth * kAcross + at;
        *own = Op::apply(*own, own[half * kAcross]);
      }
    }
  }
  sync_threads<kThreads>();
#pragma unroll
  for (int v = 0; v < N; ++v) x[v] = shared[v * kThreads + at];
}

// The sum of one column of `count` rows of `length` values, in a fixed order: the kDeep threads of a column
// take every kDeep-th row. For the first kAcross threads of a block of kAcross * kDeep.
template <int kAcross, int kDeep>
AICF_FN float sum_column(const float* rows, int count, int64_t length, int64_t column) {
  __shared__ float shared[kAcross * kDeep];
  float sum[1] = {0.0f};
  if (column < length)
#pragma unroll 8
    for (int i = threadIdx.x / kAcross; i < count; i += kDeep) sum[0] = add(sum[0], rows[i * length + column]);
  reduce_deep<reduce_sum<float>, kAcross, kDeep>(sum, shared);
  return sum[0];
}

}  // namespace tile
}  // namespace aicf
