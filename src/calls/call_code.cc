#include "calls/call_code.h"

#include "base/error.h"
#include "kernels/control/control_code.h"
#include "kernels/custom_kernel.h"
#include "select/cuda_problem.h"

namespace aicf {

CudaProblem call_problem(const KernelCall& call, const CodeContext& context, const TileProgram* program) {
  CudaProblem problem = cuda_problem(call, context.target.arch, context.ranges);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const ValueId root = call.inputs[i].root;
    CudaWindow& window = problem.inputs[i];
    window.constant = !context.constant.empty() && context.constant[static_cast<size_t>(root)];
    window.ready = window.constant || (context.running && !context.running->contains(root));
  }
  if (program != nullptr)
    problem.program = program;
  else if (const RowCall* row = own_row(call); row != nullptr && !row->programs.empty())
    problem.program = &context.programs[static_cast<size_t>(row->programs[0].index)];
  return problem;
}

CudaCode call_code(const KernelCall& call, const CodeContext& context, CodeForm form) {
  if (std::holds_alternative<ControlRun>(call.what)) return control_code();
  if (const auto* custom = std::get_if<CustomRun>(&call.what))
    return custom_cuda_code(*custom->cuda, context.target.arch);
  const RowCall* row = own_row(call);
  const CudaKernel* kernel = row == nullptr ? nullptr : find_cuda_kernel(row->row);
  AICF_CHECK(kernel != nullptr, "a selected kernel is not in the table: " + named(call).kernel);
  CudaProblem problem = call_problem(call, context);
  problem.form = form;
  return kernel->generate(problem);
}

}  // namespace aicf
