// Plain types between the drivers of contractions and convolutions and the micro-kernels that exist once per
// ISA level; no code, so that the files compiled for AVX may include it.
//
// A block multiplies m rows of A by n columns of B over at most kGemmDepth steps of k. The right operand lies
// in panels of `nr` columns: element (k, j) is b[(j / nr) * panel_stride + k * ldb + j % nr]. The last panel
// is readable to the end of its last vector.
//
// The law: an element of C is the chain fma(a[k], b[k], acc) from acc = 0 for k ascending inside blocks of
// kGemmDepth steps that begin at multiples of kGemmDepth; the blocks' results are added in order. Every
// driver calls with these blocks, so the bits depend on K alone. The portable level rounds product and sum
// apart.
#pragma once

#include <stdint.h>

namespace aicf {

// Every block but the last costs a store and a load of C, and what the next block needs is fetched evenly
// only while blocks are alike: widths of networks are mostly below 512 or multiples of it. 512 × 192 columns
// × 4 bytes fit in half an L2 cache.
constexpr int64_t kGemmDepth = 512;
constexpr int64_t kGemmRows = 8;      // most rows of a tile of C at any ISA level
constexpr int64_t kFinishWidth = 16;  // a multiple of every level's lanes
constexpr int64_t kWidestPanel = 64;  // most columns of a panel of f32 at any ISA level

// What micro-kernels do to finished sums on their way out of the registers, in the order of the members;
// null: nothing. f32 only. Bounds are those of max_nan and min_nan (tile/cpu/vector_math.h).
struct GemmFinish {
  const float *scale, *shift;  // of each column
  const float* residual;       // of each element
  int64_t residual_stride;     // between rows
  const float *low, *high;     // of each column
  float* out;
  int64_t out_stride;  // between rows
  bool fetch_out;      // it is in no near cache yet
};

template <class T>
struct GemmBlock {
  // Rows of A lie lda apart, their steps of k 1 apart. Or, with `rows`, they are made of `segments` of
  // neighbouring steps: segment s of row i begins at rows[s * kGemmRows + i] and has lengths[s] steps; m is
  // at most mr then.
  const T* a;
  int64_t lda;
  const T* const* rows;
  const int64_t* lengths;
  int64_t segments;
  const T* b;
  int64_t ldb;           // between steps of k inside a panel
  int64_t panel_stride;  // between panels
  const T* last_b;  // the panel with column n - 1, whose steps lie last_ldb apart; null: it is as the others
  int64_t last_ldb;
  T* c;
  int64_t ldc;  // between rows; columns are 1 apart
  int64_t m, n, depth;
  bool first;   // store the result instead of adding it to C
  bool padded;  // the last panel of C may be written in full
  // The caller's tile has tile_rows rows, which share the right operand; those of this block begin at
  // tile_row.
  int64_t tile_row, tile_rows;
  // The right operand of the caller's next block, fetched into the L2 cache on the way, by each row its
  // share: next_depth steps of each panel, without gaps inside a panel, and one panel with each of this
  // block's, so no more than it has. Null: nothing.
  const T* next;
  int64_t next_depth, next_panels, next_stride;  // between panels
  // Lines of memory from there on that the caller's next block reads besides, fetched likewise.
  const char* ahead;
  int64_t ahead_bytes;
  // The sums go there and not to C, if GemmIsa::finishes; its rows are those of the tile, and n is a multiple
  // of kFinishWidth. Null: they go to C.
  const GemmFinish* finish;
};

// Copies a depth × n corner of a strided matrix into panels, zeros in the missing columns of the last one,
// which has nr as the others, or `last` if that is not 0.
template <class T>
struct GemmPack {
  const T* from;
  int64_t k_stride, n_stride;
  int64_t depth, n;
  T* to;
  int64_t panel_stride;  // ldb is nr
  int64_t last = 0;
};

struct GemmIsa {
  int64_t mr, nr_f32, nr_f64;
  bool rows_first;  // a block is computed mr rows at a time, not a panel at a time
  bool finishes;
  void (*block_f32)(const GemmBlock<float>& block);
  void (*block_f64)(const GemmBlock<double>& block);
  void (*pack_f32)(const GemmPack<float>& pack);
  void (*pack_f64)(const GemmPack<double>& pack);
};

}  // namespace aicf
