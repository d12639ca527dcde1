#include "select/cost_model.h"

#include <algorithm>

namespace aicf {

std::vector<TensorArg> args_of(const std::vector<Window>& windows, const SymbolRanges& ranges) {
  std::vector<TensorArg> args;
  for (const Window& w : windows) {
    TensorArg arg;
    arg.dtype = w.dtype;
    arg.rank = static_cast<int>(std::min<size_t>(w.sizes.size(), kMaxRank));
    for (size_t i = 0; i < static_cast<size_t>(arg.rank); ++i) {
      arg.sizes[i] = bounds(w.sizes[i], ranges).hi;
      arg.strides[i] = bounds(w.strides[i], ranges).hi;
    }
    args.push_back(arg);
  }
  return args;
}

Work largest_work(const KernelCall& call, std::string_view kernel, const SymbolRanges& ranges) {
  return work_of(facts_of(kernel).work, args_of(call.inputs, ranges), args_of(call.outputs, ranges), {});
}

double estimate_microseconds(const KernelCall& call, std::string_view kernel, const Target& target,
                             const SymbolRanges& ranges) {
  const DType x = call.inputs.empty() ? DType::f32 : call.inputs[0].dtype;
  return target.facts().edge_microseconds +
         least_microseconds(largest_work(call, kernel, ranges), facts_of(kernel).units, x, target.facts());
}

std::vector<KernelVariant> estimated_ways(const CudaKernel& kernel, const CudaProblem& problem,
                                          const KernelCall& call, const Target& target,
                                          const SymbolRanges& ranges) {
  TargetFacts fitted = Target::from_name("sm_90").facts();
  std::vector<KernelVariant> ways = cuda_variants(kernel, problem);
  if (call.inputs.empty() || target.facts() == fitted) return ways;
  // Of as many multiprocessors as the target has: rows count their rounds.
  const double size = static_cast<double>(target.facts().multiprocessors) / fitted.multiprocessors;
  fitted.half_flops *= size;
  fitted.float_flops *= size;
  const Work work = largest_work(call, kernel.name, ranges);
  const auto least = [&](const TargetFacts& facts) {
    return least_microseconds(work, kernel.facts.units, call.inputs[0].dtype, facts);
  };
  const double own = least(fitted), part = own > 0 ? least(target.facts()) / own : 1;
  for (KernelVariant& way : ways) way.microseconds *= part;
  return ways;
}

double least_microseconds(const Work& work, Units units, DType x, const TargetFacts& facts) {
  const bool half = dtype_bytes(x) == 2 && units != Units::kScalar;
  const double rate = half                            ? facts.half_flops
                      : units == Units::kMatrixTf32   ? facts.half_flops / 2
                      : units == Units::kMatrixTf32x3 ? facts.half_flops / 6
                                                      : facts.float_flops;
  return std::max(static_cast<double>(work.bytes) / facts.bytes_per_microsecond,
                  static_cast<double>(work.flops) / rate);
}

}  // namespace aicf
