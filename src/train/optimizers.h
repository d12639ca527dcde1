// Optimizers: what one parameter becomes, given its gradient and its slots (moments). Formulas and defaults
// are those of torch.optim, so that runs can be compared. Everything is computed in the dtype of the
// parameter given here, which is the f32 master copy of a half precision one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace aicf {

enum class OptimizerKind : uint8_t {
  kSgd,    // momentum b = mu b + g; p - rate (b, or g + mu b with Nesterov); decay is added to g
  kAdam,   // Kingma & Ba 2015; decay is added to g
  kAdamW,  // decoupled decay (Loshchilov & Hutter 2019)
};

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double momentum = 0;  // SGD
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // Adam, AdamW
  double weight_decay = 0;
};

// Parameters that are treated apart from the others. Patterns are exact names or hold '*' for any text.
struct ParamGroup {
  std::vector<std::string> patterns;
  double rate_factor = 1;  // times the scheduled rate
  std::optional<double> weight_decay;
  bool trainable = true;  // false: left as it is, and no gradient is computed
};

// bad_option for numbers out of range.
void check_optimizer(const OptimizerOptions& options);
void check_group(const ParamGroup& group);
// "sgd", "adam", "adamw"; bad_option lists them.
OptimizerKind optimizer_kind(const std::string& name);

// Whether `name` is the pattern, '*' standing for any text.
bool matches_pattern(const std::string& pattern, const std::string& name);

struct ParamStep {
  ValueId param, gradient, rate;  // of one float dtype; rate a scalar
  ValueId step;                   // i64 scalar, counts from 1
};

// The moments that an optimizer keeps for each parameter, by name ("m", "v", "momentum"); zeros at first.
std::vector<std::string> optimizer_slots(const OptimizerOptions& options);

struct Stepped {
  ValueId param;
  std::vector<ValueId> slots;  // in the order of optimizer_slots
};
Stepped add_optimizer_step(Graph& graph, const OptimizerOptions& options, const ParamStep& at,
                           const std::vector<ValueId>& slots);

}  // namespace aicf
