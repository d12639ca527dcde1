// Micro-kernels of dense contractions. One call of micro() keeps a tile of C in registers over a whole block
// of k; columns are vector lanes and k is never split over lanes, so every element is one chain of
// multiply-adds.
#include <stdint.h>
#include <string.h>

#include "hwy/highway.h"
#include "kernels/matmul/gemm_simd.h"
#include "kernels/matmul/gemm_types.h"

namespace aicf::AICF_ISA_NAMESPACE {
extern const GemmIsa kGemmIsa;
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Rows × vectors of C in registers: 24 of 32 for AVX-512, 12 of 16 below.
#if HWY_TARGET == HWY_AVX3
constexpr int kRows = 8;
#else
constexpr int kRows = 4;
#endif
constexpr int kVectors = 3;
constexpr int64_t kLine = 64;  // bytes of a cache line
constexpr bool kRowsFirst = HWY_TARGET == HWY_AVX3;

template <class T>
constexpr int64_t lanes() {
  return Simd<T>::kLanes;
}
template <class T>
constexpr int64_t panel() {
  return kVectors * lanes<T>();
}

// Memory to fetch while computing, a line for each step of k.
struct Fetch {
  const char* from;
  int64_t lines;
};

template <int kM, int kN, class T>
HWY_INLINE void micro(const T* HWY_RESTRICT a, int64_t lda, const T* HWY_RESTRICT b, int64_t ldb,
                      int64_t depth, T* HWY_RESTRICT c, int64_t ldc, bool first, Fetch fetch) {
  using S = Simd<T>;
  constexpr int64_t kLanes = S::kLanes;
  typename S::Vec sum[kM][kN];
#pragma GCC unroll 8
  for (int i = 0; i < kM; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kN; ++j) sum[i][j] = S::zero();
  }
  const auto step = [&](int64_t k) HWY_ATTR {
    typename S::Vec right[kN];
#pragma GCC unroll 8
    for (int j = 0; j < kN; ++j) right[j] = S::load(b + j * kLanes);
    b += ldb;
#pragma GCC unroll 8
    for (int i = 0; i < kM; ++i) {
      const auto left = S::set(a[i * lda + k]);
#pragma GCC unroll 8
      for (int j = 0; j < kN; ++j) sum[i][j] = S::mul_add(left, right[j], sum[i][j]);
    }
  };
  int64_t k = 0;
  for (const int64_t end = fetch.lines < depth ? fetch.lines : depth; k < end; ++k) {
    __builtin_prefetch(fetch.from + k * kLine, 0, 2);
    step(k);
  }
  for (; k < depth; ++k) step(k);
#pragma GCC unroll 8
  for (int i = 0; i < kM; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kN; ++j) {
      T* to = c + i * ldc + j * kLanes;
      S::store(first ? sum[i][j] : S::add(S::load(to), sum[i][j]), to);
    }
  }
}

template <class T>
using MicroFunction = void (*)(const T*, int64_t, const T*, int64_t, int64_t, T*, int64_t, bool, Fetch);

template <int kM, int kN, class T>
HWY_NOINLINE void micro_function(const T* a, int64_t lda, const T* b, int64_t ldb, int64_t depth, T* c,
                                 int64_t ldc, bool first, Fetch fetch) {
  micro<kM, kN>(a, lda, b, ldb, depth, c, ldc, first, fetch);
}

template <int kN, class T>
MicroFunction<T> pick_rows(int64_t rows) {
  switch (rows) {
    case 1:
      return micro_function<1, kN, T>;
    case 2:
      return micro_function<2, kN, T>;
    case 3:
      return micro_function<3, kN, T>;
    case 4:
      return micro_function<4, kN, T>;
#if HWY_TARGET == HWY_AVX3
    case 5:
      return micro_function<5, kN, T>;
    case 6:
      return micro_function<6, kN, T>;
    case 7:
      return micro_function<7, kN, T>;
    case 8:
      return micro_function<8, kN, T>;
#endif
  }
  return nullptr;
}

template <class T>
MicroFunction<T> pick(int64_t rows, int64_t columns) {
  const int64_t vectors = (columns + lanes<T>() - 1) / lanes<T>();
  return vectors == 1 ? pick_rows<1, T>(rows) : vectors == 2 ? pick_rows<2, T>(rows) : pick_rows<3, T>(rows);
}

// A panel narrower than its vectors goes through a copy, because the columns after it belong to someone else.
template <class T>
void ragged(MicroFunction<T> function, const GemmBlock<T>& block, const T* a, const T* b, T* c, int64_t rows,
            int64_t columns) {
  T tile[kRows * panel<T>()];
  function(a, block.lda, b, block.ldb, block.depth, tile, panel<T>(), true, {});
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      T& to = c[i * block.ldc + j];
      to = block.first ? tile[i * panel<T>() + j] : to + tile[i * panel<T>() + j];
    }
  }
}

// What these rows fetch of the next block's panel at `column`.
template <class T>
Fetch fetch_of(const GemmBlock<T>& block, int64_t row, int64_t rows, int64_t column) {
  if (block.next == nullptr) return {};
  const int64_t lines = block.next_depth * panel<T>() * static_cast<int64_t>(sizeof(T)) / kLine;
  const int64_t begin = lines * row / block.m, end = lines * (row + rows) / block.m;
  const T* next = block.next + column / panel<T>() * block.next_stride;
  return {reinterpret_cast<const char*>(next) + begin * kLine, end - begin};
}

template <class T>
void run_panel(const GemmBlock<T>& block, int64_t row, int64_t rows, int64_t column) {
  const int64_t left = block.n - column;
  const int64_t columns = left < panel<T>() ? left : panel<T>();
  const MicroFunction<T> function = pick<T>(rows, columns);
  const T* a = block.a + row * block.lda;
  const T* b = block.b + column / panel<T>() * block.panel_stride;
  T* c = block.c + row * block.ldc + column;
  if (columns % lanes<T>() == 0 || block.padded)
    function(a, block.lda, b, block.ldb, block.depth, c, block.ldc, block.first,
             fetch_of(block, row, rows, column));
  else
    ragged(function, block, a, b, c, rows, columns);
}

// Rows are dealt out evenly, since a call with few rows waits on the latency of its chains.
template <class T>
void run_block(const GemmBlock<T>& block) {
  const int64_t groups = (block.m + kRows - 1) / kRows;
  if (kRowsFirst) {  // the rows of A stay in L1, panels stream from L2
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t row = g * block.m / groups, rows = (g + 1) * block.m / groups - row;
      for (int64_t column = 0; column < block.n; column += panel<T>()) run_panel(block, row, rows, column);
    }
  } else {  // the panel stays in L1
    for (int64_t column = 0; column < block.n; column += panel<T>()) {
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t row = g * block.m / groups, rows = (g + 1) * block.m / groups - row;
        run_panel(block, row, rows, column);
      }
    }
  }
}

// Whole vectors of a row, which are cheaper here than a call of memcpy; gives how many elements it copied.
template <class T>
HWY_INLINE int64_t copy_vectors(const T* from, int64_t count, T* to) {
  int64_t j = 0;
  for (; j + lanes<T>() <= count; j += lanes<T>()) Simd<T>::store(Simd<T>::load(from + j), to + j);
  return j;
}

// Steps [k0, k1) of the columns from j0 on, zeros after the last.
template <class T>
void pack_steps(const GemmPack<T>& pack, int64_t column, int64_t columns, int64_t k0, int64_t k1, int64_t j0,
                T* to) {
  for (int64_t k = k0; k < k1; ++k) {
    const T* from = pack.from + k * pack.k_stride + column * pack.n_stride;
    T* out = to + k * panel<T>();
    int64_t j = j0;
    if (pack.n_stride == 1) j += copy_vectors(from + j, columns - j, out + j);
    for (; j < columns; ++j) out[j] = from[j * pack.n_stride];
    for (j = columns; j < panel<T>(); ++j) out[j] = 0;
  }
}

#if HWY_TARGET != HWY_SCALAR
// Steps of k contiguous: 4 × 4 blocks of `steps` steps and `columns` columns turned in registers.
void turn_blocks(const GemmPack<float>& pack, int64_t column, int64_t columns, int64_t steps, float* to) {
  const hn::Full128<float> d;
  const hn::Repartition<double, decltype(d)> wide;
  for (int64_t j = 0; j < columns; j += 4) {
    const float* from = pack.from + (column + j) * pack.n_stride;
    for (int64_t k = 0; k < steps; k += 4) {
      const auto r0 = hn::LoadU(d, from + k), r1 = hn::LoadU(d, from + k + pack.n_stride);
      const auto r2 = hn::LoadU(d, from + k + 2 * pack.n_stride),
                 r3 = hn::LoadU(d, from + k + 3 * pack.n_stride);
      const auto a = hn::BitCast(wide, hn::InterleaveLower(d, r0, r1));
      const auto b = hn::BitCast(wide, hn::InterleaveLower(d, r2, r3));
      const auto e = hn::BitCast(wide, hn::InterleaveUpper(d, r0, r1));
      const auto f = hn::BitCast(wide, hn::InterleaveUpper(d, r2, r3));
      float* out = to + k * panel<float>() + j;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, a, b)), d, out);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, a, b)), d, out + panel<float>());
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, e, f)), d, out + 2 * panel<float>());
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, e, f)), d, out + 3 * panel<float>());
    }
  }
}
#endif

template <class T>
void pack_panel(const GemmPack<T>& pack, int64_t column, int64_t columns, T* to) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(T) == sizeof(float)) {
    if (pack.k_stride == 1 && pack.n_stride != 1) {
      const int64_t steps = pack.depth / 4 * 4, turned = columns / 4 * 4;
      turn_blocks(pack, column, turned, steps, to);
      if (turned < panel<T>()) pack_steps(pack, column, columns, 0, steps, turned, to);
      pack_steps(pack, column, columns, steps, pack.depth, 0, to);
      return;
    }
  }
#endif
  pack_steps(pack, column, columns, 0, pack.depth, 0, to);
}

template <class T>
void run_pack(const GemmPack<T>& pack) {
  for (int64_t column = 0; column < pack.n; column += panel<T>()) {
    const int64_t left = pack.n - column;
    pack_panel(pack, column, left < panel<T>() ? left : panel<T>(),
               pack.to + column / panel<T>() * pack.panel_stride);
  }
}

}  // namespace

const GemmIsa kGemmIsa = {kRows,           panel<float>(),   panel<double>(),
                          kRowsFirst,      run_block<float>, run_block<double>,
                          run_pack<float>, run_pack<double>};

}  // namespace aicf::AICF_ISA_NAMESPACE
