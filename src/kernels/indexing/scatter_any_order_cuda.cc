#include "kernels/indexing/scatter_any_order_cuda.h"

#include <algorithm>
#include <utility>

#include "kernels/common/cuda_machine.h"
#include "kernels/indexing/copy_cuda.h"
#include "kernels/indexing/scatter_text.h"

namespace aicf {

CudaCode any_order_code(const CudaProblem& problem, ScatterProblem s, ScatterReduction reduction) {
  constexpr int64_t kMostCounted = 8192, kCountingBlock = 512, kFewestCounting = 32;
  constexpr int64_t kUpdatesOfTarget = 4;  // of a block, at least: it adds a count to every target
  s.places.merge_axes();
  s.block.merge_axes();
  const bool alike = is_one_element(problem.inputs[2]);
  const std::string type = element_type(problem.outputs[0].dtype, reduction);
  CudaCode code = scatter_code();
  code.source += includes({"indexing/scatter_any_order.cuh"});
  if (!problem.replaces(0)) add_copy(code, problem, 0, "copy");
  const Dim updates = s.lines.count(), threads = updates * s.block.count();
  const int64_t targets = upper_bound(s.targets, problem.ranges), usual = size_to_choose_by(updates, problem);
  const int64_t counting = targets > kMostCounted
                               ? 0
                               : std::min(2 * problem.machine.multiprocessors,
                                          usual / (kUpdatesOfTarget * std::max<int64_t>(1, targets)));
  CudaParams params;
  std::string body = scatter_text(problem, s, max(threads, s.targets), params);
  const std::string operands =
      pointer_text(type, "in2", true) + ", " + pointer_text(type, "out0", false) + ", error);\n";
  CudaLaunch launch;
  if (alike && reduction == ScatterReduction::add && s.block.rank() == 0 && counting >= kFewestCounting) {
    body += "  aicf::count_updates(s, in1, " + params.expr(updates) + ", int(" + params.expr(s.targets) +
            "), " + operands;
    const Dim blocks = min(blocks_for(updates, kCountingBlock), Dim(counting));
    launch = flat_launch("count_updates", blocks, kCountingBlock, params);
    launch.shared_bytes = targets * 4;
  } else {
    body += "  aicf::combine_in_any_order<" + reduction_number(reduction) + ", " +
            (alike ? "true" : "false") + ">(s, in1, " + operands;
    launch = flat_launch("combine_in_any_order", blocks_for(threads, kScatterBlock), kScatterBlock, params);
  }
  launch.reports_errors = true;
  add_kernel(code, problem, std::move(launch), body);
  return code;
}

}  // namespace aicf
