// Losses: graph builders that reduce a prediction and a target to one number. Half precision operands are
// widened, so the loss is f32 or f64. Cross-entropy takes logits [N, C, d...] or [N, C] with integer labels
// [N, d...]; the others take two tensors of one shape.
#pragma once

#include <cstdint>
#include <string>

#include "ir/graph.h"

namespace aicf {

enum class LossKind : uint8_t {
  kMse,           // (x - y)^2
  kHuber,         // d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2), d = x - y
  kCrossEntropy,  // -log softmax(x)[label], labels equal to ignore_index left out; NaN if a label is no class
  kBceWithLogits,  // log(1 + e^x) - x y
  kKlDivergence,   // y (log y - x): x are log probabilities, y probabilities
};

enum class LossReduction : uint8_t {
  kMean,  // over elements; cross-entropy: over labels kept; KL: over rows (axis 0)
  kSum,
};

struct LossOptions {
  LossReduction reduction = LossReduction::kMean;
  double delta = 1.0;            // Huber
  double label_smoothing = 0.0;  // cross-entropy: this share of the target goes to all classes evenly
  int64_t ignore_index = -100;   // cross-entropy
};

// "mse", "huber", "cross_entropy", "bce_with_logits", "kl_divergence"; bad_option lists them.
LossKind loss_kind(const std::string& name);

// The scalar loss. Errors: bad_shape, bad_dtype, bad_option.
ValueId add_loss(Graph& graph, LossKind kind, ValueId prediction, ValueId target,
                 const LossOptions& options = {});

}  // namespace aicf
