// The op `fused`: its attribute `kind` names the op of the contraction that the region begins with, else it
// is kTileRegion.
#pragma once

#include "ir/graph.h"

namespace aicf {

inline constexpr char kTileRegion[] = "tile";

inline bool is_tile_region(const Node& node) {
  return node.op == Op::fused && node.attrs.get_str("kind") == kTileRegion;
}

// Whether the node is this op, or a region that begins with it.
inline bool begins_with(const Node& node, Op op) {
  return node.op == op || (node.op == Op::fused && node.attrs.get_str("kind") == op_info(op).name);
}

// Of a region's body; null if nothing in it reduces.
inline const Node* first_reduction(const Graph& body) {
  for (const Node& node : body.nodes())
    if (op_info(node.op).has(kReduction)) return &node;
  return nullptr;
}

}  // namespace aicf
