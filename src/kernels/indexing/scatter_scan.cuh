// Scatters of few updates in one launch: every block finds the updates of its own places, as they come or sorted in shared
// memory, and combines them as scatter.cuh does.
#pragma once

#include "indexing/scatter.cuh"

namespace aicf {

constexpr int kScanThreads = 256, kScanWarps = kScanThreads / 32;

// Of few updates: one thread per V elements of the block and place. Every block looks through all updates for those that go
// to its places, which takes one launch and no sort. A warp looks through kWarpUpdates at once, for each of which dynamic
// shared memory has four bytes.
template <int kReduction, int kStart, int V, int kWarpUpdates, class T, class Updates, class Index, class I, int LR, int PR,
          int BR, int K>
__device__ __forceinline__ void scan_updates(const Scatter<I, LR, PR, BR, K>& s, uint32_t block_index,
                                             const Index* indices, int64_t count, int64_t targets, const T* x,
                                             const Updates& updates, T* out, CallError* error) {
  using E = Element<T>;
  using Elements = Pack<T, V>;
  constexpr int kAhead = 4, kScanUpdates = kScanWarps * kWarpUpdates;
  // Of a warp's updates those of the block: the place, counted from the block's first, and the update.
  extern __shared__ __align__(16) char scan_memory[];
  auto& found = *reinterpret_cast<uint32_t(*)[kScanWarps][kWarpUpdates]>(scan_memory);
  __shared__ int counts[kScanWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t per_line = s.block.count() / V, elements = targets * per_line;
  const int64_t first_flat = int64_t(block_index) * kScanThreads, flat = first_flat + threadIdx.x;
  const int64_t first_target = first_flat / per_line,
                last_target = (min(first_flat + kScanThreads, elements) - 1) / per_line;
  const bool is_one = flat < elements;
  const int64_t target = flat / per_line;
  const uint32_t mine = is_one ? uint32_t(target - first_target) : 0xffffffffu;
  const int64_t offset = is_one ? (flat - target * per_line) * V : 0;
  Elements old, *to = nullptr;
  Run<kReduction, V, typename E::Value> run;
  if (is_one) {
    to = elements_of<kStart>(s, target, offset, x, out, old);
#pragma unroll
    for (int v = 0; v < V; ++v) run.start(v, E::load(old.at[v]));
  }
  const auto at = updates_at<V>(s, updates, offset);
  int64_t lines[kAhead];
  int waiting = 0;
  const auto add_waiting = [&] {
    const auto load = [&](int64_t line) {
      const WideItem item = WideItem::make(0, uint64_t(line));
      return at.load(at.find(&item));
    };
    decltype(load(0)) update[kAhead];
#pragma unroll
    for (int n = 0; n < kAhead; ++n)
      if (n < waiting) update[n] = load(lines[n]);
#pragma unroll
    for (int n = 0; n < kAhead; ++n)
      if (n < waiting) {
        const Elements elements = at.elements(update[n]);
        run.add([&](int v) { return E::load(elements.at[v]); });
      }
    waiting = 0;
  };
  for (int64_t begin = 0; begin < count; begin += kScanUpdates) {
    // Of a warp: all have as many, but for the last ones.
    constexpr int kAtOnce = 32 * kAhead;
    const int each = int(min(int64_t(kWarpUpdates), (count - begin + kScanWarps * kAtOnce - 1) / (kScanWarps * kAtOnce) *
                                                        kAtOnce));
    int seen = 0;
    for (int i = 0; i < each && begin + warp * each + i < count; i += kAtOnce) {
      WideItem items[kAhead];
#pragma unroll
      for (int n = 0; n < kAhead; ++n) {
        const int64_t line = begin + warp * each + i + n * 32 + lane;
        items[n] = line >= count ? WideItem::last()
                                 : s.template item<WideItem, false, false>(indices, kNotCarried, line, error);
      }
      if (block_index == 0) {
#pragma unroll
        for (int n = 0; n < kAhead; ++n) {
          const int64_t line = begin + warp * each + i + n * 32 + lane;
          if (line < count && items[n].is_last())
            s.template item<WideItem, true, false>(indices, kNotCarried, line, error);
        }
      }
#pragma unroll
      for (int n = 0; n < kAhead; ++n) {
        const int64_t at = int64_t(items[n].key());
        const bool here = !items[n].is_last() && at >= first_target && at <= last_target;
        const uint32_t all = __ballot_sync(0xffffffffu, here);
        if (here)
          found[warp][seen + __popc(all & ((1u << lane) - 1))] =
              uint32_t(at - first_target) * kScanUpdates + uint32_t(warp * each + i + n * 32 + lane);
        seen += __popc(all);
      }
    }
    if (lane == 0) counts[warp] = seen;
    sync_threads<kScanThreads>();
    for (int w = 0; w < kScanWarps; ++w)
      for (int n = 0; n < counts[w]; ++n) {
        const uint32_t update = found[w][n];
        if (update / kScanUpdates != mine) continue;
#pragma unroll
        for (int k = 0; k < kAhead; ++k)
          if (k == waiting) lines[k] = begin + update % kScanUpdates;
        if (++waiting == kAhead) add_waiting();
      }
    sync_threads<kScanThreads>();
  }
  if (!is_one) return;
  add_waiting();
  run.finish();
  Elements sums;
#pragma unroll
  for (int v = 0; v < V; ++v) sums.at[v] = E::store(run.total[v]);
  *to = sums;
}

// The update's number, of updates that are sorted in shared memory.
struct ScannedItem {
  uint32_t number;
  __device__ __forceinline__ uint32_t index() const { return number; }
};

constexpr int kSortScanThreads = 512, kSortScanWarps = kSortScanThreads / 32;

// As scan_updates, of more updates of a place: a block sorts those of its kPlaces places, at most, by counts of each warp's
// share, and so reads them as apply_updates does. Dynamic shared memory has four bytes for each update, and for each place
// and warp.
template <int kReduction, int kStart, int V, int kPlaces, class T, class Updates, class Index, class I, int LR, int PR, int BR,
          int K>
__device__ __forceinline__ void sort_scanned_updates(const Scatter<I, LR, PR, BR, K>& s, const Index* indices,
                                                     int64_t count, int64_t targets, const T* x, const Updates& updates,
                                                     T* out, CallError* error) {
  static_assert(kPlaces <= kApplyThreads, "a thread has one place at most");
  constexpr int kAhead = 4, kAtOnce = 32 * kAhead;
  extern __shared__ __align__(16) char scan_memory[];
  auto& counts = *reinterpret_cast<uint32_t(*)[kSortScanWarps][kPlaces]>(scan_memory);
  ScannedItem* sorted = reinterpret_cast<ScannedItem*>(scan_memory + sizeof(counts));
  __shared__ uint32_t starts[kPlaces + 1], warps[kSortScanWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t per_line = s.block.count() / V, elements = targets * per_line;
  const int64_t first_flat = int64_t(blockIdx.x) * kApplyThreads, flat = first_flat + threadIdx.x;
  const int64_t first_target = first_flat / per_line,
                last_target = (min(first_flat + kApplyThreads, elements) - 1) / per_line;
  for (int i = threadIdx.x; i < kSortScanWarps * kPlaces; i += kSortScanThreads) counts[i / kPlaces][i % kPlaces] = 0;
  __syncthreads();
  const int64_t each = (count + kSortScanWarps * 32 - 1) / (kSortScanWarps * 32) * 32, begin = warp * each,
                end = min(count, begin + each);
  // `visit(line, place)` of 32 neighbouring updates at a time; a place of another block is none of kPlaces.
  const auto visit_updates = [&](bool reports, const auto& visit) {
    for (int64_t i = begin; i < end; i += kAtOnce) {
      WideItem items[kAhead];
#pragma unroll
      for (int n = 0; n < kAhead; ++n) {
        const int64_t line = i + n * 32 + lane;
        items[n] = line < end ? s.template item<WideItem, false, false>(indices, kNotCarried, line, error) : WideItem::last();
      }
#pragma unroll
      for (int n = 0; n < kAhead; ++n) {
        const int64_t line = i + n * 32 + lane;
        if (reports && line < end && items[n].is_last())
          s.template item<WideItem, true, false>(indices, kNotCarried, line, error);
        const int64_t target = int64_t(items[n].key());
        const bool here = !items[n].is_last() && target >= first_target && target <= last_target;
        visit(line, here ? uint32_t(target - first_target) : uint32_t(kPlaces));
      }
    }
  };
  visit_updates(blockIdx.x == 0, [&](int64_t, uint32_t place) {
    if (place < kPlaces) atomicAdd(&counts[warp][place], 1u);
  });
  __syncthreads();
  uint32_t all = 0;
  if (threadIdx.x < kPlaces)
    for (int w = 0; w < kSortScanWarps; ++w) {
      const uint32_t of_warp = counts[w][threadIdx.x];
      counts[w][threadIdx.x] = all;
      all += of_warp;
    }
  const Before<uint32_t> before = sum_before<uint32_t>(all, warps);
  if (threadIdx.x < kPlaces) {
    for (int w = 0; w < kSortScanWarps; ++w) counts[w][threadIdx.x] += before.sum;
    starts[threadIdx.x] = before.sum;
  }
  if (threadIdx.x == 0) starts[kPlaces] = before.all;
  __syncthreads();
  visit_updates(false, [&](int64_t line, uint32_t place) {
    if (!__any_sync(0xffffffffu, place < kPlaces)) return;
    const uint32_t equal = __match_any_sync(0xffffffffu, place), ahead = __popc(equal & ((1u << lane) - 1));
    const uint32_t at = place < kPlaces ? counts[warp][place] : 0;
    __syncwarp();
    if (place < kPlaces) {
      if (ahead == 0) counts[warp][place] = at + __popc(equal);
      sorted[at + ahead].number = uint32_t(line);
    }
    __syncwarp();
  });
  __syncthreads();
  const bool writes = threadIdx.x < kApplyThreads && flat < elements;
  const int64_t target = flat / per_line, offset = (flat - target * per_line) * V;
  const uint32_t mine = writes ? uint32_t(target - first_target) : 0;
  const int64_t run_begin = writes ? starts[mine] : 0, run_end = writes ? starts[mine + 1] : 0;
  const auto at_offset = [&](int64_t o) { return updates_at<V>(s, updates, o); };
  Pack<T, V> old, *to = nullptr;
  Fold<kReduction, V, T> fold;
  if (writes) {
    to = elements_of<kStart>(s, target, offset, x, out, old);
    fold.start(old);
    const bool cuts = kReduction != kReplace;
    fold.add(sorted, run_begin, cuts ? min(run_end, run_begin + kChunk) : run_end, at_offset(offset));
  }
  if constexpr (kReduction != kReplace)
    fold_in_block<Fold<kReduction, V, T>, V>(fold, sorted, run_end - run_begin > kChunk, run_begin, run_end, offset,
                                             per_line, at_offset);
  if (writes) fold.store(to, old, run_begin < run_end);
}

}  // namespace aicf
