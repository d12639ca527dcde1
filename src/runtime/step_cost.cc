#include "runtime/step_cost.h"

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
    const Work work = work_of(member.kernel, of(inputs, member.inputs), of(outputs, member.outputs), {});
    cost.bytes += work.bytes;
    cost.flops += work.flops;
  }
  return cost;
}

}  // namespace

StepCost step_cost(const Step& step, const SymbolValues& sizes) {
  if (!step.members.empty()) return bundle_cost(step, sizes);
  return {work_of(step.kernel, args_of(step.inputs, sizes), args_of(step.outputs, sizes),
                  evaluate(step.params, sizes)),
          0};
}

}  // namespace aicf
