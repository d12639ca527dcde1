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

}  // namespace

StepCost step_cost(const Step& step, const SymbolValues& sizes) {
  return {work_of(step.kernel, args_of(step.inputs, sizes), args_of(step.outputs, sizes),
                  evaluate(step.params, sizes)),
          0};
}

}  // namespace aicf
