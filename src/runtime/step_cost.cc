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

bool differ_in_offset_alone(const TensorRef& a, TensorRef b) {
  b.offset = a.offset;
  return a == b;
}

// Of operands that are windows of one buffer, alike but for where they begin (a picture beside itself moved
// by a pixel), what they share comes from memory once.
double bytes_read_again(const std::vector<TensorRef>& refs, const std::vector<TensorArg>& args,
                        const SymbolValues& sizes) {
  double bytes = 0;
  std::vector<bool> counted(refs.size());
  for (size_t i = 0; i < refs.size(); ++i) {
    if (counted[i]) continue;
    std::vector<int64_t> offsets;
    size_t alike = 0;
    for (size_t j = i; j < refs.size(); ++j) {
      if (counted[j] || !differ_in_offset_alone(refs[i], refs[j])) continue;
      counted[j] = true;
      ++alike;
      const int64_t offset = evaluate(refs[j].offset, sizes);
      if (std::find(offsets.begin(), offsets.end(), offset) == offsets.end()) offsets.push_back(offset);
    }
    bytes +=
        (static_cast<double>(alike) * distinct_elements(args[i], {0}) - distinct_elements(args[i], offsets)) *
        dtype_bytes(args[i].dtype);
  }
  return bytes;
}

}  // namespace

StepCost step_cost(const Step& step, const SymbolValues& sizes) {
  if (!step.members.empty()) return bundle_cost(step, sizes);
  const std::vector<TensorArg> inputs = args_of(step.inputs, sizes);
  const WorkForm form = facts_of(step.kernel).work;
  StepCost cost{work_of(form, inputs, args_of(step.outputs, sizes), evaluate(step.params, sizes)), 0};
  if (form == WorkForm::kRegion || form == WorkForm::kIndexedRegion) {
    const double bytes = bytes_read_again(step.inputs, inputs, sizes);
    cost.bytes -= bytes;
    cost.sure_bytes -= bytes;
  }
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
