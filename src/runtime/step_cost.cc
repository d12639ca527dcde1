#include "runtime/step_cost.h"

#include <algorithm>

namespace aicf {
namespace {

std::vector<TensorArg> args_of(const std::vector<TensorRef>& refs, const SymbolValues& sizes) {
  std::vector<TensorArg> args;
  for (const TensorRef& ref : refs) {
    TensorArg arg;
    arg.dtype = ref.dtype;
    arg.rank = static_cast<int>(ref.sizes.size());
    for (size_t i = 0; i < ref.sizes.size(); ++i) {
      arg.sizes[i] = evaluate(ref.sizes[i], sizes);
      arg.strides[i] = evaluate(ref.strides[i], sizes);
    }
    args.push_back(arg);
  }
  return args;
}

StepCost bundle_cost(const Step& step, const SymbolValues& sizes) {
  const std::vector<TensorArg> inputs = args_of(step.inputs, sizes), outputs = args_of(step.outputs, sizes);
  const auto of = [](const std::vector<TensorArg>& all, const std::vector<int32_t>& numbers) {
    std::vector<TensorArg> own;
    for (const int32_t number : numbers) own.push_back(all[static_cast<size_t>(number)]);
    return own;
  };
  StepCost cost;
  for (const StepMember& member : step.members) {
    // A member's params are not in the plan: of attention it is sure to do the causal half.
    const WorkForm form = facts_of(member.kernel).work;
    const bool attends = form == WorkForm::kAttention || form == WorkForm::kAttentionBackward;
    const Work work = work_of(form, of(inputs, member.inputs), of(outputs, member.outputs),
                              attends ? std::vector<int64_t>{1} : std::vector<int64_t>{});
    cost.bytes += work.bytes;
    cost.sure_bytes += work.sure_bytes;
    cost.flops += work.flops;
  }
  return cost;
}

}  // namespace

StepCost step_cost(const Step& step, const SymbolValues& sizes) {
  if (!step.members.empty()) return bundle_cost(step, sizes);
  std::vector<TensorArg> inputs = args_of(step.inputs, sizes);
  // A region's operands that are one window come from memory once: all but the first count as an element.
  const WorkForm form = facts_of(step.kernel).work;
  for (size_t i = 1; form == WorkForm::kRegion && i < inputs.size(); ++i)
    if (std::find(step.inputs.begin(), step.inputs.begin() + static_cast<std::ptrdiff_t>(i),
                  step.inputs[i]) != step.inputs.begin() + static_cast<std::ptrdiff_t>(i))
      std::fill(std::begin(inputs[i].strides), std::end(inputs[i].strides), 0);
  StepCost cost{work_of(form, inputs, args_of(step.outputs, sizes), evaluate(step.params, sizes)), 0};
  // What a branch that is not taken and a loop that ends at once need is not known before the run.
  if (!step.bodies.empty()) cost.sure_bytes = 0;
  return cost;
}

Units units_of(const Step& step) {
  Units units = facts_of(step.kernel).units;
  for (const StepMember& member : step.members) units = std::max(units, facts_of(member.kernel).units);
  return units;
}

}  // namespace aicf
