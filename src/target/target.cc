#include "target/target.h"

#include <array>
#include <string_view>

#include "base/comma_list.h"
#include "base/error.h"
#include "kernels/common/cuda_kernel.h"
#include "target/op_problem.h"
#include "target/tile_mapping.h"

namespace aicf {

namespace {

struct CudaTarget {
  std::string_view name, code;
  int arch;
  TargetFacts facts;
};

// A100, A10, L40S, H100 (measured), A100.
constexpr std::array<CudaTarget, 5> kCudaTargets = {
    {{"sm_80", "sm_80", 80, {108, 1.5e6, 2.5e8, 1.8e7, 1.0}},
     {"sm_86", "sm_86", 86, {72, 0.5e6, 1.0e8, 2.0e7, 1.0}},
     {"sm_89", "sm_89", 89, {142, 0.8e6, 3.0e8, 6.0e7, 1.0}},
     {"sm_90", "sm_90a", 90, {132, 3.0e6, 7.0e8, 5.0e7, 0.65}},
     {"compute_80", "compute_80", 80, {108, 1.5e6, 2.5e8, 1.8e7, 1.0}}}};
constexpr TargetFacts kCpuFacts = {0, 2e4, 1e5, 1e5, 0.2};

}  // namespace

std::vector<std::string> Target::names() {
  std::vector<std::string> names = {"cpu"};
  for (const CudaTarget& target : kCudaTargets) names.emplace_back(target.name);
  return names;
}

Target Target::from_name(const std::string& name) {
  if (name == "cpu") return {};
  for (const CudaTarget& target : kCudaTargets)
    if (target.name == name) return {.name = name, .arch = target.arch};
  throw UserError(ErrorCode::kU_unsupported_target, "this target is unknown")
      .with_value(name)
      .with_expected(comma_list(names()));
}

std::string Target::code_target() const {
  for (const CudaTarget& target : kCudaTargets)
    if (target.name == name) return std::string(target.code);
  AICF_CHECK(false, "the CPU has no compiled code");
}

const TargetFacts& Target::facts() const {
  for (const CudaTarget& target : kCudaTargets)
    if (target.name == name) return target.facts;
  return kCpuFacts;
}

std::vector<const KernelRow*> Target::candidates(const Problem& problem) const {
  std::vector<const KernelRow*> rows;
  if (is_cuda()) {
    for (const CudaKernel* row : cuda_candidates(problem, arch)) rows.push_back(row);
  } else {
    for (const Kernel* row : aicf::candidates(problem)) rows.push_back(row);
  }
  return rows;
}

bool Target::claims(const Graph& graph, const Node& node) const {
  const OpInfo& info = op_info(node.op);
  if (info.has(kView) || node.op == Op::concat || node.op == Op::fused) return true;
  if (node.op == Op::custom) return !is_cuda() || !node.attrs.get_str("cuda").empty();
  if (tile_claims(graph, node)) return true;
  return !candidates(problem_of(graph, node)).empty();
}

bool Target::fuses(const Graph& graph, const Node& node) const { return tile_claims(graph, node); }

bool Target::takes_epilogue(const Graph& graph, const Node& node) const {
  Problem problem = problem_of(graph, node);
  problem.has_program = true;
  return !candidates(problem).empty();
}

}  // namespace aicf
