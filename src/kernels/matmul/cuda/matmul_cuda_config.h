// Which CUDA kernel a contraction gets: sizes in, a plain description out. Pure, needs no GPU: the choice
// follows from an estimate in clock cycles (matmul_cycles.h) over a short list of tiles. matmul_cuda.h makes
// the text of a choice.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  // Rows that start anywhere: mma.cuh loads such operands element by element, by way of registers, and stores
  // such results so.
  bool x_fetched = false, y_fetched = false, scattered = false;
  double repeats = 1;  // of an element of x: windows of a convolution overlap
};

enum class MatmulFamily : uint8_t {
  simt,   // any type and strides
  mma,    // f16, bf16, f32 in tf32, any strides
  wgmma,  // f16, bf16 on sm_90, operands that the copy engine can read
};

struct MatmulConfig {
  MatmulFamily family = MatmulFamily::simt;
  int block_m = 64, block_n = 64;  // results of a block
  int warp_m = 0, warp_n = 0;      // mma: results of a warp
  int stages = 2;                  // of the pipeline
  int splits = 1;                  // blocks that share one tile's K
  bool cluster = false;            // the splits form a cluster; else they meet in the workspace
  int warpgroups = 0;              // wgmma: that compute
  int resident = 1;                // wgmma: blocks of a multiprocessor at a time
  bool alternate = false;          // wgmma: warpgroups take whole tiles in turn
  bool handed = false;             // wgmma: other warps run the epilogue of all tiles of a block but the last
  bool stays = false;              // handed: a block has tiles of one row alone and keeps their x
  int slices = 0;                  // of K among the warps of a block (sliced.cuh), in f32 or tf32; 0: none
  bool pair = false;   // half of block_n, and of warp_n, are columns of another product (matmul_pair)
  int row_blocks = 0;  // wgmma: blocks of a cluster, whose tiles make up whole rows; 0: any tiles
  bool operator==(const MatmulConfig&) const = default;
};
// Whether three warps have the epilogue of handed tiles: beside 128 results of every thread that multiplies
// there are registers for so many.
inline bool has_few_storers(const MatmulConfig& config) { return config.handed && config.block_n == 256; }
// The tile of single.cuh, whose threads have one result each.
inline constexpr int kSingleSide = 16;
inline bool is_single(const MatmulConfig& config) {
  return config.family == MatmulFamily::simt && config.block_m == kSingleSide;
}
// Columns of the result that a block has.
inline int tile_columns(const MatmulConfig& config) {
  return config.pair ? config.block_n / 2 : config.block_n;
}
std::string to_string(const MatmulConfig& config);  // "mma 128x64 stages 3 splits 4 cluster"

// Tiles of the result, of all batches.
int64_t tile_count(const MatmulSizes& sizes, const MatmulConfig& config);
// K in elements, for operands in f32.
int64_t sliced_depth(const MatmulSizes& sizes, MatmulFamily family);

// Whether the parts of a split K come together as few_rows.cuh says, of at most `rows` rows.
inline bool sends_few_rows(int64_t rows, const MatmulConfig& config) {
  return config.cluster && rows <= 8 && config.family == MatmulFamily::wgmma && config.warpgroups == 1;
}

// Whether its blocks share a tile's epilogue by chunks, as wgmma_cluster.cuh says; and the bytes of shared
// memory for the parts that each of them gets from the others.
bool deals_chunks(const MatmulConfig& config);
int64_t dealt_bytes(const MatmulConfig& config);

// Blocks that share a row of tiles where x stays, for these sizes; 0: it does not fit, or is not worth it.
int64_t blocks_of_row(const MatmulSizes& sizes, const MatmulConfig& config);

// Whether x, of few rows, lies whole in the shared memory of every block (made_x.cuh), beside stages of y
// alone; and its bytes there, of one part of K or all of it.
bool keeps_x(const MatmulSizes& sizes, const MatmulConfig& config);
int64_t kept_x_bytes(const MatmulSizes& sizes, const MatmulConfig& config, bool own_part);

// Every tile that a family has, unsplit, but those of sliced.cuh. element_bytes: of the accumulator.
std::vector<MatmulConfig> matmul_tiles(MatmulFamily family, int element_bytes);
// The tiles of sliced.cuh for these sizes, with their splits. Of simt and mma, for operands in f32.
std::vector<MatmulConfig> matmul_sliced_configs(const MatmulSizes& sizes, MatmulFamily family, int arch);
// Bytes of shared memory that a block of one takes.
int64_t sliced_bytes(const MatmulConfig& config);
// Every tile and split for these sizes, cheapest first; then the first ones with other numbers of stages.
std::vector<MatmulConfig> matmul_configs(const MatmulSizes& sizes, MatmulFamily family, int arch,
                                         int element_bytes);
// The first of them.
MatmulConfig choose_matmul(const MatmulSizes& sizes, MatmulFamily family, int arch, int element_bytes);

// The tiles of pairs, of sizes in which the columns of both products count, cheapest first.
std::vector<MatmulConfig> matmul_pair_configs(const MatmulSizes& sizes, MatmulFamily family);

// Tiles of which the blocks of a cluster make up whole rows, without their stages; none: the rows are too
// long, or no tiles fit them.
std::vector<MatmulConfig> matmul_row_configs(const MatmulSizes& sizes);

}  // namespace aicf
