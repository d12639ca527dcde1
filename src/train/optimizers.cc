#include "train/optimizers.h"

#include <cmath>
#include <utility>

#include "base/comma_list.h"
#include "base/error.h"
#include "base/format.h"
#include "ir/decompose/emitter.h"

namespace aicf {
namespace {

constexpr std::pair<const char*, OptimizerKind> kOptimizers[] = {
    {"sgd", OptimizerKind::kSgd}, {"adam", OptimizerKind::kAdam}, {"adamw", OptimizerKind::kAdamW}};

void require(bool holds, const char* name, double value, const char* expected) {
  if (holds) return;
  throw UserError(ErrorCode::kU_bad_option, "a number of the optimizer is out of range")
      .with_value(name)
      .with_expected(expected)
      .with_actual(format_number(value));
}

void require_decay(double weight_decay) {
  require(weight_decay >= 0 && std::isfinite(weight_decay), "weight_decay", weight_decay,
          "0 or more, finite");
}

ValueId scaled(Emitter& e, ValueId x, double factor) { return e.mul(x, e.scalar(e.dtype(x), factor)); }

ValueId decayed_gradient(Emitter& e, const OptimizerOptions& options, const ParamStep& at) {
  return options.weight_decay == 0 ? at.gradient
                                   : e.add(at.gradient, scaled(e, at.param, options.weight_decay));
}

Stepped sgd(Emitter& e, const OptimizerOptions& options, const ParamStep& at,
            const std::vector<ValueId>& slots) {
  ValueId direction = decayed_gradient(e, options, at);
  std::vector<ValueId> next;
  if (options.momentum != 0) {
    next = {e.add(scaled(e, slots[0], options.momentum), direction)};
    direction = options.nesterov ? e.add(direction, scaled(e, next[0], options.momentum)) : next[0];
  }
  return {e.sub(at.param, e.mul(at.rate, direction)), std::move(next)};
}

Stepped adam(Graph& graph, Emitter& e, const OptimizerOptions& options, const ParamStep& at,
             const std::vector<ValueId>& slots) {
  const bool decoupled = options.kind == OptimizerKind::kAdamW;
  const ValueId gradient = decoupled ? at.gradient : decayed_gradient(e, options, at);
  const Attrs attrs = {{"beta1", options.beta1},
                       {"beta2", options.beta2},
                       {"epsilon", options.epsilon},
                       {"weight_decay", decoupled ? options.weight_decay : 0.0}};
  const NodeId node =
      graph.add_node(Op::adamw_step, {at.param, gradient, slots[0], slots[1], at.step, at.rate}, attrs);
  const std::vector<ValueId>& results = graph.node(node).results;
  return {results[0], {results[1], results[2]}};
}

}  // namespace

void check_optimizer(const OptimizerOptions& options) {
  require(options.momentum >= 0 && options.momentum < 1, "momentum", options.momentum,
          "0 or more, less than 1");
  require(!options.nesterov || options.momentum > 0, "nesterov", options.momentum, "a momentum above 0");
  require(options.beta1 >= 0 && options.beta1 < 1, "beta1", options.beta1, "0 or more, less than 1");
  require(options.beta2 >= 0 && options.beta2 < 1, "beta2", options.beta2, "0 or more, less than 1");
  require(options.epsilon > 0 && std::isfinite(options.epsilon), "epsilon", options.epsilon,
          "more than 0, finite");
  require_decay(options.weight_decay);
}

void check_group(const ParamGroup& group) {
  require(group.rate_factor >= 0 && std::isfinite(group.rate_factor), "rate_factor", group.rate_factor,
          "0 or more, finite");
  require_decay(group.weight_decay.value_or(0));
}

OptimizerKind optimizer_kind(const std::string& name) {
  for (const auto& [candidate, kind] : kOptimizers)
    if (name == candidate) return kind;
  throw UserError(ErrorCode::kU_bad_option, "there is no optimizer of this name")
      .with_value(name)
      .with_expected(comma_list(kOptimizers, [](const auto& row) { return row.first; }));
}

// The parts between the stars must follow one another in the name, the first at its start and the last at its
// end.
bool matches_pattern(const std::string& pattern, const std::string& name) {
  size_t star = pattern.find('*');
  if (star == std::string::npos) return pattern == name;
  if (name.compare(0, star, pattern, 0, star) != 0) return false;
  size_t at = star;
  while (true) {
    const size_t begin = star + 1;
    star = pattern.find('*', begin);
    const std::string part = pattern.substr(begin, star == std::string::npos ? star : star - begin);
    if (star == std::string::npos) return name.size() >= at + part.size() && name.ends_with(part);
    const size_t found = name.find(part, at);
    if (found == std::string::npos) return false;
    at = found + part.size();
  }
}

std::vector<std::string> optimizer_slots(const OptimizerOptions& options) {
  if (options.kind != OptimizerKind::kSgd) return {"m", "v"};
  return options.momentum == 0 ? std::vector<std::string>{} : std::vector<std::string>{"momentum"};
}

Stepped add_optimizer_step(Graph& graph, const OptimizerOptions& options, const ParamStep& at,
                           const std::vector<ValueId>& slots) {
  const std::string origin = "optimizer";
  Emitter e(graph, origin);
  return options.kind == OptimizerKind::kSgd ? sgd(e, options, at, slots)
                                             : adam(graph, e, options, at, slots);
}

}  // namespace aicf
