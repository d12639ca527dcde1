#include "codegen/fused_code.h"

#include "codegen/unit_writer.h"
#include "kernels/common/product_group.h"
#include "kernels/common/prologue.h"
#include "select/layout.h"

namespace aicf {
namespace {

// What the row of one of the calls generates with all of them.
CudaCode fused_code(const KernelCall& call, CudaProblem problem, Fusion fusion) {
  problem.fusion = fusion;
  return find_cuda_kernel(row_call(call)->row)->generate(problem);
}

}  // namespace

CudaCode product_group_code(const KernelCall& call, const CodeContext& context) {
  const CudaProblem kernel = call_problem(call, context);
  ProductGroup group;
  group.kernel = &kernel;
  const std::vector<KernelCall>& members = std::get<GroupedProducts>(call.what).members;
  for (const KernelCall& member : members) {
    ProductGroup::Operands product{operand_numbers(member.inputs, call.inputs),
                                   operand_numbers(member.outputs, call.outputs)};
    if (has_sums(member, context)) {
      product.x_sums = product.outputs.back();
      product.outputs.pop_back();
      group.x_sums = member.outputs.back().dtype;
    }
    group.products.push_back(std::move(product));
  }
  return fused_code(members[0], product_of(members[0], context), &group);
}

CudaCode prologue_code(const KernelCall& call, const CodeContext& context) {
  constexpr char kNamespace[] = "prologue";
  const auto& [producer, consumer] = std::get<PrologueFusion>(call.what);
  const CudaProblem own = call_problem(*producer, context), kernel = call_problem(call, context);
  Prologue prologue;
  prologue.problem = &own;
  prologue.kernel = &kernel;
  prologue.inputs = operand_numbers(producer->inputs, call.inputs);
  prologue.outputs = operand_numbers(producer->outputs, call.outputs);
  if (has_program(*producer, ProgramRole::kRegion)) {
    UnitWriter unit;
    prologue.code = call_code(*producer, context, CodeForm::member);
    unit.add(prologue.code.source, kNamespace);
    prologue.text = unit.text();
    prologue.function = std::string(kNamespace) + "::" + prologue.code.launches[0].function;
  }
  return fused_code(*consumer, call_problem(*consumer, context), &prologue);
}

}  // namespace aicf
