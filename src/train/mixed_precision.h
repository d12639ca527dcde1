// What a training step computes in. f32: as the model states it; half params have f32 master copies and moments.
// bf16-mixed: contractions take bf16 operands and accumulate in f32; params, sums, norms and losses stay f32.
// bf16-pure: params and their moments are of the params' own type and have no master copy; every op computes in
// f32 inside and rounds its result.
#pragma once

#include <cstdint>
#include <string>

#include "ir/graph.h"

namespace aicf {

enum class Precision : uint8_t { kF32, kBf16Mixed, kBf16Pure };

// "f32", "bf16-mixed" or "bf16-pure"; unsupported_option for others.
Precision precision_of(const std::string& name);
const char* precision_name(Precision precision);

// The graph with every f32 operand of matmul, linear, conv, conv_transpose and attention rounded to bf16, and
// the result widened again. Gradients taken of this graph contract in bf16 too.
Graph narrow_contractions(const Graph& graph);

}  // namespace aicf
