// Which ways of running a contraction there are on CUDA: sizes in, a short list out, cheapest first. Pure,
// needs no GPU: the order follows from an estimate in clock cycles (matmul_cycles.h). matmul_plan.h says what
// runs for a way, matmul_cuda.h makes its text.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/common/cuda_machine.h"
#include "kernels/matmul/cuda/matmul_way.h"

namespace aicf {

inline constexpr int kStepDepth = 64;                  // of K in a step of mma.cuh and wgmma.cuh, in halves
inline constexpr int64_t kPipelineBytes = 200 * 1024;  // of a multiprocessor, for stages
inline constexpr int64_t kLeastSlice = 16;             // of K, of a warp of sliced.cuh

struct MatmulSizes {
  int64_t batch = 1, m = 0, n = 0, k = 0;  // k in tf32 counts twice: the bytes and the time of halves
  bool y_along_k = true;                   // neighbours in y's memory differ in k, else in n
  bool x_along_k = true;                   // in x's, else in m
  bool f32 = false;                        // the operands' type, for products in f32 or tf32
  bool x_lines = true, y_lines = true;     // their rows in memory are whole lines of 128 bytes
  // Rows that start anywhere: mma.cuh loads such operands by way of registers, and stores such results
  // element by element.
  bool x_fetched = false, y_fetched = false, scattered = false;
  bool dual = false;   // n counts the columns of both products of a dual GEMM
  double repeats = 1;  // of an element of x: windows of a convolution overlap
  CudaMachine machine = {};
};

// A way and what it is estimated to take on the machine that estimates were fitted to.
struct PricedMatmul {
  MatmulWay way;
  double microseconds = 0;
};

// The results of a warp of mma.cuh.
struct WarpTile {
  int m = 0, n = 0;
};
// Blocks of a multiprocessor for which code that loads all of K leaves registers; `fetched`: by way of these.
int mma_min_blocks(const MatmulWay& way, bool fetched);
// Of a tile of matmul_ways, or of matmul_pair_ways, whose warps have columns of both products.
WarpTile warp_tile(const MatmulWay& way, bool dual);

// The results of a thread of simt.cuh, and the depth of its stages.
inline constexpr int64_t kSimtDepth = 8;
struct ThreadTile {
  int m = 0, n = 0;
};
ThreadTile simt_thread(const MatmulWay& way);
int simt_threads(const MatmulWay& way);
// How simt.cuh loads an operand of four-byte elements whose rows in memory run along k, or not.
enum class SimtLoad : uint8_t {
  element,  // one at a time
  vector,   // four of one k
  quad,     // four k of one row, for which a thread of few results has registers
};
SimtLoad simt_load(const MatmulWay& way, bool along_k, bool vector_rows);
// Blocks of a multiprocessor for which its code leaves registers; 0: as many as the compiler likes.
int simt_min_blocks(const MatmulWay& way, SimtLoad x, SimtLoad y);
// Elements of shared memory of a stage of an operand with so many rows or columns in the tile.
constexpr int64_t simt_stage_elements(int64_t extent, SimtLoad load) {
  constexpr int64_t kPad = 4, kRows = 4;
  return load == SimtLoad::quad ? extent / kRows * (kRows * kSimtDepth + kPad) : kSimtDepth * (extent + kPad);
}
// Blocks for which a multiprocessor has registers, of results in 4 bytes.
int simt_blocks(const MatmulWay& way);

// Tiles of the result, of all batches.
int64_t tile_count(const MatmulSizes& sizes, const MatmulWay& way);
// K in elements, for operands in f32.
int64_t sliced_depth(const MatmulSizes& sizes, MatmulFamily family);

// Whether the parts of a split K come together as few_rows.cuh says, of at most `rows` rows.
inline bool sends_few_rows(int64_t rows, const MatmulWay& way) {
  return splits_in_cluster(way) && rows <= 8 && is_wgmma(way) && way.warpgroups == 1;
}

// Of the launch that adds up parts of K from the workspace (PartsSum in matmul_common.cuh): its warps of a
// block, and its blocks of a tile, which have a group of each of 32 threads.
int sum_warps(const MatmulSizes& sizes, const MatmulWay& way);
inline int64_t sum_blocks(const MatmulWay& way) {
  const int64_t group = family_of(way) == MatmulFamily::simt ? 4 : 8;
  return int64_t{way.block_m} * way.block_n / group / 32;
}

// Whether its blocks share a tile's epilogue by chunks, as wgmma_cluster.cuh says: each block of the cluster
// adds up its chunks of all parts. And the bytes of shared memory for the parts that a block gets from the
// others.
bool reduce_scatters(const MatmulWay& way);
int64_t reduce_scatter_bytes(const MatmulWay& way);

// Blocks that share a row of tiles where x is stationary, for these sizes; 0: it does not fit, or is not
// worth it.
int64_t blocks_of_row(const MatmulSizes& sizes, const MatmulWay& way);

// Whether x, of few rows, lies whole in the shared memory of every block (wgmma_rs.cuh), beside stages of y
// alone; and its bytes there, of one part of K or all of it.
bool keeps_x(const MatmulSizes& sizes, const MatmulWay& way);
int64_t kept_x_bytes(const MatmulSizes& sizes, const MatmulWay& way, bool own_part);

// Every tile that a family has, unsplit, but those of sliced.cuh; those of tf32x3 without their stages.
// element_bytes: of the accumulator.
std::vector<MatmulWay> matmul_tiles(MatmulFamily family, int element_bytes);
// The tiles of sliced.cuh for these sizes, with their splits. Of simt and mma, for operands in f32.
std::vector<MatmulWay> matmul_sliced_ways(const MatmulSizes& sizes, MatmulFamily family, int arch);
// Those of batched.cuh; none: the matrices are too large, or one.
std::vector<MatmulWay> matmul_batched_ways(const MatmulSizes& sizes, int element_bytes);
// Of batched.cuh: threads of a block, blocks of a multiprocessor for which its code leaves registers, and its
// bytes of shared memory for so many k.
int batched_threads(const MatmulWay& way);
int batched_min_blocks(const MatmulWay& way, int element_bytes);
int64_t batched_bytes(const MatmulWay& way, int64_t k, bool x_along_k, bool y_along_k, int element_bytes);
// Those of direct.cuh: few rows, both operands along k.
std::vector<MatmulWay> matmul_direct_ways(const MatmulSizes& sizes);
// Those of warp_products.cuh, and a block's bytes of shared memory for up to `depth` of k.
std::vector<MatmulWay> matmul_warp_ways(const MatmulSizes& sizes);
struct SharedOperands {
  bool x = false, y = false;  // one of all products
};
int64_t warp_products_bytes(const MatmulWay& way, int64_t depth, const SharedOperands& shared);
inline int64_t warp_products_depth(int64_t k) { return (k + 15) / 16 * 16; }
// Bytes of shared memory that a block of one takes.
int64_t sliced_bytes(const MatmulWay& way);
// Blocks of a multiprocessor for which its code leaves registers.
inline int sliced_min_blocks(const MatmulWay& way) { return way.slices >= 8 ? 2 : 12 / way.slices; }
// Every tile and split for these sizes, cheapest first; then the first ones with other numbers of stages.
std::vector<MatmulWay> matmul_ways(const MatmulSizes& sizes, MatmulFamily family, int arch,
                                   int element_bytes);
// The first of them.
MatmulWay choose_matmul(const MatmulSizes& sizes, MatmulFamily family, int arch, int element_bytes);

// The tiles of dual GEMMs, of sizes in which the columns of both products count, cheapest first.
std::vector<MatmulWay> matmul_pair_ways(const MatmulSizes& sizes, MatmulFamily family);

// Tiles of which the blocks of a cluster make up whole rows, without their stages; none: the rows are too
// long, or no tiles fit them.
std::vector<MatmulWay> matmul_row_ways(const MatmulSizes& sizes);

}  // namespace aicf
