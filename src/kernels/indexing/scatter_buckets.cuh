// scatter_elements of many lines, each with indices of its own (Scatter's lines never meet). The targets of a line are cut
// into buckets of 1 << kBits neighbours. Updates are brought into the order of their buckets, those of one bucket as they come:
// every block counts those of its tile, counts are added up along a line, every block puts its updates in their places. Then a
// warp takes the updates of one bucket in their order and combines them in shared memory, chunks apart (Run).
#pragma once

#include "indexing/scatter.cuh"

namespace aicf {

constexpr int kBucketThreads = 256, kBucketWarps = kBucketThreads / 32;
constexpr int kStagedUpdates = 2048;  // that a block turns into the order of lines at once

// Lines are walked with indices, updates, output, x.
template <class I, int R>
struct BucketLines {
  Walk<I, R, 4> lines;
  I updates, index_stride, update_stride, out_stride, x_stride;
  int64_t size;  // targets of a line
  int buckets;
  I tiles, tile;  // tiles of a line, and updates of one

  // offsets[line][bucket][tile], and behind the last the end of the line.
  __device__ __forceinline__ int64_t offset_at(I line, int bucket, I in_tile) const {
    return int64_t(line) * (int64_t(buckets) * tiles + 1) + int64_t(bucket) * tiles + in_tile;
  }
};

// An update and its target within its bucket, in as few bytes as hold both.
template <int kBytes, bool kPacked = kBytes <= 2>
struct alignas(2 * kBytes) BucketItem {
  Bits<kBytes> update;
  uint32_t target;
  __device__ static BucketItem make(Bits<kBytes> update, uint32_t target) { return {update, target}; }
  __device__ __forceinline__ Bits<kBytes> bits() const { return update; }
  __device__ __forceinline__ uint32_t key() const { return target; }
};
template <int kBytes>
struct BucketItem<kBytes, true> {
  uint32_t both;
  __device__ static BucketItem make(Bits<kBytes> update, uint32_t target) {
    return {uint32_t(update) | target << (8 * kBytes)};
  }
  __device__ __forceinline__ Bits<kBytes> bits() const { return Bits<kBytes>(both); }
  __device__ __forceinline__ uint32_t key() const { return both >> (8 * kBytes); }
};

constexpr uint32_t kNoTarget = 0xffffffffu;

// Of the number `most`.
__host__ __device__ constexpr int bits_of(int most) { return most == 0 ? 0 : 1 + bits_of(most / 2); }

// Gives warps the updates of kLines lines from `first_line` on, in the order of each line: visit(line, target, update) for
// 32 neighbours of a line at a time. kAcross: neighbouring lines lie together in memory.
template <int kLines, bool kAcross, bool kMoves, class T, class Index, class I, int R, class Visit>
__device__ __forceinline__ void visit_updates(const BucketLines<I, R>& s, const Index* indices, const T* updates,
                                              I first_line, I first, CallError* error, const Visit& visit) {
  constexpr int kRows = kStagedUpdates / kLines;
  using Update = Bits<sizeof(T)>;
  __shared__ uint32_t targets[kRows][kLines + 1];
  __shared__ Update staged[kMoves ? kRows : 1][kLines + 1];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const I lines = min(I(kLines), s.lines.count() - first_line), end = min(first + s.tile, s.updates);
  for (; first < end; first += kRows) {
    constexpr int kEach = kStagedUpdates / kBucketThreads;
    const auto line_of = [](int i) { return kAcross ? i % kLines : i / kRows; };
    const auto row_of = [](int i) { return kAcross ? i / kLines : i % kRows; };
    Index index[kEach];  // read at once: no load passes a report
    Update update[kEach];
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      const int i = n * kBucketThreads + threadIdx.x;
      const I row = min(first + row_of(i), end - 1);
      I at[4] = {0, 0, 0, 0};
      s.lines.locate(first_line + min(I(line_of(i)), lines - 1), at);
      index[n] = indices[at[0] + row * s.index_stride];
      if constexpr (kMoves) update[n] = reinterpret_cast<const Update*>(updates)[at[1] + row * s.update_stride];
    }
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      const int i = n * kBucketThreads + threadIdx.x, line = line_of(i), row = row_of(i);
      uint32_t target = kNoTarget;
      if (line < lines && first + row < end) {
        int64_t place = index[n];
        if (error != nullptr)
          place = resolve_index(place, s.size, error);
        else
          place = place >= -s.size && place < s.size ? place + (place < 0 ? s.size : 0) : -1;
        if (place >= 0) target = uint32_t(place);
      }
      targets[row][line] = target;
      if constexpr (kMoves) staged[row][line] = update[n];
    }
    __syncthreads();
    for (int line = warp; line < lines; line += kBucketWarps)
      for (int row = lane; row - lane < kRows && first + (row - lane) < end; row += 32)
        visit(line, targets[row][line], staged[kMoves ? row : 0][line]);
    __syncthreads();
  }
}

// The block's tile, and the first of its lines.
template <int kLines, class I, int R>
__device__ __forceinline__ I first_line_of(const BucketLines<I, R>& s, I& tile) {
  const I group = divide(I(blockIdx.x), s.tiles);
  tile = I(blockIdx.x) - group * s.tiles;
  return group * kLines;
}

template <int kLines, int kBuckets, int kBits, bool kAcross, class T, class Index, class I, int R, class Offset>
__device__ __forceinline__ void count_buckets(const BucketLines<I, R>& s, const Index* indices, Offset* offsets,
                                              CallError* error) {
  __shared__ uint32_t counts[kLines][kBuckets];
  for (int i = threadIdx.x; i < kLines * kBuckets; i += kBucketThreads) counts[i / kBuckets][i % kBuckets] = 0;
  __syncthreads();
  I tile;
  const I first_line = first_line_of<kLines>(s, tile);
  visit_updates<kLines, kAcross, false>(s, indices, static_cast<const T*>(nullptr), first_line, tile * s.tile, error,
                                        [&](int line, uint32_t target, Bits<sizeof(T)>) {
                                          if (target != kNoTarget) atomicAdd(&counts[line][target >> kBits], 1u);
                                        });
  __syncthreads();
  for (int i = threadIdx.x; i < kLines * s.buckets; i += kBucketThreads) {
    const int line = i / s.buckets, bucket = i - line * s.buckets;
    if (first_line + line < s.lines.count())
      offsets[s.offset_at(first_line + line, bucket, tile)] = counts[line][bucket];
  }
}

// One block per line: counts become those before, within the line.
template <class I, int R, class Offset>
__device__ __forceinline__ void add_bucket_counts(const BucketLines<I, R>& s, Offset* offsets) {
  constexpr int kItems = 16;
  __shared__ Offset warps[kRadixWarps];
  Offset* of_line = offsets + s.offset_at(I(blockIdx.x), 0, 0);
  const int64_t count = int64_t(s.buckets) * s.tiles;
  Offset carry = 0;
  for (int64_t first = 0; first < count; first += kRadixThreads * kItems) {
    const int64_t mine = first + threadIdx.x * kItems;
    Offset values[kItems], sum = 0;
#pragma unroll
    for (int n = 0; n < kItems; ++n) values[n] = mine + n < count ? of_line[mine + n] : 0;
#pragma unroll
    for (int n = 0; n < kItems; ++n) {
      const Offset value = values[n];
      values[n] = sum;
      sum += value;
    }
    const Before<Offset> before = sum_before<Offset>(sum, warps);
#pragma unroll
    for (int n = 0; n < kItems; ++n)
      if (mine + n < count) of_line[mine + n] = carry + before.sum + values[n];
    carry += before.all;
  }
  if (threadIdx.x == 0) of_line[count] = carry;
}

template <int kLines, int kBuckets, int kBits, bool kAcross, class T, class Index, class I, int R, class Offset>
__device__ __forceinline__ void place_updates(const BucketLines<I, R>& s, const Index* indices, const T* updates,
                                              const Offset* offsets, BucketItem<sizeof(T)>* items) {
  constexpr int kBucketBits = bits_of(kBuckets);
  __shared__ Offset places[kLines][kBuckets];
  I tile;
  const I first_line = first_line_of<kLines>(s, tile);
  for (int i = threadIdx.x; i < kLines * s.buckets; i += kBucketThreads) {
    const int line = i / s.buckets, bucket = i - line * s.buckets;
    if (first_line + line < s.lines.count())
      places[line][bucket] = offsets[s.offset_at(first_line + line, bucket, tile)];
  }
  __syncthreads();
  const int lane = threadIdx.x % 32;
  visit_updates<kLines, kAcross, true>(
      s, indices, updates, first_line, tile * s.tile, nullptr,
      [&](int line, uint32_t target, Bits<sizeof(T)> update) {
        const uint32_t bucket = target == kNoTarget ? kBuckets : target >> kBits;
        const uint32_t equal = equal_lanes<kBucketBits>(bucket), before = __popc(equal & ((1u << lane) - 1));
        const Offset place = target == kNoTarget ? 0 : places[line][bucket];
        __syncwarp();
        if (target != kNoTarget) {
          if (before == 0) places[line][bucket] = place + __popc(equal);
          items[int64_t(first_line + line) * s.updates + place + before] =
              BucketItem<sizeof(T)>::make(update, target & ((1u << kBits) - 1));
        }
        __syncwarp();
      });
}

// One warp per bucket and line. kWarps: of a block.
template <int kReduction, int kBits, int kWarps, class T, class I, int R, class Offset>
__device__ __forceinline__ void combine_buckets(const BucketLines<I, R>& s, const Offset* offsets,
                                                const BucketItem<sizeof(T)>* items, const T* x, T* out) {
  using E = Element<T>;
  using Value = typename E::Value;
  constexpr int kTargets = 1 << kBits;
  __shared__ Run<kReduction, 1, Value> all_runs[kWarps][kTargets];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const I lines = s.lines.count(), unit = I(blockIdx.x) * kWarps + warp, bucket = divide(unit, lines),
          line = unit - bucket * lines;
  if (bucket >= s.buckets) return;
  Run<kReduction, 1, Value>* runs = all_runs[warp];
  I at[4] = {0, 0, 0, 0};
  s.lines.locate(line, at);
  const int64_t first_target = int64_t(bucket) << kBits;
  const int targets = int(min(int64_t(kTargets), s.size - first_target));
  for (int t = lane; t < targets; t += 32)
    runs[t].start(0, E::load(x[at[3] + I(first_target + t) * s.x_stride]));
  const BucketItem<sizeof(T)>* of_line = items + int64_t(line) * s.updates;
  const int64_t begin = offsets[s.offset_at(line, bucket, 0)], end = offsets[s.offset_at(line, bucket + 1, 0)];
  __syncwarp();
  BucketItem<sizeof(T)> next = BucketItem<sizeof(T)>::make(0, 0);
  if (begin + lane < end) next = of_line[begin + lane];
  for (int64_t first = begin; first < end; first += 32) {
    const BucketItem<sizeof(T)> item = next;
    const bool is_one = first + lane < end;
    if (first + 32 + lane < end) next = of_line[first + 32 + lane];
    const uint32_t equal = equal_lanes<kBits + 1>(is_one ? item.key() : uint32_t(kTargets));
    // The first of equal targets adds the others', in their order.
    uint32_t left = is_one && (equal & ((1u << lane) - 1)) == 0 ? equal : 0;
    const bool adds = left != 0;
    Run<kReduction, 1, Value> run;
    if (adds) run = runs[item.key()];
    union {
      Bits<sizeof(T)> bits;
      T element;
    } update;
    while (__any_sync(0xffffffffu, left != 0)) {
      const int from = left != 0 ? __ffs(left) - 1 : lane;
      update.bits = Bits<sizeof(T)>(__shfl_sync(0xffffffffu, item.bits(), from));
      if (left != 0) run.add([&](int) { return E::load(update.element); });
      left &= left - 1;
    }
    if (adds) runs[item.key()] = run;
    __syncwarp();
  }
  for (int t = lane; t < targets; t += 32) {
    Run<kReduction, 1, Value> run = runs[t];
    run.finish();
    out[at[2] + I(first_target + t) * s.out_stride] = E::store(run.total[0]);
  }
}

}  // namespace aicf
