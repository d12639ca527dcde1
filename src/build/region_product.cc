#include "build/region_product.h"

#include "build/unit_writer.h"
#include "select/cuda_problem.h"
#include "select/layout.h"

namespace aicf {
namespace {

constexpr char kNamespace[] = "made";

}  // namespace

bool takes_region(const KernelCall& product, const CodeContext& context) {
  return product.kernel == "matmul_tensor_core" && product.library.call.empty() && product.region >= 0 &&
         takes_made_input(call_problem(product, context), product.variant);
}

CudaCode region_product_code(const KernelCall& call, const CodeContext& context) {
  const KernelCall &region = call.members[0], &product = call.members[1];
  const CudaCode member = call_code(region, context, true);
  UnitWriter unit;
  unit.add(member.source, kNamespace);
  const CudaProblem kernel = cuda_problem(call, context.target.arch, context.ranges);
  MadeInput made;
  made.text = unit.text();
  made.launch = member.launches[0];
  made.function = std::string(kNamespace) + "::" + made.launch.function;
  made.block_elements = member.block_elements;
  made.inputs = operand_numbers(region.inputs, call.inputs);
  made.kernel_inputs = kernel.inputs;
  made.kernel_outputs = kernel.outputs;
  CudaProblem problem = call_problem(product, context);
  problem.made = &made;
  return find_cuda_kernel(product.kernel)->generate(problem);
}

}  // namespace aicf
