#include "codegen/made_input_code.h"

#include "codegen/unit_writer.h"
#include "select/cuda_problem.h"
#include "select/layout.h"

namespace aicf {

CudaCode made_input_code(const KernelCall& call, const CodeContext& context) {
  constexpr char kNamespace[] = "made";
  const auto& joined = std::get<JoinedInput>(call.what);
  const KernelCall &maker = *joined.maker, &taker = *joined.taker;
  const CudaProblem own = call_problem(maker, context), kernel = call_problem(call, context);
  MadeInput made;
  made.problem = &own;
  made.kernel = &kernel;
  made.inputs = operand_numbers(maker.inputs, call.inputs);
  made.outputs = operand_numbers(maker.outputs, call.outputs);
  if (has_program(maker, ProgramRole::kRegion)) {
    UnitWriter unit;
    made.code = call_code(maker, context, CodeForm::member);
    unit.add(made.code.source, kNamespace);
    made.text = unit.text();
    made.function = std::string(kNamespace) + "::" + made.code.launches[0].function;
  }
  CudaProblem problem = call_problem(taker, context);
  problem.fusion = &made;
  return find_cuda_kernel(row_call(taker)->row)->generate(problem);
}

}  // namespace aicf
