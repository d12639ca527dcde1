// From an op to the question the kernel table answers: operands, and the kernel's numeric parameters taken
// from the op's attributes by the names the kernel row lists. The one place that knows how attributes become
// kernel parameters.
#pragma once

#include "ir/graph.h"
#include "kernels/common/kernel.h"

namespace aicf {

// Operands and results of the node as problem tensors (absent optional operands are left out), and the
// parameters if all rows of the op's family list the same ones.
Problem problem_of(const Graph& graph, const Node& node);
// Values for the row's parameter lists.
void fill_params(const Graph& graph, const Node& node, const KernelRow& row, std::vector<Dim>& params,
                 std::vector<double>& fparams);

}  // namespace aicf
