// Reverse-mode differentiation, graph → graph. Takes a graph with a scalar float value, the loss, and appends
// to that graph the nodes that compute its gradients; works before any pass, on graphs with composites,
// regions and symbolic sizes. Only values that depend on a wanted one and on which the loss depends get a
// gradient. How each op is differentiated stands in derivatives.def.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace aicf {

struct GradientOptions {
  // What d loss starts from: a scalar of loss's dtype (a loss scale). kNoValue: 1.
  ValueId seed = kNoValue;
  // A wanted value on which the loss does not depend gets zeros instead of unused_param.
  bool allow_unused = false;
};

// d loss / d wrt[i], shaped and typed as wrt[i]; wrt may name inputs, params, states, constants and temps,
// the loss itself too. Where a value has several uses their gradients are added in the order of the graph's
// nodes reversed, so the result is a function of the graph alone. A gradient that is a new value carries the
// name "d_<name>" of the value it belongs to. The gradient of stop_gradient, of rounding functions and of
// casts to integers is zero; where max, min or a pool meets equal elements, derivatives.def says who gets it.
// Errors, all UserError: loss_not_scalar; integer_gradient where a wanted value is not of a float dtype;
// unused_param; not_differentiable where a way from a wanted value to the loss leads through an op without
// derivative, naming the op and its value.
std::vector<ValueId> add_gradients(Graph& graph, ValueId loss, const std::vector<ValueId>& wrt,
                                   const GradientOptions& options = {});

}  // namespace aicf
