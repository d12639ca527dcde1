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
extern const GemmIsa kGemmIsa, kWideGemmIsa;
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kLine = 64;  // bytes of a cache line
constexpr int64_t kFewRows = 16;
// Steps of a panel to fetch ahead into L1: from L2, or for few rows, which wait for the panel, from memory.
constexpr int64_t kAhead = 16, kAheadOfFewRows = 48;
// Rows whose addresses leave general registers for those of a TileFetch; with more it is fetched at once.
// Otherwise addresses wait in vector registers, from where they come back only after the multiply-adds
// before.
constexpr int kFetchingRows = 6;
constexpr bool kRowsFirst = HWY_TARGET == HWY_AVX3;

// Memory to fetch while computing a panel, a line for each step of k. What the next panel fetches lies
// `stride` bytes after it.
struct Fetch {
  const char* from;
  int64_t lines, stride;
};

// Rows of memory, `stride` bytes apart, fetched by vectors of the tile.
struct TileLines {
  const char* from;
  int64_t stride;
};

// What finish_sums will read or write besides C, fetched a vector of each with each step of k, since many at
// once would keep panels waiting. Null: nothing.
struct TileFetch {
  TileLines first, second;
};

// Rows [row, row + kM) and the columns of one panel from `column` on, in registers.
template <int kM, int kN, class T>
class Sums {
  using S = Simd<T>;
  using V = typename S::Vec;
  static constexpr int64_t kLanes = S::kLanes, kVectorBytes = kLanes * static_cast<int64_t>(sizeof(T));

 public:
  HWY_INLINE Sums() {
    each([](int, int, V& v) HWY_ATTR { v = S::zero(); });
  }

  // kFetched: steps of the panel to fetch ahead into L1.
  template <int64_t kFetched>
  HWY_INLINE void multiply(const T* const* rows, const int64_t* lengths, int64_t segments,
                           const T* HWY_RESTRICT b, int64_t ldb, Fetch fetch, TileFetch tile) {
    if constexpr (kM > kFetchingRows) {
      fetch_rows(tile.first);
      fetch_rows(tile.second);
    }
    for (; segments > 0; --segments, rows += kGemmRows, ++lengths) {
      const T* row[kM];
#pragma GCC unroll 8
      for (int i = 0; i < kM; ++i) row[i] = rows[i];
      const auto step = [&](int64_t k) HWY_ATTR {
        V right[kN];
#pragma GCC unroll 8
        for (int j = 0; j < kN; ++j) {
          right[j] = S::load(b + j * kLanes);
          if constexpr (kFetched > 0) __builtin_prefetch(b + (kFetched * kN + j) * kLanes);
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
      if (kM <= kFetchingRows && tile.first.from != nullptr) {
        for (int i = 0; i < kM && k + kN <= length; ++i) {
#pragma GCC unroll 1
          for (int j = 0; j < kN; ++j, ++k) {
            __builtin_prefetch(tile.first.from + j * kVectorBytes);
            if (tile.second.from != nullptr) __builtin_prefetch(tile.second.from + j * kVectorBytes);
            if (fetch.lines > 0) {
              __builtin_prefetch(fetch.from, 0, 2);
              fetch.from += kLine;
              --fetch.lines;
            }
            step(k);
          }
          tile.first.from += tile.first.stride;
          tile.second.from += tile.second.stride;
        }
        tile.first.from = nullptr;
      }
      const int64_t before = k;
      for (const int64_t end = k + fetch.lines < length ? k + fetch.lines : length; k < end;
           ++k, fetch.from += kLine) {
        __builtin_prefetch(fetch.from, 0, 2);
        step(k);
      }
      fetch.lines -= k - before;
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
  static HWY_INLINE void fetch_rows(const TileLines& lines) {
    if (lines.from == nullptr) return;
#pragma GCC unroll 8
    for (int i = 0; i < kM; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < kN; ++j) __builtin_prefetch(lines.from + i * lines.stride + j * kVectorBytes);
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

template <class T>
TileFetch fetch_finish(const GemmFinish* finish, int64_t row, int64_t column) {
  if (sizeof(T) != sizeof(float) || finish == nullptr) return {};
  const auto lines = [&](const float* from, int64_t stride) {
    return TileLines{reinterpret_cast<const char*>(from + row * stride + column),
                     stride * static_cast<int64_t>(sizeof(float))};
  };
  const bool reads = finish->residual != nullptr;
  const TileLines residual = reads ? lines(finish->residual, finish->residual_stride) : TileLines{};
  if (!finish->fetch_out) return {residual, {}};
  const TileLines out = lines(finish->out, finish->out_stride);
  return reads ? TileFetch{residual, out} : TileFetch{out, {}};
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
// block's segments, or one segment if it has none. Steps of panels are fetched into L1 kFetched ahead.
// The members of a Fetch come one by one: a copy of it would read in one piece what was just written in
// several, which waits for all stores before.
template <class Tile, int kM, int kN, int64_t kFetched, class T>
HWY_NOINLINE void micro(const GemmBlock<T>& block, const T* const* rows, int64_t row, int64_t first,
                        int64_t panels, const T* b, int64_t ldb, const char* from, int64_t lines,
                        int64_t next) {
  const bool one = block.rows == nullptr;
  // What is wanted again after the multiply-adds waits in memory. Compilers would put it into vector
  // registers, from where it comes back only after all multiply-adds before it.
  const GemmBlock<T>* volatile kept_block = &block;
  const T* const* volatile kept_rows = rows;
  const int64_t* volatile lengths = one ? &block.depth : block.lengths;
  volatile int64_t segments = one ? 1 : block.segments, kept_row = row, column = first * panel<Tile, T>();
  const volatile int64_t stride = next, step = ldb;
  for (; panels > 0; --panels) {
    Sums<kM, kN, T> sums;
    sums.template multiply<kFetched>(
        kept_rows, lengths, segments, b, step, {from, lines, 0},
        fetch_finish<T>(kept_block->finish, kept_block->tile_row + kept_row, column));
    finish_sums(*kept_block, kept_row, column, sums);
    column = column + panel<Tile, T>();
    b += kept_block->panel_stride;
    from += stride;
  }
}

template <class T>
using MicroFunction = void (*)(const GemmBlock<T>&, const T* const*, int64_t, int64_t, int64_t, const T*,
                               int64_t, const char*, int64_t, int64_t);

// Not where panels stay in L1, nor for groups of few rows in a tile of many, which find panels there, nor for
// an unpacked right operand, whose rows are far apart.
template <class Tile, int kM, int kN, class T>
MicroFunction<T> pick_fetch(const GemmBlock<T>& block) {
  if constexpr (kRowsFirst) {
    constexpr bool kFew = kM <= Tile::kRows / 2;
    constexpr int64_t kSteps = kFew ? kAheadOfFewRows : kAhead;
    const bool fetches = kFew ? block.tile_rows == kM : block.tile_rows > kFewRows;
    if (fetches && block.ldb == panel<Tile, T>()) return micro<Tile, kM, kN, kSteps, T>;
  }
  return micro<Tile, kM, kN, 0, T>;
}

// For `rows` rows, at most kM.
template <class Tile, int kN, class T, int kM = Tile::kRows>
MicroFunction<T> pick_rows(const GemmBlock<T>& block, int64_t rows) {
  if constexpr (kM > 1) {
    if (rows < kM) return pick_rows<Tile, kN, T, kM - 1>(block, rows);
  }
  return pick_fetch<Tile, kM, kN, T>(block);
}

// For the last panel.
template <class Tile, class T>
MicroFunction<T> pick(const GemmBlock<T>& block, int64_t rows, int64_t columns) {
  const int64_t vectors = (columns + lanes<T>() - 1) / lanes<T>();
  if (vectors == 1) return pick_rows<Tile, 1, T>(block, rows);
  if (vectors == 2) return pick_rows<Tile, 2, T>(block, rows);
  if (vectors == 3) return pick_rows<Tile, 3, T>(block, rows);
  return pick_rows<Tile, Tile::kVectors, T>(block, rows);
}

// A panel narrower than its vectors goes through a copy, because the columns after it belong to someone else.
template <class Tile, class T>
void ragged(MicroFunction<T> function, const GemmBlock<T>& block, const T* const* rows, int64_t row,
            int64_t count, int64_t first, const T* b, int64_t ldb) {
  T tile[Tile::kRows * panel<Tile, T>()];
  GemmBlock<T> copy = block;
  copy.c = tile;
  copy.ldc = panel<Tile, T>();
  copy.first = true;
  function(copy, rows, 0, 0, 1, b, ldb, nullptr, 0, 0);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = first * panel<Tile, T>(); j < block.n; ++j) {
      T& to = block.c[(row + i) * block.ldc + j];
      const T sum = tile[i * panel<Tile, T>() + j - first * panel<Tile, T>()];
      to = block.first ? sum : to + sum;
    }
  }
}

// What these rows fetch while computing their first panel.
template <class Tile, class T>
Fetch fetch_of(const GemmBlock<T>& block, int64_t row, int64_t rows) {
  if (block.next == nullptr) {
    const int64_t panels = (block.n + panel<Tile, T>() - 1) / panel<Tile, T>();
    const int64_t lines = (block.ahead_bytes + panels * kLine - 1) / (panels * kLine);
    return {block.ahead, lines, lines * kLine};
  }
  const int64_t lines = block.next_depth * panel<Tile, T>() * static_cast<int64_t>(sizeof(T)) / kLine;
  row += block.tile_row;
  const int64_t begin = lines * row / block.tile_rows, end = lines * (row + rows) / block.tile_rows;
  return {reinterpret_cast<const char*>(block.next) + begin * kLine, end - begin,
          block.next_stride * static_cast<int64_t>(sizeof(T))};
}

// Rows [row, row + count), at most Tile::kRows, and panels [first, end).
template <class Tile, class T>
void run_rows(const GemmBlock<T>& block, int64_t row, int64_t count, int64_t first, int64_t end) {
  const T* copy[kGemmRows];
  const T* const* rows = block.rows;
  if (rows == nullptr) {
    rows = copy;
    const T* at = block.a + row * block.lda;
    for (int64_t i = 0; i < count; ++i, at += block.lda) copy[i] = at;
  }
  const Fetch fetch = fetch_of<Tile>(block, row, count);
  const int64_t whole = block.n / panel<Tile, T>();
  const int64_t fetching = block.next == nullptr ? end : block.next_panels;
  const auto run = [&](MicroFunction<T> function, int64_t from, int64_t panels, const T* b, int64_t ldb) {
    function(block, rows, row, from, panels, b, ldb, fetch.from + from * fetch.stride,
             from < fetching ? fetch.lines : 0, fetch.stride);
  };
  for (int64_t from = first, to; from < end && from < whole; from = to) {
    to = end < whole ? end : whole;
    if (from < fetching && fetching < to) to = fetching;
    run(pick_rows<Tile, Tile::kVectors, T>(block, count), from, to - from,
        block.b + from * block.panel_stride, block.ldb);
  }
  if (end <= whole) return;
  const int64_t columns = block.n - whole * panel<Tile, T>();
  const bool apart = block.last_b != nullptr;
  const T* b = apart ? block.last_b : block.b + whole * block.panel_stride;
  const int64_t ldb = apart ? block.last_ldb : block.ldb;
  const MicroFunction<T> function = pick<Tile>(block, count, columns);
  if (columns % lanes<T>() == 0 || block.padded)
    run(function, whole, 1, b, ldb);
  else
    ragged<Tile>(function, block, rows, row, count, whole, b, ldb);
}

// Rows are split evenly, since a call with few rows waits on the latency of its chains.
template <class Tile, class T>
void run_block(const GemmBlock<T>& block) {
  const int64_t groups = (block.m + Tile::kRows - 1) / Tile::kRows,
                panels = (block.n + panel<Tile, T>() - 1) / panel<Tile, T>();
  const int64_t together = kRowsFirst ? panels : 1;  // the rows of A stay in L1, or else the panel
  for (int64_t first = 0; first < panels; first += together) {
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t row = g * block.m / groups;
      run_rows<Tile>(block, row, (g + 1) * block.m / groups - row, first, first + together);
    }
  }
}

template <class Tile>
constexpr GemmIsa gemm_of() {
  return {Tile::kRows,
          panel<Tile, float>(),
          panel<Tile, double>(),
          kRowsFirst,
          HWY_TARGET != HWY_SCALAR,
          run_block<Tile, float>,
          run_block<Tile, double>,
          run_pack<Tile, float>,
          run_pack<Tile, double>};
}

}  // namespace

const GemmIsa kGemmIsa = gemm_of<TallTile>(), kWideGemmIsa = gemm_of<WideTile>();

}  // namespace aicf::AICF_ISA_NAMESPACE
