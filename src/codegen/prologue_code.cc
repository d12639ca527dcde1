#include "codegen/prologue_code.h"

#include "codegen/unit_writer.h"
#include "select/cuda_problem.h"
#include "select/layout.h"

namespace aicf {

CudaCode prologue_code(const KernelCall& call, const CodeContext& context) {
  constexpr char kNamespace[] = "prologue";
  const auto& joined = std::get<PrologueFusion>(call.what);
  const KernelCall &producer = *joined.producer, &consumer = *joined.consumer;
  const CudaProblem own = call_problem(producer, context), kernel = call_problem(call, context);
  Prologue prologue;
  prologue.problem = &own;
  prologue.kernel = &kernel;
  prologue.inputs = operand_numbers(producer.inputs, call.inputs);
  prologue.outputs = operand_numbers(producer.outputs, call.outputs);
  if (has_program(producer, ProgramRole::kRegion)) {
    UnitWriter unit;
    prologue.code = call_code(producer, context, CodeForm::member);
    unit.add(prologue.code.source, kNamespace);
    prologue.text = unit.text();
    prologue.function = std::string(kNamespace) + "::" + prologue.code.launches[0].function;
  }
  CudaProblem problem = call_problem(consumer, context);
  problem.fusion = &prologue;
  return find_cuda_kernel(row_call(consumer)->row)->generate(problem);
}

}  // namespace aicf
