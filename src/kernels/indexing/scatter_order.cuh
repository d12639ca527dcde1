// Few updates of a scatter in the order of the places that they go to, and where those of each place begin: what radix.cuh
// does in many launches, in one.
#pragma once

#include "order/radix.cuh"

namespace aicf {

// starts[t]: how many sorted updates go to targets before t, for t up to `targets`. A thread for each place among `count`
// updates, and one behind, writes those of targets behind the place before up to its own; whole warps call it. `target_of`
// gives that of a place, `targets` where the update is left out.
template <class TargetOf, class Count>
__device__ __forceinline__ void find_starts(const TargetOf& target_of, int64_t count, int64_t place, int64_t targets,
                                            Count* starts) {
  constexpr int kFew = 8;  // that a thread writes, else its warp
  int64_t first = 0, last = -1;
  if (place <= count) {
    if (place > 0) first = target_of(place - 1) + 1;
    last = place < count ? target_of(place) : targets;
  }
  if (last - first < kFew)
    for (int64_t target = first; target <= last; ++target) starts[target] = Count(place);
  for (uint32_t left = __ballot_sync(0xffffffffu, last - first >= kFew); left != 0; left &= left - 1) {
    const int lane = __ffs(left) - 1;
    const int64_t end = __shfl_sync(0xffffffffu, last, lane);
    const Count value = __shfl_sync(0xffffffffu, Count(place), lane);
    for (int64_t target = __shfl_sync(0xffffffffu, first, lane) + threadIdx.x % 32; target <= end; target += 32)
      starts[target] = value;
  }
}

// Few updates, sorted by one block of kOrderThreads in shared memory: as radix.cuh, but all passes in one launch. A word is a
// target above the kIndexBits of an update's number; one left out goes to target `targets`. `read` gives items, `report` says why an
// update is left out: a load would not pass a report before it.
constexpr int kOrderThreads = 1024, kOrderWarps = kOrderThreads / 32;

// One pass over `mine`, the words of a warp in their order, 32 neighbours at a time.
template <int kItems, int kShift, int kBits, class Word>
__device__ __forceinline__ void order_words(const Word (&mine)[kItems], int rounds, Word* words, uint32_t* places,
                                            uint32_t (&warps)[kOrderWarps]) {
  constexpr int kDigits = 1 << kBits, kRow = kOrderWarps + 1, kEach = kDigits * kOrderWarps / kOrderThreads;
  const int warp = threadIdx.x / 32;
  for (int i = threadIdx.x; i < kDigits * kRow; i += kOrderThreads) places[i] = 0;
  __syncthreads();
  const auto digit = [](Word word) { return int(word >> kShift) & (kDigits - 1); };
  uint32_t ranks[kItems];
#pragma unroll
  for (int n = 0; n < kItems; ++n) {
    if (n >= rounds) break;
    ranks[n] = next_rank<kBits>(uint32_t(digit(mine[n])), places[digit(mine[n]) * kRow + warp]);
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
  static_assert(kPasses <= 4, "more digits than are sorted");
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
  if constexpr (kPasses > 3)
    again(), order_words<kItems, kIndexBits + 3 * kBits, kBits>(mine, rounds, words, places, warps);
  for (int i = threadIdx.x; i < count; i += kOrderThreads) {
    const uint64_t target = words[i] >> kIndexBits;
    sorted[i] = target >= uint64_t(targets) ? Item::last()
                                            : Item::make(target, words[i] & ((Word(1) << kIndexBits) - 1));
  }
  if (starts == nullptr) return;
  const auto target_of = [&](int64_t i) { return int64_t(words[i] >> kIndexBits); };
  for (int place = threadIdx.x; place - int(threadIdx.x % 32) <= count; place += kOrderThreads)
    find_starts(target_of, count, place, targets, starts);
}

}  // namespace aicf
