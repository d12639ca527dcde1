#include "calls/call_code.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "kernels/common/custom_kernel.h"
#include "kernels/common/product_group.h"
#include "kernels/control/control_code.h"
#include "select/cost_model.h"
#include "select/cuda_problem.h"

namespace aicf {
namespace {

// A kernel's arguments, of which a product takes two tensor maps; and those that are sizes.
constexpr size_t kArgumentBytes = 4096, kMapBytes = 128, kPointerBytes = 8, kSizeBytes = 128;

constexpr int kMaxBundleBlock = 512;             // threads: more would leave other members too few registers
constexpr int64_t kMaxBundleShared = 32 * 1024;  // bytes, dynamic; beside them those of the members' own
constexpr int kMaxCluster = 8;                   // blocks that every device with clusters takes

// All sums of a group are of one type.
std::vector<KernelVariant> ways_of_group(const GroupedProducts& group, const CodeContext& context) {
  std::optional<DType> sums;
  for (const KernelCall& member : group.members) {
    if (!has_sums(member, context)) continue;
    if (sums && *sums != member.outputs.back().dtype) return {};
    sums = member.outputs.back().dtype;
  }
  return grouped_variants(product_of(group.members[0], context), static_cast<int>(group.members.size()),
                          sums);
}

// Of a window of a constant that repeats one element.
std::optional<double> repeated_value(const Window& window, const Graph* graph) {
  if (graph == nullptr || window.root >= graph->value_count() ||
      graph->value(window.root).role != Role::kConstant ||
      std::any_of(window.strides.begin(), window.strides.end(), [](const Dim& s) { return !(s == Dim(0)); }))
    return std::nullopt;
  const Array& constant = graph->value(window.root).constant;
  const std::optional<int64_t> at = window.offset.constant();
  if (constant.dtype() != window.dtype || !at || *at < 0 || *at >= constant.count()) return std::nullopt;
  return constant.get_f64(*at);
}

}  // namespace

CudaProblem call_problem(const KernelCall& call, const CodeContext& context, const TileProgram* program) {
  CudaProblem problem = cuda_problem(call, context.target, context.ranges);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const ValueId root = call.inputs[i].root;
    CudaWindow& window = problem.inputs[i];
    window.constant = !context.constant.empty() && context.constant[static_cast<size_t>(root)];
    window.ready = window.constant || (context.running && !context.running->contains(root));
    window.value = repeated_value(call.inputs[i], context.graph);
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

bool joins_bundle(const CudaCode& code) {
  const auto fits = [](const CudaLaunch& launch) {
    return launch.cluster == 1 && launch.block <= kMaxBundleBlock &&
           launch.shared_bytes <= kMaxBundleShared && launch.tensor_maps.empty() &&
           launch.grid[1] == Dim(1) && launch.grid[2] == Dim(1);
  };
  return code.member && std::all_of(code.launches.begin(), code.launches.end(), fits);
}

int bundle_blocks(int64_t widest_stage, const Target& target) {
  int blocks = 1;
  while (target.arch >= 90 && blocks < kMaxCluster && blocks < widest_stage) blocks *= 2;
  return blocks;
}

bool has_sums(const KernelCall& member, const CodeContext& context) {
  const auto program = static_cast<size_t>(row_call(member)->programs[0].index);
  return member.outputs.size() > context.programs[program].outputs.size();
}

CudaProblem product_of(const KernelCall& member, const CodeContext& context) {
  KernelCall product = member;
  if (has_sums(member, context)) product.outputs.pop_back();
  return call_problem(product, context);
}

bool arguments_fit(const KernelCall& group) {
  const size_t products = std::get<GroupedProducts>(group.what).members.size();
  return (group.inputs.size() + group.outputs.size()) * kPointerBytes + products * 2 * kMapBytes +
             kSizeBytes <=
         kArgumentBytes;
}

std::vector<KernelVariant> ways_of(const KernelCall& call, const CodeContext& context) {
  if (const auto* group = std::get_if<GroupedProducts>(&call.what)) return ways_of_group(*group, context);
  const RowCall* row = own_row(call);
  const CudaKernel* kernel = row == nullptr ? nullptr : find_cuda_kernel(row->row);
  return kernel == nullptr
             ? std::vector<KernelVariant>()
             : estimated_ways(*kernel, call_problem(call, context), call, context.target, context.ranges);
}

}  // namespace aicf
