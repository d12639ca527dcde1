// What a program computes in.
// f32: as the model states it; in training, half params have f32 master copies and moments.
// tf32: as f32, but matmul, linear, attention and convolutions of f32, which are not depthwise, multiply
// operands rounded to 10 bits after the leading one. bf16-mixed, f16-mixed: f32 contractions take operands of
// that type and accumulate in f32; params, sums, norms, losses and everything else stay f32. bf16-pure
// (training only): params and their moments are of the params' own type and have no master copy; every op
// computes in f32 inside and rounds its result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ir/graph.h"

namespace aicf {

enum class Precision : uint8_t { kF32, kTf32, kBf16Mixed, kF16Mixed, kBf16Pure };

// By its name above; unsupported_option for others.
Precision precision_of(const std::string& name);
const char* precision_name(Precision precision);
// As precision_of, for what is not training; unsupported_option for bf16-pure too.
Precision inference_precision_of(const std::string& name);

// What f32 operands of contractions become.
std::optional<DType> contraction_dtype(Precision precision);

// The graph with every matmul, linear, attention and convolution of f32, weight gradients among them, in
// tf32; depthwise ones and gradients of attention stay.
Graph multiply_in_tf32(const Graph& graph);

// The graph with every f32 operand of matmul, linear, conv, conv_transpose and attention rounded to `dtype`,
// and the result widened again. Gradients taken of this graph contract in that type too.
Graph narrow_contractions(const Graph& graph, DType dtype);

}  // namespace aicf
