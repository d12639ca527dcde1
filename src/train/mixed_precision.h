// bf16-mixed: contractions take bf16 operands and accumulate in f32; params, sums, norms and losses stay f32.
#pragma once

#include <string>

#include "ir/graph.h"

namespace aicf {

// "f32" or "bf16-mixed"; unsupported_option for others.
bool is_bf16_mixed(const std::string& precision);

// The graph with every f32 operand of matmul, linear, conv, conv_transpose and attention rounded to bf16, and
// the result widened again. Gradients taken of this graph contract in bf16 too.
Graph narrow_contractions(const Graph& graph);

}  // namespace aicf
