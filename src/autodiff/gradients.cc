#include "autodiff/gradients.h"

#include "autodiff/join_parts.h"
#include "autodiff/vjp.h"
#include "base/comma_list.h"
#include "base/error.h"
#include "base/option_text.h"
#include "ir/decompose.h"

namespace aicf {
namespace {

std::string describe(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  std::string text(role_name(value.role));
  if (!value.name.empty()) text += " '" + value.name + "'";
  return text + " " + to_string(value.type);
}

[[noreturn]] void fail_node(const Graph& graph, const Node& node) {
  const Derivative& row = derivative_of(node.op);
  const std::string name(op_info(node.op).name);
  throw UserError(ErrorCode::kU_not_differentiable, name + " has no derivative: " + std::string(row.text))
      .with_op(name + (node.origin.empty() ? "" : " (" + node.origin + ")"))
      .with_value(describe(graph, node.results[0]))
      .with_expected("a differentiable op between the parameters and the loss")
      .with_actual(name)
      .with_remedy("put stop_gradient on its operands, or write the computation with other ops");
}

// Reverse mode over a graph that grows while it is walked: the gradients of values by id, and which values
// depend on a wanted one ("varied").
class Sweep {
 public:
  explicit Sweep(Graph& graph) : graph_(graph) {}

  void vary(ValueId id) { at(varied_, id) = 1; }
  bool varies(ValueId id) const {
    return id != kNoValue && static_cast<size_t>(id) < varied_.size() && varied_[static_cast<size_t>(id)];
  }
  ValueId gradient(ValueId id) { return at(gradients_, id) - 1; }

  // Marks the results of the nodes first … last-1 that depend on a varied value.
  void mark(NodeId first, NodeId last);
  // The same nodes in reverse: gradients of results become gradients of operands.
  void reverse(NodeId first, NodeId last);
  void accumulate(ValueId id, ValueId gradient, const std::string& origin);
  // Calls the gradient of a value "d_<name>", unless it already is something with a name.
  void name(ValueId id);

 private:
  template <typename T>
  static T& at(std::vector<T>& list, ValueId id) {
    if (list.size() <= static_cast<size_t>(id)) list.resize(static_cast<size_t>(id) + 1);
    return list[static_cast<size_t>(id)];
  }
  NodeId end() const { return static_cast<NodeId>(graph_.nodes().size()); }
  void reverse_node(const Node& node);
  void apply_rule(const Node& node, const Derivative& row, const Values& dys);
  void expand(const Node& node, const Values& dys);

  Graph& graph_;
  std::vector<char> varied_;
  std::vector<ValueId> gradients_;  // id + 1; 0: none yet
};

void Sweep::mark(NodeId first, NodeId last) {
  for (NodeId id = first; id < last; ++id) {
    const Node& node = graph_.node(id);
    if (derivative_of(node.op).kind == DerivativeKind::kZero) continue;
    bool varied = false;
    for (ValueId operand : node.operands) varied |= varies(operand);
    if (!varied) continue;
    for (ValueId result : node.results)
      if (is_float(graph_.dtype(result))) vary(result);
  }
}

void Sweep::accumulate(ValueId id, ValueId gradient, const std::string& origin) {
  AICF_CHECK(
      graph_.type(id) == graph_.type(gradient),
      "a gradient has its value's type: " + describe(graph_, id) + " and " + describe(graph_, gradient));
  ValueId& slot = at(gradients_, id);
  if (slot == 0) {
    slot = 1 + gradient;
    return;
  }
  const ValueId joined = join_parts(graph_, slot - 1, gradient, origin);
  slot = 1 + (joined != kNoValue ? joined : graph_.add(Op::add, {slot - 1, gradient}, {}, origin));
}

void Sweep::name(ValueId id) {
  const std::string& known = graph_.value(id).name;
  const ValueId found = gradient(id);
  if (known.empty() || found == kNoValue) return;
  const Value& value = graph_.value(found);
  if (value.role == Role::kTemp && value.name.empty()) graph_.set_name(found, "d_" + known);
}

void Sweep::apply_rule(const Node& node, const Derivative& row, const Values& dys) {
  std::vector<bool> wanted;
  for (ValueId operand : node.operands) wanted.push_back(varies(operand));
  Emitter emitter(graph_, node.origin);
  const Values gradients = row.rule({emitter, node, dys, wanted});
  if (gradients == kDifferentiateDecomposition) return expand(node, dys);
  AICF_CHECK(gradients.size() == node.operands.size(), "a rule gives one gradient per operand");
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i] == kNoValue || !wanted[i]) continue;
    const Shape shape = graph_.shape(node.operands[i]);
    const ValueId summed = sum_to(emitter, gradients[i], shape);
    accumulate(node.operands[i], emitter.cast(summed, graph_.dtype(node.operands[i])), node.origin);
  }
}

// The nodes that the composite or region stands for are appended and differentiated in its place; where a
// target decomposes the node too, the common ones become one again.
void Sweep::expand(const Node& node, const Values& dys) {
  const NodeId first = end();
  const Values results = node.bodies.empty() ? decompose(graph_, node, node.operands)
                                             : inline_body(graph_, node.bodies[0], node.operands);
  const NodeId last = end();
  mark(first, last);
  for (size_t i = 0; i < results.size(); ++i)
    if (dys[i] != kNoValue && varies(results[i])) accumulate(results[i], dys[i], node.origin);
  reverse(first, last);
}

void Sweep::reverse_node(const Node& node) {
  bool varied = false, reached = false;
  Values dys;
  for (ValueId operand : node.operands) varied |= varies(operand);
  for (ValueId result : node.results) {
    name(result);
    dys.push_back(gradient(result));
    reached |= dys.back() != kNoValue;
  }
  if (!varied || !reached) return;
  const Derivative& row = derivative_of(node.op);
  switch (row.kind) {
    case DerivativeKind::kRule:
      return apply_rule(node, row, dys);
    case DerivativeKind::kDecomposed:
      return expand(node, dys);
    case DerivativeKind::kZero:
      return;
    case DerivativeKind::kNone:
      fail_node(graph_, node);
  }
}

void Sweep::reverse(NodeId first, NodeId last) {
  for (NodeId id = last; id-- > first;) {
    const Node node = graph_.node(id);  // a copy: rules append to the graph
    reverse_node(node);
  }
}

void check_loss(const Graph& graph, ValueId loss, ValueId seed) {
  const TensorType& type = graph.type(loss);
  if (!is_float(type.dtype) || !type.shape.empty())
    throw UserError(ErrorCode::kU_loss_not_scalar, "the loss is not a scalar of a float dtype")
        .with_value(describe(graph, loss))
        .with_expected("a float of shape []")
        .with_actual(to_string(type))
        .with_remedy("reduce it, for instance with reduce_mean over all axes");
  if (seed != kNoValue && !(graph.type(seed) == type))
    throw UserError(ErrorCode::kU_misuse, "the seed of the gradients has another type than the loss")
        .with_value(describe(graph, seed))
        .with_expected(to_string(type))
        .with_actual(to_string(graph.type(seed)));
}

void check_wanted(const Graph& graph, ValueId id) {
  if (is_float(graph.dtype(id))) return;
  throw UserError(ErrorCode::kU_integer_gradient, "a gradient exists for floats only")
      .with_value(describe(graph, id))
      .with_expected("a float dtype")
      .with_actual(std::string(dtype_name(graph.dtype(id))))
      .with_remedy("leave this value out of those that are trained");
}

ValueId zero_gradient(Graph& graph, ValueId id) {
  static const std::string kNoOrigin;
  Emitter emitter(graph, kNoOrigin);
  const TensorType type = graph.type(id);
  return filled(emitter, type.dtype, type.shape);
}

// All of them at once: each would be an error of its own after the one before was mended.
void check_all_used(const Graph& graph, const std::vector<ValueId>& unused) {
  if (unused.empty()) return;
  std::vector<std::string> params;
  for (ValueId id : unused)
    if (graph.value(id).role == Role::kParam) params.push_back(graph.value(id).name);
  throw UserError(ErrorCode::kU_unused_param, "the loss does not depend on this value")
      .with_value(comma_list(unused, [&](ValueId id) { return describe(graph, id); }))
      .with_expected("a value that takes part in the loss through differentiable ops")
      .with_actual("a gradient that is always zero")
      .with_remedy(params.empty() ? "do not ask for this gradient"
                                  : "remove it from the model, or put it into a group that is not trained: " +
                                        untrained_text(params));
}

}  // namespace

std::vector<ValueId> add_gradients(Graph& graph, ValueId loss, const std::vector<ValueId>& wrt,
                                   const GradientOptions& options) {
  check_loss(graph, loss, options.seed);
  for (ValueId id : wrt) check_wanted(graph, id);
  const NodeId last = static_cast<NodeId>(graph.nodes().size());
  Sweep sweep(graph);
  for (ValueId id : wrt) sweep.vary(id);
  sweep.mark(0, last);
  if (sweep.varies(loss)) {
    const bool given = options.seed != kNoValue;
    sweep.accumulate(loss, given ? options.seed : graph.add_constant(Array::scalar_f64(graph.dtype(loss), 1)),
                     "");
    sweep.reverse(0, last);
  }
  std::vector<ValueId> gradients, unused;
  for (ValueId id : wrt) {
    sweep.name(id);
    const ValueId found = sweep.gradient(id);
    if (found == kNoValue && !options.allow_unused) unused.push_back(id);
    gradients.push_back(found != kNoValue ? found : zero_gradient(graph, id));
  }
  check_all_used(graph, unused);
  return gradients;
}

}  // namespace aicf
