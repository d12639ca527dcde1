// The op `fused`: its attribute `kind` names the op of the contraction that the region begins with, else it
// is kTileRegion.
#pragma once

#include "ir/graph.h"

namespace aicf {

inline constexpr char kTileRegion[] = "tile";

inline bool is_tile_region(const Node& node) {
  return node.op == Op::fused && node.attrs.get_str("kind") == kTileRegion;
}

}  // namespace aicf
