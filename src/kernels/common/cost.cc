#include "kernels/common/cost.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/work.h"

namespace aicf {
namespace {

constexpr double kElement = 1e-9;   // seconds to load, change and store one element
constexpr double kTile = 50e-9;     // to start one tile
constexpr double kMulAdd = 0.1e-9;  // one multiply-add of a contraction

// Axes of no elements count as one: somebody may walk along the others.
double elements(const TensorArg& arg) {
  double count = 1;
  for (int i = 0; i < arg.rank; ++i) count *= static_cast<double>(std::max<int64_t>(arg.sizes[i], 1));
  return count;
}

double size(const TensorArg& arg, int axis) {
  return axis >= 0 && axis < arg.rank ? static_cast<double>(arg.sizes[axis]) : 1;
}

double largest_window(const BoundCall& call) {
  double most = 0;
  for (const auto* list : {&call.inputs, &call.outputs})
    for (const TensorArg& arg : *list) most = std::max(most, elements(arg));
  return most;
}

double instructions(const BoundCall& call) {
  size_t count = 0;
  if (call.program != nullptr)
    for (const auto& stage : call.program->stages) count += stage.size();
  return std::max<double>(1, static_cast<double>(count));
}

// Multiply-adds of contractions, positions of windows: what the sizes of the windows do not show by
// themselves.
double inner_steps(const Kernel& kernel, const BoundCall& call) {
  if (call.inputs.empty() || call.outputs.empty()) return 0;
  const WorkForm form = kernel.facts.work;
  const TensorArg &x = call.inputs[0], &out = call.outputs[0];
  if (form == WorkForm::kConvTranspose && call.inputs.size() > 1)
    return elements(x) * elements(call.inputs[1]) / std::max(1.0, size(call.inputs[1], 0)) * kElement;
  if (const double flops = work_of(form, call.inputs, call.outputs, call.params).flops; flops > 0)
    return flops / 2 * kMulAdd;
  if (form == WorkForm::kPool && !call.params.empty()) {
    double window = 1;
    for (int64_t i = 0; i < call.params[0] && 3 + i < static_cast<int64_t>(call.params.size()); ++i)
      window *= static_cast<double>(std::max<int64_t>(call.params[static_cast<size_t>(3 + i)], 1));
    return elements(out) * window * kElement;
  }
  if (form == WorkForm::kSort) return elements(x) * std::log2(elements(x) + 1) * kElement;
  return 0;
}

}  // namespace

double estimate_seconds(const Kernel& kernel, const BoundCall& call) {
  return largest_window(call) * instructions(call) * kElement + inner_steps(kernel, call) +
         static_cast<double>(call.tiles) * kTile;
}

}  // namespace aicf
