// The CUDA text of one call, asked from its row of the kernel table.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "kernels/common/cuda_kernel.h"
#include "select/call_program.h"
#include "target/target.h"

namespace aicf {

// What the text of a call depends on beside the call.
struct CodeContext {
  const std::vector<TileProgram>& programs;  // of ProgramUse::index
  const std::vector<bool>& constant;         // see CallGraph; empty: nothing is
  const Target& target;
  const SymbolRanges& ranges;
  // Roots that launches write which can still be running when the call's first launch begins; none: not
  // known.
  std::optional<std::set<ValueId>> running = std::nullopt;
  const Graph* graph = nullptr;  // of the values that roots are; null: what constants are is not known
};

// As little as is known of any call of the graph.
inline CodeContext context_of(const CallGraph& calls, const Target& target) {
  return {calls.programs, calls.constant, target, calls.ranges, std::nullopt, &calls.graph};
}

// What the call's row of the kernel table is asked. Of several calls that share a launch, the windows alone.
// `program`: in place of that which the row names.
CudaProblem call_problem(const KernelCall& call, const CodeContext& context,
                         const TileProgram* program = nullptr);

CudaCode call_code(const KernelCall& call, const CodeContext& context, CodeForm form);

// Whether a call with this code can be a member of a bundle; and the blocks of one cluster, or 1, that a
// bundle of several stages runs in, if its widest stage has so many.
bool joins_bundle(const CudaCode& code);
int bundle_blocks(int64_t widest_stage, const Target& target);

// Whether join_sums has given a member of a group the sums of its x, as its last result; and its problem
// without them.
bool has_sums(const KernelCall& member, const CodeContext& context);
CudaProblem product_of(const KernelCall& member, const CodeContext& context);
// Whether the arguments of a group's launch are as few as a kernel takes.
bool arguments_fit(const KernelCall& group);

// The ways in which a call's row can run it, or a group's row its products together, best first.
std::vector<KernelVariant> ways_of(const KernelCall& call, const CodeContext& context);

}  // namespace aicf
