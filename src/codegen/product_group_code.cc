#include "codegen/product_group_code.h"

#include "kernels/common/product_group.h"
#include "select/layout.h"

namespace aicf {

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
  CudaProblem problem = product_of(members[0], context);
  problem.fusion = &group;
  return find_cuda_kernel(row_call(members[0])->row)->generate(problem);
}

}  // namespace aicf
