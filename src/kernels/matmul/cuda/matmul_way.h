// A way of running a product of matrices on CUDA: what a row of the table is asked for. Plain data that
// prints and parses; what runs for it, of which the problem decides too, is a plan (matmul_plan.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace aicf {

// What the param that asks for tf32 is, in place of 1, where y lies in memory rounded, as wgmma reads it.
inline constexpr int64_t kRoundedY = 2;

enum class MatmulFamily : uint8_t {
  simt,     // any type and strides
  mma,      // f16, bf16, f32 in tf32, any strides
  wgmma,    // f16, bf16, f32 in tf32 on sm_90, operands that the copy engine can read
  tf32x3,   // f32 as three products in tf32 on sm_90, operands that the copy engine can read
  batched,  // any type but tf32, any strides, small matrices
  warp,     // f16, bf16, small matrices whose batch is one piece of memory
  direct,   // f16, bf16, few rows, operands along k
};

enum class MatmulUnit : uint8_t {
  simt,         // simt.cuh
  single,       // single.cuh, whose threads have one result each
  sliced_simt,  // sliced.cuh in f32: the warps of a block share K
  mma,          // mma.cuh
  sliced_mma,   // sliced.cuh in tf32
  wgmma,        // wgmma.cuh
  tf32x3,       // wgmma_tf32x3.cuh
  batched,      // batched.cuh
  warp,         // warp_products.cuh
  direct,       // direct.cuh, whose warps share K
};

// Blocks that share work beyond their tiles.
enum class SplitKind : uint8_t {
  none,
  workspace,  // parts of K, which a second launch adds up
  cluster,    // parts of K, which the blocks of a cluster add up through distributed shared memory
  row,        // the blocks of a cluster have a row of tiles and reduce it together (row_epilogue.cuh)
  stream,  // stream-K: blocks have equal shares of the steps of all tiles, whose parts a second launch adds
           // up
  multicast,  // not split: the blocks of a cluster have tiles of one column and load each part of y once for
              // all
};
struct MatmulSplit {
  SplitKind kind = SplitKind::none;
  int parts = 1;  // blocks
  bool operator==(const MatmulSplit&) const = default;
};

// Who multiplies and who stores, of wgmma.
enum class MatmulSchedule : uint8_t {
  cooperative,     // the warpgroups of a block share each tile and store it
  ping_pong,       // they take whole tiles in turn
  epilogue_warps,  // other warps run the epilogue of all tiles of a block but the last
                   // (wgmma_epilogue_warps.cuh)
  stationary_x,    // the same, and a block has tiles of one row alone, whose x it keeps
};

struct MatmulWay {
  MatmulUnit unit = MatmulUnit::simt;
  int block_m = 64, block_n = 64;  // results of a block; of a dual GEMM half the columns are the second's
  int stages = 2;                  // of the pipeline
  int slices = 0;                  // of K among the warps of a block; 0: unsliced
  MatmulSplit split = {};
  int batches = 0;     // batched, warp: whole products of a block
  int warpgroups = 0;  // wgmma: that compute
  int occupancy = 1;   // wgmma: blocks of a multiprocessor at a time
  MatmulSchedule schedule = MatmulSchedule::cooperative;
  bool operator==(const MatmulWay&) const = default;
};

inline constexpr int kSingleSide = 16;    // of the tile of single.cuh
inline constexpr int kDirectColumns = 8;  // of the tile of direct.cuh
inline constexpr int kBatchedSide = 64;   // of the largest matrices of batched.cuh and warp_products.cuh

MatmulFamily family_of(MatmulUnit unit);
inline MatmulFamily family_of(const MatmulWay& way) { return family_of(way.unit); }
inline bool is_wgmma(const MatmulWay& way) { return way.unit == MatmulUnit::wgmma; }
inline bool is_batched(const MatmulWay& way) { return way.unit == MatmulUnit::batched; }
inline bool is_direct(const MatmulWay& way) { return way.unit == MatmulUnit::direct; }
// Whether mma.cuh loads all of K at once, and does not wait for loads in steps.
inline bool loads_all_of_k(const MatmulWay& way) { return way.unit == MatmulUnit::mma && way.stages == 1; }
// Whose blocks have several whole products.
inline bool has_whole_products(const MatmulWay& way) {
  return is_batched(way) || way.unit == MatmulUnit::warp;
}
// Whose blocks have whole products and all of K at once.
inline bool is_for_small_products(const MatmulWay& way) {
  return has_whole_products(way) || loads_all_of_k(way);
}
inline bool is_tf32x3(const MatmulWay& way) { return way.unit == MatmulUnit::tf32x3; }
// Whether its operands come through tensor maps.
inline bool has_tensor_maps(const MatmulWay& way) { return is_wgmma(way) || is_tf32x3(way); }
inline bool is_sliced(const MatmulWay& way) {
  return way.unit == MatmulUnit::sliced_simt || way.unit == MatmulUnit::sliced_mma;
}

inline bool splits_in_cluster(const MatmulWay& way) { return way.split.kind == SplitKind::cluster; }
inline bool splits_in_workspace(const MatmulWay& way) { return way.split.kind == SplitKind::workspace; }
// Blocks that share all tiles' steps; 0: they have tiles.
inline int stream_blocks(const MatmulWay& way) {
  return way.split.kind == SplitKind::stream ? way.split.parts : 0;
}
// Whether a second launch adds up what blocks leave in the workspace.
inline bool sums_workspace(const MatmulWay& way) {
  return splits_in_workspace(way) || stream_blocks(way) > 0;
}
// Blocks that share a tile's K.
inline int split_parts(const MatmulWay& way) {
  return splits_in_cluster(way) || splits_in_workspace(way) ? way.split.parts : 1;
}
// Blocks of a cluster whose tiles make up whole rows; 0: any tiles.
inline int row_blocks(const MatmulWay& way) { return way.split.kind == SplitKind::row ? way.split.parts : 0; }

// Blocks of a cluster that load y once for all of them; 1: each its own.
inline int multicast_blocks(const MatmulWay& way) {
  return way.split.kind == SplitKind::multicast ? way.split.parts : 1;
}

inline bool is_ping_pong(const MatmulWay& way) { return way.schedule == MatmulSchedule::ping_pong; }
inline bool keeps_x_stationary(const MatmulWay& way) { return way.schedule == MatmulSchedule::stationary_x; }
inline bool has_epilogue_warps(const MatmulWay& way) {
  return way.schedule == MatmulSchedule::epilogue_warps || keeps_x_stationary(way);
}
// Whether the epilogue warps are three: beside 128 results of every thread that
// multiplies there are registers for so many.
inline bool has_three_epilogue_warps(const MatmulWay& way) {
  return has_epilogue_warps(way) && way.block_n == 256;
}

// Why no kernel is like this; "" if one is. Whether it can run a problem is another question.
std::string_view fault_of(const MatmulWay& way);

std::string to_string(const MatmulWay& way);  // "mma 128x64 stages 3 splits 4 cluster"
// Of what to_string() gives of a way without fault; nullopt of any other text.
std::optional<MatmulWay> parse_matmul_way(std::string_view text);

}  // namespace aicf
