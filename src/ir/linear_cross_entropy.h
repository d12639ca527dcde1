// Finds products whose only reader is a cross entropy, where their rows are many: as linear_cross_entropy the
// logits are never stored whole. Takes a forward graph, before gradients are added to it; works on any.
#pragma once

#include "ir/graph.h"

namespace aicf {

Graph fuse_linear_cross_entropy(const Graph& graph);

}  // namespace aicf
