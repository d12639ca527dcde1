// A way of running attention on CUDA: the units and the tile that are asked for. What runs, of which the
// problem decides too, is an AttentionPlan (attention_cuda.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace aicf {

enum class AttentionUnit : uint8_t {
  kSimt,
  kMma,
  kSplit,  // by mma, the keys of few rows split among blocks
  kWgmma,
  kShort,  // by wgmma, all keys in one tile
};

struct AttentionWay {
  AttentionUnit unit = AttentionUnit::kSimt;
  int rows = 64, keys = 64;  // of a block
  // kSplit: blocks that share the keys of a tile of rows without a workspace; 0: parts go there, if one tile
  // has not all.
  int cluster = 0;
  // kSimt: the block's warps share its rows and its keys; a warp's lanes in either direction.
  int row_warps = 1, key_warps = 1, row_lanes = 8;
  bool operator==(const AttentionWay&) const = default;
};

std::string_view fault_of(const AttentionWay& way);  // see matmul_way.h
std::string to_string(
    const AttentionWay& way);  // "wgmma 128x64", "split 16x128 cluster 8", "simt 32x128 warps 1x4 lanes 8x4"
std::optional<AttentionWay> parse_attention_way(std::string_view text);

}  // namespace aicf
