// Regions in a graph: which ops they hold, and their bodies as passes after fuse_regions see them, those of
// fused nodes and of lone ops that could be one.
#pragma once

#include <optional>

#include "ir/region.h"
#include "passes/pass.h"

namespace aicf {

inline constexpr size_t kMaxRegionOperands = 20;  // results too; below kMaxTileOperands

// Whether generated code computes the node in a region: a pointwise op, or a reduction that keeps its axes.
bool is_region_op(const Graph& graph, const Node& node, const Target& target);
// A constant that a region's body holds itself.
bool is_immediate(const Value& value);

struct RegionBody {
  Graph body{"body"};
  bool contraction = false;       // the body's first node reads its operands from memory
  std::vector<ValueId> operands;  // by input of the body
};

// By value: the nodes that read it, ascending, once for each operand.
std::vector<std::vector<NodeId>> readers_by_value(const Graph& graph);

// The body of a region, or of a lone op that regions hold, made here; none for other nodes.
std::optional<RegionBody> region_body(const Graph& graph, const Node& node, const Target& target);
// What the region runs over.
const Shape& region_domain(const RegionBody& region);
// Which input of the body the value is; -1: none.
int input_index(const Graph& body, ValueId inner);

// Gives a body under construction its next input or output.
ValueId add_body_input(Graph& body, const TensorType& type);
void add_body_output(Graph& body, ValueId inner);
// Appends the region to a graph (`kind`: see ir/region.h) and gives the values of its outputs.
std::vector<ValueId> add_region(Graph& graph, Graph body, std::vector<ValueId> operands,
                                const std::string& kind, const std::string& origin);

}  // namespace aicf
