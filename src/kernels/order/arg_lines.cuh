// argmax, argmin along one axis. "Lines" are all other axes.
#pragma once

#include "order/scan_lines.cuh"
#include "order/sort.cuh"

namespace aicf {

// An element's rank, where the largest wins and NaN is the largest of all, and its index; of equals the first, or the last.
struct Candidate {
  uint64_t rank;
  int64_t index;
};

// Sums with zero make -0 a 0 and every NaN the one that has all bits but the sign.
template <bool kMinimum>
__device__ __forceinline__ uint32_t rank_of(float x) {
  const uint32_t bits = __float_as_uint(kMinimum ? 0.0f - x : x + 0.0f);
  return bits ^ (uint32_t(int32_t(bits) >> 31) | 0x80000000u);
}
template <bool kMinimum>
__device__ __forceinline__ uint32_t rank_of(f16 x) {
  return rank_of<kMinimum>(to_float(x));
}
template <bool kMinimum>
__device__ __forceinline__ uint32_t rank_of(bf16 x) {
  return rank_of<kMinimum>(to_float(x));
}
template <bool kMinimum, class T>
__device__ __forceinline__ auto rank_of(T x) {
  const auto key = sort_key(x);
  using Key = decltype(sort_key(x));
  const bool nan = IsFloat<T>::value && key == Key(~Key(0));
  return kMinimum && !nan ? Key(~key) : key;
}

template <bool kLast>
__device__ __forceinline__ Candidate better(Candidate a, Candidate b) {
  const bool second = b.rank > a.rank || (b.rank == a.rank && (kLast ? b.index > a.index : b.index < a.index));
  return second ? b : a;
}

// The best of kThreads neighbouring threads, a power of two, in the first of them.
template <int kThreads, bool kLast>
__device__ __forceinline__ Candidate best_of(Candidate best) {
  const auto best_lane = [](Candidate own, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) {
      Candidate other;
      other.rank = __shfl_down_sync(0xffffffffu, own.rank, step);
      other.index = __shfl_down_sync(0xffffffffu, own.index, step);
      own = better<kLast>(own, other);
    }
    return own;
  };
  if constexpr (kThreads <= 32) {
    return best_lane(best, kThreads);
  } else {
    constexpr int kWarps = kThreads / 32;
    __shared__ Candidate warps[kWarps < 8 ? 8 : kWarps];  // of all groups of a block of 256
    best = best_lane(best, 32);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x % kThreads < 32)
      best = best_lane(warps[threadIdx.x / kThreads * kWarps + threadIdx.x % kWarps], kWarps);
    return best;
  }
}
// `some`: whether this thread has any.
template <int kThreads, bool kLast>
__device__ __forceinline__ Candidate best_of(Candidate best, bool some, int64_t size) {
  // What loses to everything: rank 0 at an index that is never preferred.
  return best_of<kThreads, kLast>(some ? best : Candidate{0, kLast ? -1 : size});
}

// A block of 256 is kLines neighbouring lines by shares of these; the best of a line's shares, in its first.
template <int kLines, bool kLast>
__device__ __forceinline__ Candidate best_of_shares(Candidate best) {
  if constexpr (kLines == 256) return best;
  __shared__ Candidate of[256];
  of[threadIdx.x] = best;
#pragma unroll
  for (int half = 128; half >= kLines; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) of[threadIdx.x] = better<kLast>(of[threadIdx.x], of[threadIdx.x + half]);
  }
  return of[threadIdx.x];
}

// kThreads of a block of 256 per line: 32 or 256.
template <int kThreads, bool kMinimum, bool kLast, class T, class I, int R>
__device__ __forceinline__ void arg_lines(const ScanLines<I, R>& s, const T* x, int64_t* out) {
  const int part = threadIdx.x % kThreads;
  const I line = I(blockIdx.x) * (256 / kThreads) + I(threadIdx.x / kThreads);
  const bool exists = line < s.lines.count();
  I at[2] = {0, 0};
  if (exists) s.lines.locate(line, at);
  Candidate best = {0, 0};
  bool some = false;
  if (exists)
    for (I i = part; i < s.size; i += kThreads) {
      const Candidate candidate = {rank_of<kMinimum>(x[at[0] + i * s.x_stride]), i};
      best = some ? better<kLast>(best, candidate) : candidate;
      some = true;
    }
  best = best_of<kThreads, kLast>(best, some, s.size);
  if (exists && part == 0) out[at[1]] = best.index;
}

// An element that wins over none.
template <bool kMinimum, class T>
__device__ __forceinline__ T weakest() {
  using E = Element<T>;
  using V = typename E::Value;
  if constexpr (IsFloat<V>::value) {
    return E::store(V(__uint_as_float(kMinimum ? 0x7f800000u : 0xff800000u)));
  } else {
    constexpr T kLow = T(-1) < T(0) ? T(uint64_t(1) << (8 * sizeof(T) - 1)) : T(0);
    return kMinimum ? T(~uint64_t(kLow)) : kLow;
  }
}

// 16 bytes of elements. As words, since halves would be taken apart where they are loaded, one unit after the other.
struct alignas(16) ArgUnit {
  uint32_t words[4] = {};
};
template <class T>
__device__ __forceinline__ T element_of(const ArgUnit& unit, int n) {
  constexpr int kEach = sizeof(T) < 4 ? 4 / sizeof(T) : 1;  // of a word
  Bits<sizeof(T)> bits;
  if constexpr (sizeof(T) == 8)
    bits = unit.words[2 * n] | uint64_t(unit.words[2 * n + 1]) << 32;
  else
    bits = Bits<sizeof(T)>(unit.words[n / kEach] >> (n % kEach * 8 * (4 / kEach)));
  return reinterpret_cast<const T&>(bits);
}
template <class T>
__device__ __forceinline__ void set_element(ArgUnit& unit, int n, T x) {
  constexpr int kEach = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
  const Bits<sizeof(T)> bits = reinterpret_cast<const Bits<sizeof(T)>&>(x);
  if constexpr (sizeof(T) == 8)
    unit.words[2 * n] = uint32_t(bits), unit.words[2 * n + 1] = uint32_t(bits >> 32);
  else
    unit.words[n / kEach] |= uint32_t(bits) << (n % kEach * 8 * (4 / kEach));
}

// A row's elements from `first` on, whose address is a multiple of 16; the weakest where there are none.
template <bool kMinimum, class T, class I>
__device__ __forceinline__ ArgUnit unit_of(const T* row, I first, I size) {
  constexpr int kUnit = 16 / sizeof(T);
  if (first >= 0 && first + kUnit <= size) return *reinterpret_cast<const ArgUnit*>(row + first);
  ArgUnit unit;
#pragma unroll
  for (int u = 0; u < kUnit; ++u)
    set_element(unit, u, first + u >= 0 && first + u < size ? row[first + u] : weakest<kMinimum, T>());
  return unit;
}

// The rank and the number of the best of a thread's elements.
template <bool kMinimum, bool kLast, class T, int kUnits, class Key>
__device__ __forceinline__ void best_of_units(const ArgUnit (&units)[kUnits], Key& most, int& number) {
  constexpr int kUnit = 16 / sizeof(T);
  most = 0, number = 0;
#pragma unroll
  for (int n = 0; n < kUnits * kUnit; ++n) {
    const Key key = rank_of<kMinimum>(element_of<T>(units[n / kUnit], n % kUnit));
    if (kLast ? key >= most : key > most) most = key, number = n;
  }
}
// Two elements times 1 or -1, with one zero and one NaN, which has all bits but the sign.
template <bool kMinimum>
__device__ __forceinline__ uint32_t plain_halves(f16, uint32_t pair) {
  asm("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(pair) : "r"(kMinimum ? 0xbc00bc00u : 0x3c003c00u), "r"(0u));
  asm("max.NaN.f16x2 %0, %0, %0;" : "+r"(pair));
  return pair;
}
template <bool kMinimum>
__device__ __forceinline__ uint32_t plain_halves(bf16, uint32_t pair) {
  asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(pair) : "r"(kMinimum ? 0xbf80bf80u : 0x3f803f80u), "r"(0u));
  asm("max.NaN.bf16x2 %0, %0, %0;" : "+r"(pair));
  return pair;
}
// The same of halves: rank and number are one word. Ranks are of 16 bits.
template <bool kMinimum, bool kLast, class T, int kUnits>
__device__ __forceinline__ void best_of_halves(const ArgUnit (&units)[kUnits], uint32_t& most, int& number) {
  const auto item = [](uint32_t upper, int n) {
    const uint32_t rank = upper ^ (uint32_t(int32_t(upper) >> 31) | 0x80000000u);
    return (rank & 0xffff0000u) | uint32_t(kLast ? n : 0xffff - n);
  };
  uint32_t best = 0;
#pragma unroll
  for (int n = 0; n < kUnits * 8; n += 2) {
    const uint32_t pair = plain_halves<kMinimum>(T(), units[n / 8].words[n % 8 / 2]);
    best = max(best, max(item(pair << 16, n), item(pair, n + 1)));
  }
  most = best >> 16;
  number = kLast ? int(best & 0xffffu) : int(0xffffu - (best & 0xffffu));
}

// Lines of neighbours, kThreads for each of kRows lines at once; a thread has kUnits times 16 bytes of a line in flight. Units
// begin where an address allows it, up to kUnit - 1 elements before the line. If kRows is not 1 they hold all of a line.
template <int kThreads, int kUnits, int kRows, bool kMinimum, bool kLast, class T, class I, int R>
__device__ __forceinline__ void arg_rows(const ScanLines<I, R>& s, const T* x, int64_t* out) {
  constexpr int kUnit = 16 / sizeof(T), kGroups = kThreads < 256 ? 256 / kThreads : 1;
  constexpr I kTile = I(kThreads) * kUnits * kUnit;
  using Key = decltype(rank_of<kMinimum>(T()));
  const int part = threadIdx.x % kThreads;
  const I count = s.lines.count(), first_line = I(blockIdx.x) * (kGroups * kRows) + I(threadIdx.x / kThreads);
  I at[kRows][2], size[kRows], begin[kRows];
  ArgUnit units[kRows][kUnits];
  const auto load = [&](int r, I tile) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u)
      units[r][u] = unit_of<kMinimum>(x + at[r][0], tile + begin[r] + (u * kThreads + part) * kUnit, size[r]);
  };
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const I line = first_line + r * kGroups;
    const bool exists = line < count;
    at[r][0] = at[r][1] = 0;
    if (exists) s.lines.locate(line, at[r]);
    size[r] = exists ? s.size : 0;
    begin[r] = -I(reinterpret_cast<uint64_t>(x + at[r][0]) / sizeof(T) % kUnit);
    if (kRows > 1) load(r, 0);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    Key best = 0;
    I found = 0;
    for (I tile = 0; tile == 0 || tile + begin[r] < size[r]; tile += kTile) {
      if (kRows == 1) load(r, tile);
      Key most;
      int number;
      if constexpr (IsFloat<typename Element<T>::Value>::value && sizeof(T) == 2)
        best_of_halves<kMinimum, kLast, T>(units[r], most, number);
      else
        best_of_units<kMinimum, kLast, T>(units[r], most, number);
      if (tile == 0 || (kLast ? most >= best : most > best))
        best = most, found = tile + begin[r] + (number / kUnit * kThreads + part) * kUnit + number % kUnit;
      if (kRows > 1) break;
    }
    const Candidate candidate = best_of<kThreads, kLast>(Candidate{best, int64_t(found)});
    // Where all are the weakest, none of these has been told from places outside.
    if (part == 0 && size[r] > 0) out[at[r][1]] = max(min(I(candidate.index), s.size - 1), I(0));
  }
}

// Lines that are neighbours in memory: each block of 256 takes kPart elements of kLines of them and gives the best to
// `parts`; or all elements, where kPart is 0, and gives it to `out`. ...
template <int kLines, int kPart, bool kMinimum, bool kLast, class T, class I, int R>
__device__ __forceinline__ void arg_columns(const ScanLines<I, R>& s, const T* x, Candidate* parts, int64_t* out) {
  constexpr int kShares = 256 / kLines, kLoads = 16;
  const int share = threadIdx.x / kLines;
  const I count = s.lines.count(), groups = (count + (kLines - 1)) / kLines;
  const I line = I(blockIdx.x) % groups * kLines + threadIdx.x % kLines, part = I(blockIdx.x) / groups;
  const bool exists = line < count;
  I at[2] = {0, 0};
  if (exists) s.lines.locate(line, at);
  const I begin = part * I(kPart), end = kPart == 0 ? s.size : min(s.size, begin + I(kPart));
  // What loses to everything where there is no element; indices grow, so that keys alone decide.
  Candidate best = {0, kLast ? int64_t(-1) : int64_t(s.size)};
  if (exists && begin + share < end) {
    decltype(sort_key(*x)) most = 0;
    I found = begin + share;
    for (I first = begin + share; first < end; first += kShares * kLoads) {
      T values[kLoads];
#pragma unroll
      for (int load = 0; load < kLoads; ++load)
        if (first + load * kShares < end) values[load] = x[at[0] + (first + load * kShares) * s.x_stride];
#pragma unroll
      for (int load = 0; load < kLoads; ++load) {
        const I i = first + load * kShares;
        const auto key = decltype(most)(rank_of<kMinimum>(values[load]));
        if (i < end && (kLast ? key >= most : key > most)) most = key, found = i;
      }
    }
    best = {most, int64_t(found)};
  }
  best = best_of_shares<kLines, kLast>(best);
  if (share != 0 || !exists) return;
  if constexpr (kPart == 0) {
    out[at[1]] = best.index;
  } else {
    parts[int64_t(part) * count + line] = best;
  }
}

// ... and a block finds the best of the parts of kLines lines.
template <int kLines, int kPart, bool kLast, class I, int R>
__device__ __forceinline__ void arg_of_columns(const ScanLines<I, R>& s, const Candidate* parts, int64_t* out) {
  const I count = s.lines.count(), line = I(blockIdx.x) * kLines + threadIdx.x % kLines;
  const uint32_t per_line = uint32_t((s.size + (kPart - 1)) / kPart);
  Candidate best = {0, kLast ? int64_t(-1) : int64_t(s.size)};
  if (line < count)
    for (uint32_t i = threadIdx.x / kLines; i < per_line; i += 256 / kLines)
      best = better<kLast>(best, parts[int64_t(i) * count + line]);
  best = best_of_shares<kLines, kLast>(best);
  if (threadIdx.x >= kLines || line >= count) return;
  I at[2] = {0, 0};
  s.lines.locate(line, at);
  out[at[1]] = best.index;
}

// Few long lines: each block of 256 takes kPart elements of one, kUnit neighbours at a time, ...
template <int kPart, int kUnit, bool kMinimum, bool kLast, class T, class I, int R>
__device__ __forceinline__ void arg_parts(const ScanLines<I, R>& s, const T* x, Candidate* parts) {
  const uint32_t per_line = uint32_t((s.size + kPart - 1) / kPart);
  I at[2] = {0, 0};
  s.lines.locate(I(blockIdx.x / per_line), at);
  const I first = I(blockIdx.x % per_line) * kPart;
  constexpr int kLoads = kPart / kUnit / 256;
  Pack<T, kUnit> values[kLoads];
#pragma unroll
  for (int load = 0; load < kLoads; ++load) {
    const I i = first + (load * 256 + I(threadIdx.x)) * kUnit;
    if (i < s.size) values[load] = *reinterpret_cast<const Pack<T, kUnit>*>(x + at[0] + i * s.x_stride);
  }
  Candidate best = {0, 0};
  bool some = false;
#pragma unroll
  for (int load = 0; load < kLoads; ++load)
#pragma unroll
    for (int u = 0; u < kUnit; ++u) {
      const I i = first + (load * 256 + I(threadIdx.x)) * kUnit + u;
      if (i >= s.size) continue;
      const Candidate candidate = {rank_of<kMinimum>(values[load].at[u]), i};
      best = some ? better<kLast>(best, candidate) : candidate;
      some = true;
    }
  best = best_of<256, kLast>(best, some, s.size);
  if (threadIdx.x == 0) parts[blockIdx.x] = best;
}

// ... and a warp finds the best of a line's parts.
template <int kPart, bool kLast, class I, int R>
__device__ __forceinline__ void arg_of_parts(const ScanLines<I, R>& s, const Candidate* parts, int64_t* out) {
  const uint32_t per_line = uint32_t((s.size + kPart - 1) / kPart);
  I at[2] = {0, 0};
  s.lines.locate(I(blockIdx.x), at);
  Candidate best = {0, 0};
  bool some = false;
  for (uint32_t i = threadIdx.x; i < per_line; i += 32) {
    const Candidate candidate = parts[int64_t(blockIdx.x) * per_line + i];
    best = some ? better<kLast>(best, candidate) : candidate;
    some = true;
  }
  best = best_of<32, kLast>(best, some, s.size);
  if (threadIdx.x == 0) out[at[1]] = best.index;
}

}  // namespace aicf
