#include "ir/reference/error_estimate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/primitives.h"
#include "ir/reference/rounding_noise.h"

namespace aicf {
namespace {

constexpr int kRuns = 8;
// Of them: every result rounded to its dtype, without noise and with that of f32. What is exact so (a half
// that becomes an integer, an argument that a function is not defined beside) no noise of the whole unit
// hits.
constexpr int kRoundedRuns = 2;
// Larger noise than that of kernels finds the decisions that are near.
constexpr double kAmplitude = 4;
// Standard deviations of one rounding error; kernels keep within three, the rest is for the estimate's own
// error: with kRuns + kPriorRuns degrees of freedom, one element in ten million is beyond.
constexpr double kDeviations = 10;
constexpr double kPriorRuns = 8;

using Arrays = std::map<std::string, Array>;

constexpr double kUndecided = std::numeric_limits<double>::infinity();

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// What the runs miss an element by.
struct Misses {
  double mean_square = 0;  // as if all had noise of kAmplitude; infinite: undecided
  double largest = 0;
};

Misses misses(const Array& exact, const std::vector<Array>& runs, int64_t i) {
  Misses result;
  for (size_t run = 0; run < runs.size(); ++run) {
    if (!is_float(exact.dtype())) {
      if (runs[run].get_i64(i) != exact.get_i64(i)) return {kUndecided, kUndecided};
      continue;
    }
    const double want = exact.get_f64(i), got = runs[run].get_f64(i);
    if (same(got, want)) continue;
    if (!std::isfinite(got) || !std::isfinite(want)) return {kUndecided, kUndecided};
    const double miss = std::fabs(got - want), weight = run < kRoundedRuns ? kAmplitude : 1;
    result.mean_square += weight * weight * miss * miss / static_cast<double>(runs.size());
    result.largest = std::max(result.largest, miss);
  }
  return result;
}

std::vector<double> bounds_of(const Array& exact, const std::vector<Array>& runs) {
  // A decision that one run takes otherwise.
  constexpr double kMargin = 1.25;
  std::vector<double> bound(static_cast<size_t>(exact.count())), least(bound.size());
  double logs = 0, counted = 0;
  for (size_t i = 0; i < bound.size(); ++i) {
    const Misses miss = misses(exact, runs, static_cast<int64_t>(i));
    bound[i] = miss.mean_square, least[i] = kMargin * miss.largest;
    if (bound[i] > 0 && std::isfinite(bound[i])) logs += std::log(bound[i]), ++counted;
  }
  if (!is_float(exact.dtype())) return bound;
  // Their geometric mean: a few large elements do not widen the bounds of small ones.
  const double prior = counted > 0 ? std::exp(logs / counted) : 0;
  for (size_t i = 0; i < bound.size(); ++i) {
    if (!std::isfinite(bound[i])) continue;
    const double moderated = std::sqrt((kPriorRuns * prior + kRuns * bound[i]) / (kPriorRuns + kRuns));
    const bool finite = std::isfinite(exact.get_f64(static_cast<int64_t>(i)));
    bound[i] = finite ? std::max(kDeviations / kAmplitude * moderated, least[i]) : 0;
  }
  return bound;
}

Arrays all_results(EvalResult result) {
  Arrays arrays = std::move(result.outputs);
  for (auto& [name, array] : result.updated) arrays["update:" + name] = std::move(array);
  return arrays;
}

// `graph`: of primitives.
std::map<std::string, Estimate> estimate(const Arrays& exact, const Program& program, const Graph& graph,
                                         const EvalInputs& inputs) {
  std::map<std::string, std::vector<Array>> runs;
  reference::NoiseCache cache;
  for (int i = 0; i < kRuns; ++i) {
    const bool rounded = i < kRoundedRuns;
    reference::RoundingNoise noise(static_cast<uint64_t>(i), i == 0 ? 0 : rounded ? 1 : kAmplitude, cache);
    for (auto& [name, array] : all_results(evaluate(program, graph, inputs, {rounded, &noise})))
      runs[name].push_back(array);
  }
  std::map<std::string, Estimate> result;
  for (const auto& [name, array] : exact) result[name] = {array, bounds_of(array, runs.at(name))};
  return result;
}

}  // namespace

std::map<std::string, Estimate> estimate_outputs(const Program& program, const Graph& entry,
                                                 const Program& computed, const Graph& computed_entry,
                                                 const EvalInputs& inputs) {
  return estimate(all_results(evaluate(program, entry, inputs, {false})), computed,
                  primitives(computed_entry), inputs);
}

std::vector<Estimate> estimate_node(const Graph& graph, const Node& node, const std::vector<Array>& operands,
                                    const SymbolValues& sizes) {
  const Program program;
  Graph alone("node");
  EvalInputs inputs{{}, sizes};
  std::map<ValueId, ValueId> placed = {{kNoValue, kNoValue}};
  std::vector<ValueId> values;
  for (size_t k = 0; k < node.operands.size(); ++k) {
    const ValueId id = node.operands[k];
    if (!placed.contains(id)) {
      const Value& value = graph.value(id);
      const std::string name = "x" + std::to_string(k);
      placed[id] = value.role == Role::kConstant ? alone.add_constant(value.constant)
                                                 : alone.add_input(name, value.type);
      if (value.role != Role::kConstant) inputs.inputs[name] = operands[k];
    }
    values.push_back(placed.at(id));
  }
  const NodeId id = alone.add_node(node.op, values, node.attrs, node.bodies, node.origin);
  for (size_t k = 0; k < node.results.size(); ++k)
    alone.add_output(alone.node(id).results[k], std::to_string(k));
  const Graph simple = primitives(alone);
  std::map<std::string, Estimate> named =
      estimate(all_results(evaluate(program, alone, inputs, {false})), program, simple, inputs);
  std::vector<Estimate> estimates;
  for (size_t k = 0; k < node.results.size(); ++k)
    estimates.push_back(std::move(named.at(std::to_string(k))));
  return estimates;
}

}  // namespace aicf
