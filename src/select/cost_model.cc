#include "select/cost_model.h"

#include <algorithm>

namespace aicf {
namespace {

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

}  // namespace

Work largest_work(const KernelCall& call, std::string_view kernel, const SymbolRanges& ranges) {
  return work_of(kernel, args_of(call.inputs, ranges), args_of(call.outputs, ranges), {});
}

double estimate_microseconds(const KernelCall& call, std::string_view kernel, const Target& target,
                             const SymbolRanges& ranges) {
  const Work work = largest_work(call, kernel, ranges);
  const TargetFacts& facts = target.facts();
  const bool half = !call.inputs.empty() && dtype_bytes(call.inputs[0].dtype) == 2;
  const double bytes = work.bytes / facts.bytes_per_microsecond;
  const double flops =
      work.flops /
      (half && kernel.find("simt") == std::string_view::npos ? facts.half_flops : facts.float_flops);
  return facts.edge_microseconds + std::max(bytes, flops);
}

}  // namespace aicf
