#include "select/target.h"

#include "kernels/kernel.h"
#include "select/op_problem.h"
#include "select/tile_mapping.h"

namespace aicf {

bool Target::claims(const Graph& graph, const Node& node) const {
  const OpInfo& info = op_info(node.op);
  if (info.has(kView) || node.op == Op::concat || node.op == Op::fused) return true;
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
