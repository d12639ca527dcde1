// Micro-kernels of dense contractions. One call of micro() keeps a tile of C in registers over a whole block
// of k; columns are vector lanes and k is never split over lanes, so every element is one chain of
// multiply-adds.
#include <stdint.h>

#include "hwy/highway.h"
#include "kernels/matmul/cpu/gemm_pack.h"
#include "kernels/matmul/cpu/gemm_simd.h"
#include "kernels/matmul/cpu/gemm_types.h"
#if HWY_TARGET != HWY_SCALAR
#include "kernels/tile/cpu/vector_math.h"
#endif

namespace aicf::AICF_ISA_NAMESPACE {
extern const GemmIsa kGemmIsa;
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kLine = 64;  // bytes of a cache line
constexpr int64_t kFewRows = 16;
constexpr int64_t kAhead = 16;  // steps of a panel to fetch ahead into L1
constexpr bool kRowsFirst = HWY_TARGET == HWY_AVX3;

// Memory to fetch while computing a panel, a line for each step of k. What the next panel fetches lies
// `stride` bytes after it.
struct Fetch {
  const char* from;
  int64_t lines, stride;
};

// Rows [row, row + kM) and the columns of one panel from `column` on, in registers.
template <int kM, int kN, class T>
class Sums {
  using S = Simd<T>;
  using V = typename S::Vec;
  static constexpr int64_t kLanes = S::kLanes;

 public:
  HWY_INLINE Sums() {
    each([](int, int, V& v) HWY_ATTR { v = S::zero(); });
  }

  template <bool kFetch>
  HWY_INLINE void multiply(const T* const* rows, const int64_t* lengths, int64_t segments,
                           const T* HWY_RESTRICT b, int64_t ldb, Fetch fetch) {
    for (; segments > 0; --segments, rows += kGemmRows, ++lengths) {
      const T* row[kM];
#pragma GCC unroll 8
      for (int i = 0; i < kM; ++i) row[i] = rows[i];
      const auto step = [&](int64_t k) HWY_ATTR {
        V right[kN];
#pragma GCC unroll 8
        for (int j = 0; j < kN; ++j) {
          right[j] = S::load(b + j * kLanes);
          if constexpr (kFetch) __builtin_prefetch(b + kAhead * panel<T>() + j * kLanes);
        }
        b += ldb;
#pragma GCC unroll 8
        for (int i = 0; i < kM; ++i) {
          const V left = S::set(row[i][k]);
#pragma GCC unroll 8
          for (int j = 0; j < kN; ++j) sum_[i][j] = S::mul_add(left, right[j], sum_[i][j]);
        }
      };
      const int64_t length = *lengths;
      int64_t k = 0;
      for (const int64_t end = fetch.lines < length ? fetch.lines : length; k < end;
           ++k, fetch.from += kLine) {
        __builtin_prefetch(fetch.from, 0, 2);
        step(k);
      }
      fetch.lines -= k;
      for (; k < length; ++k) step(k);
    }
  }

  HWY_INLINE void add(const T* c, int64_t ldc) {
    each([&](int i, int j, V& v) HWY_ATTR { v = S::add(S::load(c + i * ldc + j * kLanes), v); });
  }
  HWY_INLINE void store(T* c, int64_t ldc) {
    each([&](int i, int j, V& v) HWY_ATTR { S::store(v, c + i * ldc + j * kLanes); });
  }

#if HWY_TARGET != HWY_SCALAR
  // Does all that `finish` says but the store.
  HWY_INLINE void finish(const GemmFinish& finish, int64_t row, int64_t column) {
    const hn::ScalableTag<T> d;
    by_column(finish.scale, column, [](V x, V y) HWY_ATTR { return hn::Mul(x, y); });
    by_column(finish.shift, column, [](V x, V y) HWY_ATTR { return hn::Add(x, y); });
    if (finish.residual != nullptr)
      add(finish.residual + row * finish.residual_stride + column, finish.residual_stride);
    by_column(finish.low, column, [d](V x, V y) HWY_ATTR { return max_nan(d, x, y); });
    by_column(finish.high, column, [d](V x, V y) HWY_ATTR { return min_nan(d, x, y); });
  }
#endif

 private:
  template <class Function>
  HWY_INLINE void each(Function function) {
#pragma GCC unroll 8
    for (int i = 0; i < kM; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < kN; ++j) function(i, j, sum_[i][j]);
    }
  }
  // Nothing if there are no `columns`; else every sum becomes function(sum, its column's).
  template <class Function>
  HWY_INLINE void by_column(const T* columns, int64_t column, Function function) {
    if (columns == nullptr) return;
#pragma GCC unroll 8
    for (int j = 0; j < kN; ++j) {
      const V y = S::load(columns + column + j * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kM; ++i) sum_[i][j] = function(sum_[i][j], y);
    }
  }

  V sum_[kM][kN];
};

template <int kM, int kN>
HWY_INLINE void fetch_tile(const float* from, int64_t stride) {
#pragma GCC unroll 8
  for (int i = 0; i < kM; ++i, from += stride) {
#pragma GCC unroll 8
    for (int j = 0; j < kN; ++j) __builtin_prefetch(from + j * lanes<float>());
  }
}

// Asks for the memory that finish_sums will read or write.
template <int kM, int kN, class T>
HWY_INLINE void fetch_finish(const GemmFinish* finish, int64_t row, int64_t column) {
  if (sizeof(T) != sizeof(float) || finish == nullptr) return;
  if (finish->residual != nullptr)
    fetch_tile<kM, kN>(finish->residual + row * finish->residual_stride + column, finish->residual_stride);
  if (finish->fetch_out)
    fetch_tile<kM, kN>(finish->out + row * finish->out_stride + column, finish->out_stride);
}

// The sums of this block's steps are complete: out of the registers.
template <int kM, int kN, class T>
HWY_INLINE void finish_sums(const GemmBlock<T>& block, int64_t row, int64_t column, Sums<kM, kN, T>& sums) {
  T* c = block.c + row * block.ldc + column;
  if (!block.first) sums.add(c, block.ldc);
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(T) == sizeof(float)) {
    if (block.finish != nullptr) {
      const GemmFinish& finish = *block.finish;
      row += block.tile_row;
      sums.finish(finish, row, column);
      return sums.store(finish.out + row * finish.out_stride + column, finish.out_stride);
    }
  }
#endif
  sums.store(c, block.ldc);
}

// kM rows of C from `row` on, `panels` of them from panel `first` on; the left operand is `rows` in the
// block's segments, or one segment if it has none. kFetch: panels are fetched into L1 ahead of their use.
template <int kM, int kN, bool kFetch, class T>
HWY_NOINLINE void micro(const GemmBlock<T>& block, const T* const* rows, int64_t row, int64_t first,
                        int64_t panels, Fetch fetch) {
  const bool one = block.rows == nullptr;
  // What is wanted again after the multiply-adds waits in memory. Compilers would put it into vector
  // registers, from where it comes back only after all multiply-adds before it.
  const GemmBlock<T>* volatile kept_block = &block;
  const T* const* volatile kept_rows = rows;
  const int64_t* volatile lengths = one ? &block.depth : block.lengths;
  volatile int64_t segments = one ? 1 : block.segments, kept_row = row, column = first * panel<T>();
  const volatile int64_t stride = fetch.stride;
  for (const T* b = block.b + first * block.panel_stride; panels > 0; --panels) {
    Sums<kM, kN, T> sums;
    fetch_finish<kM, kN, T>(kept_block->finish, kept_block->tile_row + kept_row, column);
    sums.template multiply<kFetch>(kept_rows, lengths, segments, b, kept_block->ldb, fetch);
    finish_sums(*kept_block, kept_row, column, sums);
    column = column + panel<T>();
    b += kept_block->panel_stride;
    fetch.from += stride;
  }
}

template <class T>
using MicroFunction = void (*)(const GemmBlock<T>&, const T* const*, int64_t, int64_t, int64_t, Fetch);

// Not where panels stay in L1, nor for few rows, which wait for the right operand anyhow, nor for an unpacked
// one, whose rows are far apart.
template <int kM, int kN, class T>
MicroFunction<T> pick_fetch(const GemmBlock<T>& block) {
  if constexpr (kRowsFirst && kM > kRows / 2) {
    if (block.tile_rows > kFewRows && block.ldb == panel<T>()) return micro<kM, kN, true, T>;
  }
  return micro<kM, kN, false, T>;
}

template <int kN, class T>
MicroFunction<T> pick_rows(const GemmBlock<T>& block, int64_t rows) {
  switch (rows) {
    case 1:
      return pick_fetch<1, kN, T>(block);
    case 2:
      return pick_fetch<2, kN, T>(block);
    case 3:
      return pick_fetch<3, kN, T>(block);
    case 4:
      return pick_fetch<4, kN, T>(block);
#if HWY_TARGET == HWY_AVX3
    case 5:
      return pick_fetch<5, kN, T>(block);
    case 6:
      return pick_fetch<6, kN, T>(block);
    case 7:
      return pick_fetch<7, kN, T>(block);
    case 8:
      return pick_fetch<8, kN, T>(block);
#endif
  }
  return nullptr;
}

// For the last panel.
template <class T>
MicroFunction<T> pick(const GemmBlock<T>& block, int64_t rows, int64_t columns) {
  const int64_t vectors = (columns + lanes<T>() - 1) / lanes<T>();
  return vectors == 1   ? pick_rows<1, T>(block, rows)
         : vectors == 2 ? pick_rows<2, T>(block, rows)
                        : pick_rows<3, T>(block, rows);
}

// A panel narrower than its vectors goes through a copy, because the columns after it belong to someone else.
template <class T>
void ragged(MicroFunction<T> function, const GemmBlock<T>& block, const T* const* rows, int64_t row,
            int64_t count, int64_t first) {
  T tile[kRows * panel<T>()];
  GemmBlock<T> copy = block;
  copy.b += first * block.panel_stride;
  copy.c = tile;
  copy.ldc = panel<T>();
  copy.first = true;
  function(copy, rows, 0, 0, 1, {});
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = first * panel<T>(); j < block.n; ++j) {
      T& to = block.c[(row + i) * block.ldc + j];
      const T sum = tile[i * panel<T>() + j - first * panel<T>()];
      to = block.first ? sum : to + sum;
    }
  }
}

// What these rows fetch while computing their first panel.
template <class T>
Fetch fetch_of(const GemmBlock<T>& block, int64_t row, int64_t rows) {
  if (block.next == nullptr) {
    const int64_t panels = (block.n + panel<T>() - 1) / panel<T>();
    const int64_t lines = (block.ahead_bytes + panels * kLine - 1) / (panels * kLine);
    return {block.ahead, lines, lines * kLine};
  }
  const int64_t lines = block.next_depth * panel<T>() * static_cast<int64_t>(sizeof(T)) / kLine;
  row += block.tile_row;
  const int64_t begin = lines * row / block.tile_rows, end = lines * (row + rows) / block.tile_rows;
  return {reinterpret_cast<const char*>(block.next) + begin * kLine, end - begin,
          block.next_stride * static_cast<int64_t>(sizeof(T))};
}

// From a panel on; panels from `fetching` on fetch nothing.
inline Fetch fetch_at(const Fetch& fetch, int64_t panel, int64_t fetching) {
  return panel < fetching ? Fetch{fetch.from + panel * fetch.stride, fetch.lines, fetch.stride} : Fetch{};
}

// Rows [row, row + count), at most kRows, and panels [first, end).
template <class T>
void run_rows(const GemmBlock<T>& block, int64_t row, int64_t count, int64_t first, int64_t end) {
  const T* copy[kGemmRows];
  const T* const* rows = block.rows;
  if (rows == nullptr) {
    rows = copy;
    const T* at = block.a + row * block.lda;
    for (int64_t i = 0; i < count; ++i, at += block.lda) copy[i] = at;
  }
  const Fetch fetch = fetch_of(block, row, count);
  const int64_t whole = block.n / panel<T>();
  const int64_t fetching = block.next == nullptr ? end : block.next_panels;
  for (int64_t from = first, to; from < end && from < whole; from = to) {
    to = end < whole ? end : whole;
    if (from < fetching && fetching < to) to = fetching;
    pick_rows<kVectors, T>(block, count)(block, rows, row, from, to - from, fetch_at(fetch, from, fetching));
  }
  if (end <= whole) return;
  const int64_t columns = block.n - whole * panel<T>();
  const MicroFunction<T> function = pick<T>(block, count, columns);
  if (columns % lanes<T>() == 0 || block.padded)
    function(block, rows, row, whole, 1, fetch_at(fetch, whole, fetching));
  else
    ragged(function, block, rows, row, count, whole);
}

// Rows are dealt out evenly, since a call with few rows waits on the latency of its chains.
template <class T>
void run_block(const GemmBlock<T>& block) {
  const int64_t groups = (block.m + kRows - 1) / kRows, panels = (block.n + panel<T>() - 1) / panel<T>();
  const int64_t together = kRowsFirst ? panels : 1;  // the rows of A stay in L1, or else the panel
  for (int64_t first = 0; first < panels; first += together) {
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t row = g * block.m / groups;
      run_rows(block, row, (g + 1) * block.m / groups - row, first, first + together);
    }
  }
}

}  // namespace

const GemmIsa kGemmIsa = {kRows,
                          panel<float>(),
                          panel<double>(),
                          kRowsFirst,
                          HWY_TARGET != HWY_SCALAR,
                          run_block<float>,
                          run_block<double>,
                          run_pack<float>,
                          run_pack<double>};

}  // namespace aicf::AICF_ISA_NAMESPACE
