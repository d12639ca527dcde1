// Choosing and writing CUDA attention kernels. The rows of cuda_kernels.def go through attention_tile and
// attention_code; benches and tests may ask for a tile of their own.
#pragma once

#include "kernels/cuda_kernel.h"

namespace aicf {

enum class AttentionUnit : uint8_t { kSimt, kMma, kSplit, kWgmma, kShort };

struct AttentionTile {
  AttentionUnit unit = AttentionUnit::kSimt;
  int rows = 64, keys = 64;  // of a block
  int warps = 8;             // kMma: rows are 16 per warp, or 32
  int tiles = 1;             // kSplit: of keys per part in the workspace
  int stages = 1;            // kSplit: tiles of keys in flight
  int cluster = 1;           // kSplit: blocks that share the keys of one tile of rows without a workspace
  bool operator==(const AttentionTile&) const = default;
};

// The tile for the problem on the units that the row stands for (kSimt, kMma or kWgmma) or lesser ones: few
// rows or short sequences are split among warps (kSplit), many short sequences have all their keys in one
// tile of wgmma (kShort); what the copy engine cannot describe goes without it.
AttentionTile attention_tile(const CudaProblem& problem, AttentionUnit unit);
// That of attention_wgmma, by the problem's variant if it names one.
AttentionTile attention_wgmma_tile(const CudaProblem& problem);
// Whether a tile of wgmma (kWgmma or kShort) or of kMma can run the problem, well or not.
bool attention_tile_fits(const CudaProblem& problem, const AttentionTile& tile);
CudaCode attention_code(const CudaProblem& problem, const AttentionTile& tile);

}  // namespace aicf
