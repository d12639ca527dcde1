// Few updates of a scatter in the order of the places that they go to, and where those of each place begin: what radix.cuh
// does in many launches, in one or two.
#pragma once

#include "order/radix.cuh"

namespace aicf {

// Few updates, sorted by one block of kOrderThreads in shared memory: as radix.cuh, but all passes in one launch. A word is a
// target above the kIndexBits of an update's number; one left out goes to target `targets`. `read` gives items, `report` says why an
// update is left out: a load would not pass a report before it.
constexpr int kOrderThreads = 1024, kOrderWarps = kOrderThreads / 32;

// How many words have a target below `target`.
template <int kIndexBits, class Word>
__device__ __forceinline__ int words_below(const Word* words, int count, Word target) {
  int low = 0, high = count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (words[middle] >> kIndexBits < target)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// One pass over `mine`, the words of a warp in their order, 32 neighbours at a time.
template <int kItems, int kShift, int kBits, class Word>
__device__ __forceinline__ void order_words(const Word (&mine)[kItems], int rounds, Word* words, uint32_t* places,
                                            uint32_t (&warps)[kOrderWarps]) {
  constexpr int kDigits = 1 << kBits, kRow = kOrderWarps + 1, kEach = kDigits * kOrderWarps / kOrderThreads;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int i = threadIdx.x; i < kDigits * kRow; i += kOrderThreads) places[i] = 0;
  __syncthreads();
  const auto digit = [](Word word) { return int(word >> kShift) & (kDigits - 1); };
  uint32_t ranks[kItems];
#pragma unroll
  for (int n = 0; n < kItems; ++n) {
    if (n >= rounds) break;
    uint32_t& placed = places[digit(mine[n]) * kRow + warp];
    const uint32_t equal = equal_lanes<kBits>(uint32_t(digit(mine[n])));
    const uint32_t before = __popc(equal & ((1u << lane) - 1)), placed_before = placed;
    __syncwarp();
    if (before == 0) placed = placed_before + __popc(equal);
    __syncwarp();
    ranks[n] = placed_before + before;
  }
  __syncthreads();
  uint32_t counts[kEach], sum = 0;
  uint32_t* own = places + threadIdx.x * kEach / kOrderWarps * kRow + threadIdx.x * kEach % kOrderWarps;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    counts[i] = sum;
    sum += own[i];
  }
  const uint32_t before = sum_before(sum, warps).sum;
#pragma unroll
  for (int i = 0; i < kEach; ++i) own[i] = before + counts[i];
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kItems; ++n)
    if (n < rounds) words[places[digit(mine[n]) * kRow + warp] + ranks[n]] = mine[n];
  __syncthreads();
}

// Bytes of shared memory: kItems * kOrderThreads words, and kOrderWarps + 1 counts for each digit.
template <int kItems, int kPasses, int kBits, int kIndexBits, class Word, class Item, class Count, class Read,
          class Report>
__device__ __forceinline__ void order_in_block(const Read& read, const Report& report, int count, int64_t targets,
                                               Item* sorted, Count* starts) {
  static_assert(kBits >= 5 && kBits <= 8, "a thread counts whole parts of a digit");
  extern __shared__ __align__(16) char order_memory[];
  __shared__ uint32_t warps[kOrderWarps];
  Word* words = reinterpret_cast<Word*>(order_memory);
  uint32_t* places = reinterpret_cast<uint32_t*>(words + kItems * kOrderThreads);
  const int each = (count + kOrderThreads - 1) / kOrderThreads;  // of a thread
  const int first = int(threadIdx.x) / 32 * 32 * each + int(threadIdx.x) % 32;
  const int rounds = min(each, max(0, (count - first + int(threadIdx.x) % 32 + 31) / 32));
  Word mine[kItems];
  if (count > 0) {
    Item items[kItems];  // read at once
#pragma unroll
    for (int n = 0; n < kItems; ++n) items[n] = read(min(first + n * 32, count - 1));
#pragma unroll
    for (int n = 0; n < kItems; ++n) {
      const Word target = items[n].is_last() ? Word(targets) : Word(items[n].key());
      mine[n] = n < rounds && first + n * 32 < count ? target << kIndexBits | Word(first + n * 32) : ~Word(0);
    }
  }
#pragma unroll
  for (int n = 0; n < kItems; ++n)
    if (n < rounds && first + n * 32 < count && mine[n] >> kIndexBits == Word(targets)) report(first + n * 32);
  const auto again = [&] {
#pragma unroll
    for (int n = 0; n < kItems; ++n)
      if (n < rounds) mine[n] = first + n * 32 < count ? words[first + n * 32] : ~Word(0);
  };
  order_words<kItems, kIndexBits, kBits>(mine, rounds, words, places, warps);
  if constexpr (kPasses > 1) again(), order_words<kItems, kIndexBits + kBits, kBits>(mine, rounds, words, places, warps);
  if constexpr (kPasses > 2)
    again(), order_words<kItems, kIndexBits + 2 * kBits, kBits>(mine, rounds, words, places, warps);
  for (int i = threadIdx.x; i < count; i += kOrderThreads) {
    const uint64_t target = words[i] >> kIndexBits;
    sorted[i] = target >= uint64_t(targets) ? Item::last()
                                            : Item::make(target, words[i] & ((Word(1) << kIndexBits) - 1));
  }
  if (starts == nullptr) return;
  for (int64_t target = threadIdx.x; target <= targets; target += kOrderThreads)
    starts[target] = Count(words_below<kIndexBits>(words, count, Word(target)));
}

// More of them, by a cluster of kOrderBlocks blocks of which each counts a share of the targets in its shared memory. Counting
// gives each update a place among those of its target, in whatever order; order_segments then brings them into theirs.
constexpr int kOrderBlocks = 8;

struct ClusterCounts {
  uint32_t own;   // address in shared memory
  int share;      // targets of a block

  __device__ __forceinline__ uint32_t at(int target) const {
    const int block = target / share;
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own + 4 * (target - block * share)), "r"(block));
    return there;
  }
  __device__ __forceinline__ uint32_t add(int target, uint32_t more) const {
    uint32_t before;
    asm volatile("atom.relaxed.cluster.shared::cluster.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "r"(at(target)), "r"(more)
                 : "memory");
    return before;
  }
  __device__ __forceinline__ uint32_t load(int target) const {
    uint32_t value;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(at(target)) : "memory");
    return value;
  }
};
__device__ __forceinline__ void wait_for_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Bytes of shared memory: 4 for each target of a share. `placed` is the order but for that within targets; left-out updates are
// there in `sorted`.
template <int kItems, class Item, class Count, class Read, class Report>
__device__ __forceinline__ void place_in_cluster(const Read& read, const Report& report, int count, int targets,
                                                 Item* placed, Item* sorted, Count* starts) {
  extern __shared__ __align__(16) char order_memory[];
  __shared__ uint32_t warps[kOrderWarps], totals[kOrderBlocks];
  uint32_t* counts = reinterpret_cast<uint32_t*>(order_memory);
  const int lane = threadIdx.x % 32, block = int(blockIdx.x);
  // Left-out updates go to one target more.
  const int share = (targets + kOrderBlocks) / kOrderBlocks, first_target = block * share;
  const ClusterCounts all = {uint32_t(__cvta_generic_to_shared(counts)), share};
  for (int i = threadIdx.x; i < share; i += kOrderThreads) counts[i] = 0;
  const auto number = [&](int n) { return (n * kOrderBlocks + block) * kOrderThreads + int(threadIdx.x); };
  int target[kItems];
  if (count > 0) {
    Item items[kItems];
#pragma unroll
    for (int n = 0; n < kItems; ++n) items[n] = read(min(number(n), count - 1));
#pragma unroll
    for (int n = 0; n < kItems; ++n) target[n] = items[n].is_last() ? targets : int(items[n].key());
#pragma unroll
    for (int n = 0; n < kItems; ++n)
      if (number(n) < count && target[n] == targets) report(number(n));
  }
  wait_for_cluster();
  uint32_t rank[kItems], equal[kItems];
#pragma unroll
  for (int n = 0; n < kItems; ++n) {
    // Lanes of the first one's target add once.
    const bool is_one = number(n) < count;
    const int of_first = __shfl_sync(0xffffffffu, target[n], 0);
    equal[n] = __ballot_sync(0xffffffffu, is_one && target[n] == of_first);
    const bool is_equal = equal[n] >> lane & 1;
    rank[n] = is_one && (!is_equal || lane == 0) ? all.add(target[n], is_equal ? __popc(equal[n]) : 1) : 0;
  }
#pragma unroll
  for (int n = 0; n < kItems; ++n) {
    const uint32_t first = __shfl_sync(0xffffffffu, rank[n], 0);
    if (equal[n] >> lane & 1) rank[n] = first + __popc(equal[n] & ((1u << lane) - 1));
  }
  wait_for_cluster();
  const int each = (share + kOrderThreads - 1) / kOrderThreads;
  const int begin = min(int(threadIdx.x) * each, share), end = min(begin + each, share);
  uint32_t sum = 0;
  for (int i = begin; i < end; ++i) sum += counts[i];
  const Before<uint32_t> before = sum_before(sum, warps);
  if (threadIdx.x < kOrderBlocks) {
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(there)
        : "r"(uint32_t(__cvta_generic_to_shared(totals + block))), "r"(int(threadIdx.x)));
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there), "r"(before.all) : "memory");
  }
  wait_for_cluster();
  uint32_t start = before.sum;
  for (int b = 0; b < block; ++b) start += totals[b];
  for (int i = begin; i < end; ++i) {
    const uint32_t here = counts[i];
    counts[i] = start;
    if (first_target + i <= targets) starts[first_target + i] = Count(start);
    start += here;
  }
  wait_for_cluster();
#pragma unroll
  for (int n = 0; n < kItems; ++n) {
    if (number(n) >= count) break;
    const uint32_t place = all.load(target[n]) + rank[n];
    if (target[n] == targets)
      sorted[place] = Item::last();
    else
      placed[place] = Item::make(uint64_t(target[n]), uint64_t(number(n)));
  }
  wait_for_cluster();  // no block ends while others read its counts
}

// The updates of each target in their order: in short segments by counting those before, in others, of which one at most
// begins in a block, by a set of bits. At most kMost updates in all.
template <int kMost, class Item, class Count>
__device__ __forceinline__ void order_segments(const Item* placed, const Count* starts, int64_t targets, Item* sorted) {
  constexpr int kShort = kRadixThreads, kWords = kMost / 32, kEach = kWords / kRadixThreads;
  const int place = int(blockIdx.x) * kRadixThreads + int(threadIdx.x);
  const bool is_one = place < int(starts[targets]);
  int begin = 0, end = 0;
  Item item = Item::last();
  if (is_one) {
    item = placed[place];
    begin = int(starts[item.key()]);
    end = int(starts[item.key() + 1]);
  }
  if (is_one && end - begin <= kShort) {
    int before = 0;
#pragma unroll 8
    for (int i = begin; i < end; ++i) before += placed[i].before(item);
    sorted[begin + before] = item;
  }
  const bool is_long = is_one && end - begin > kShort && place == begin;
  if (!__syncthreads_or(is_long)) return;
  __shared__ uint32_t bits[kWords], warps[kRadixWarps];
  __shared__ int range[2];
  __shared__ uint64_t key;
  if (is_long) range[0] = begin, range[1] = end, key = item.key();
  for (int i = threadIdx.x; i < kWords; i += kRadixThreads) bits[i] = 0;
  __syncthreads();
  for (int i = range[0] + threadIdx.x; i < range[1]; i += kRadixThreads) {
    const int64_t number = placed[i].index();
    atomicOr(&bits[number / 32], 1u << (number % 32));
  }
  __syncthreads();
  uint32_t sum = 0;
  for (int i = 0; i < kEach; ++i) sum += __popc(bits[threadIdx.x * kEach + i]);
  Item* to = sorted + range[0] + sum_before(sum, warps).sum;
  for (int i = 0; i < kEach; ++i) {
    const int word = threadIdx.x * kEach + i;
    for (uint32_t left = bits[word]; left != 0; left &= left - 1)
      *to++ = Item::make(key, uint64_t(word * 32 + __ffs(left) - 1));
  }
}

}  // namespace aicf
