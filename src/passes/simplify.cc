#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "passes/pass.h"
#include "passes/pattern.h"

namespace aicf {
namespace {

// A rule looks at a node whose operands are values of the graph being built, and returns an equal value or
// nothing. It may add nodes.
using Rule = std::optional<ValueId> (*)(Graph& graph, const Node& node, const TensorType& result);

// Whether every element of the constant, or of the constant that the value repeats, is this number.
bool is_everywhere(const Graph& graph, ValueId id, double number) {
  const Node* repeats = producer_with_op(graph, id, Op::broadcast_to);
  const Value& value = graph.value(repeats == nullptr ? id : repeats->operands[0]);
  if (value.role != Role::kConstant || value.constant.count() == 0) return false;
  for (int64_t i = 0; i < value.constant.count(); ++i)
    if (value.constant.get_f64(i) != number) return false;
  return true;
}

// x * 1 = x, x / 1 = x, x - 0 = x (exact for every float, -0 and NaN included; x + 0 is not, for x = -0).
std::optional<ValueId> drop_identity_operand(Graph& graph, const Node& node, const TensorType& result) {
  const auto keeps = [&](size_t i) { return graph.type(node.operands[i]) == result; };
  if (node.op == Op::mul && keeps(1) && is_everywhere(graph, node.operands[0], 1)) return node.operands[1];
  if ((node.op == Op::mul || node.op == Op::div) && keeps(0) && is_everywhere(graph, node.operands[1], 1))
    return node.operands[0];
  if (node.op == Op::sub && keeps(0) && is_everywhere(graph, node.operands[1], 0)) return node.operands[0];
  return std::nullopt;
}

// A view, or a cast, to the type it already has.
std::optional<ValueId> drop_no_op(Graph& graph, const Node& node, const TensorType& result) {
  const bool candidate = node.op == Op::reshape || node.op == Op::broadcast_to || node.op == Op::cast;
  if (candidate && graph.type(node.operands[0]) == result) return node.operands[0];
  if (node.op == Op::transpose) {
    Ints identity(node.attrs.get_ints("perm").size());
    std::iota(identity.begin(), identity.end(), 0);
    if (node.attrs.get_ints("perm") == identity) return node.operands[0];
  }
  if (node.op == Op::slice && graph.type(node.operands[0]) == result &&
      node.attrs.get_ints("steps") == Ints(result.shape.size(), 1))
    return node.operands[0];
  return std::nullopt;
}

// reshape(reshape(x)) = reshape(x)
std::optional<ValueId> merge_reshapes(Graph& graph, const Node& node, const TensorType&) {
  if (node.op != Op::reshape) return std::nullopt;
  const Node* inner = producer_with_op(graph, node.operands[0], Op::reshape);
  if (inner == nullptr) return std::nullopt;
  return graph.add(Op::reshape, {inner->operands[0]}, node.attrs, node.origin);
}

// transpose(transpose(x, p), q) = transpose(x, p[q])
std::optional<ValueId> merge_transposes(Graph& graph, const Node& node, const TensorType&) {
  if (node.op != Op::transpose) return std::nullopt;
  const Node* inner = producer_with_op(graph, node.operands[0], Op::transpose);
  if (inner == nullptr) return std::nullopt;
  const Ints& p = inner->attrs.get_ints("perm");
  Ints composed;
  for (int64_t axis : node.attrs.get_ints("perm")) composed.push_back(p[static_cast<size_t>(axis)]);
  return graph.add(Op::transpose, {inner->operands[0]}, {{"perm", composed}}, node.origin);
}

// neg(neg(x)) = x, logical_not(logical_not(x)) = x, bit_not(bit_not(x)) = x
std::optional<ValueId> drop_involution(Graph& graph, const Node& node, const TensorType&) {
  if (node.op != Op::neg && node.op != Op::logical_not && node.op != Op::bit_not) return std::nullopt;
  const Node* inner = producer_with_op(graph, node.operands[0], node.op);
  return inner == nullptr ? std::nullopt : std::optional(inner->operands[0]);
}

// matmul(transpose(x), y) with only the last two axes swapped takes the operand as it is stored.
std::optional<ValueId> fold_transpose_into_matmul(Graph& graph, const Node& node, const TensorType&) {
  if (node.op != Op::matmul) return std::nullopt;
  std::vector<ValueId> operands = node.operands;
  Attrs attrs = node.attrs;
  bool changed = false;
  for (size_t i = 0; i < 2; ++i) {
    const Node* inner = producer_with_op(graph, operands[i], Op::transpose);
    if (inner == nullptr) continue;
    const Ints& perm = inner->attrs.get_ints("perm");
    Ints swapped(perm.size());
    std::iota(swapped.begin(), swapped.end(), 0);
    std::swap(swapped[swapped.size() - 1], swapped[swapped.size() - 2]);
    if (perm != swapped) continue;
    const char* name = i == 0 ? "transpose_x" : "transpose_y";
    attrs.set(name, !attrs.get_bool(name));
    operands[i] = inner->operands[0];
    changed = true;
  }
  if (!changed) return std::nullopt;
  return graph.add(Op::matmul, operands, attrs, node.origin);
}

// Every value of `narrow` is one of `wide`, so that widening and rounding back changes nothing.
bool holds(DType wide, DType narrow) {
  if (!is_float(wide) || !is_float(narrow)) return false;
  return wide == DType::f64 || (wide == DType::f32 && dtype_bytes(narrow) == 2);
}

// cast(view(x)) = view(cast(x)) to a smaller dtype, so that what makes x stores the smaller one; and
// cast(cast(x)) = x if x had that dtype and the one between holds it.
std::optional<ValueId> narrow_before_views(Graph& graph, const Node& node, const TensorType& result) {
  if (node.op != Op::cast || !holds(graph.dtype(node.operands[0]), result.dtype)) return std::nullopt;
  std::vector<Node> views;  // from the cast to what makes x
  ValueId x = node.operands[0];
  const Node* inner = graph.producer(x);
  for (; inner != nullptr && (inner->op == Op::reshape || inner->op == Op::transpose);
       inner = graph.producer(x)) {
    views.push_back(*inner);
    x = inner->operands[0];
  }
  const bool returns =
      inner != nullptr && inner->op == Op::cast && graph.dtype(inner->operands[0]) == result.dtype;
  if (!returns && views.empty()) return std::nullopt;
  x = returns ? inner->operands[0] : graph.add(Op::cast, {x}, node.attrs, node.origin);
  for (size_t i = views.size(); i-- > 0;) x = graph.add(views[i].op, {x}, views[i].attrs, views[i].origin);
  return x;
}

// gather(cast(x), i) = cast(gather(x, i)) where the cast widens: fewer elements are cast, and x is read as it
// is stored.
std::optional<ValueId> gather_before_cast(Graph& graph, const Node& node, const TensorType& result) {
  if (node.op != Op::gather && node.op != Op::gather_elements) return std::nullopt;
  const Node* cast = producer_with_op(graph, node.operands[0], Op::cast);
  if (cast == nullptr || dtype_bytes(graph.dtype(cast->operands[0])) >= dtype_bytes(result.dtype))
    return std::nullopt;
  const ValueId picked = graph.add(node.op, {cast->operands[0], node.operands[1]}, node.attrs, node.origin);
  return graph.add(Op::cast, {picked}, {{"dtype", result.dtype}}, node.origin);
}

// Which operand of a pointwise node is as long along the axis as its result; none unless all others have one
// element there, one of them a value for each row.
std::optional<size_t> operand_along(const Graph& graph, const Node& node, size_t axis) {
  const Shape& shape = graph.shape(node.results[0]);
  std::optional<size_t> whole;
  bool by_rows = false;
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const Shape& own = graph.shape(node.operands[i]);
    const size_t missing = shape.size() - own.size();
    if (axis < missing || own[axis - missing] == Dim(1)) {
      by_rows = by_rows || !(element_count(own) == Dim(1));
    } else if (whole || !(own == shape)) {
      return std::nullopt;
    } else {
      whole = i;
    }
  }
  return by_rows ? whole : std::nullopt;
}

// gather_elements(f(x, row), i) = f(gather_elements(x, i), row), as of a softmax's logarithm: x is stored for
// the reduction that made the rows' values, so that nothing else of its size need be.
std::optional<ValueId> gather_before_rows(Graph& graph, const Node& node, const TensorType&) {
  if (node.op != Op::gather_elements) return std::nullopt;
  const auto axis = static_cast<size_t>(node.attrs.get_int("axis"));
  std::vector<const Node*> chain;
  ValueId x = node.operands[0];
  Shape picked = graph.shape(x);
  picked[axis] = graph.shape(node.operands[1])[axis];
  if (!(picked == graph.shape(node.operands[1])) || graph.shape(x)[axis] == Dim(1)) return std::nullopt;
  std::vector<size_t> along;
  for (const Node* made = graph.producer(x); made != nullptr && op_info(made->op).has(kPointwise);
       made = graph.producer(x)) {
    const auto whole = operand_along(graph, *made, axis);
    if (!whole) break;
    chain.push_back(made);
    along.push_back(*whole);
    x = made->operands[*whole];
  }
  if (chain.empty()) return std::nullopt;
  std::vector<Node> rows;  // nodes move while others are added
  for (const Node* made : chain) rows.push_back(*made);
  ValueId value = graph.add(node.op, {x, node.operands[1]}, node.attrs, node.origin);
  for (size_t i = rows.size(); i-- > 0;) {
    rows[i].operands[along[i]] = value;
    value = graph.add(rows[i].op, rows[i].operands, rows[i].attrs, node.origin);
  }
  return value;
}

bool is_inside(const Dim& start, const Dim& limit, const Dim& begin, const Dim& size) {
  const auto before = (start - begin).constant(), behind = (begin + size - limit).constant();
  return before && behind && *before >= 0 && *behind >= 0;
}

// The slice of a concat that lies in one part, or of a pad that lies in what was padded, as a slice of that.
std::optional<ValueId> slice_of_part(Graph& graph, ValueId joined, const Node& slice) {
  const Node* made = graph.producer(joined);
  if (made == nullptr || (made->op != Op::concat && made->op != Op::pad)) return std::nullopt;
  Shape starts = slice.attrs.get_dims("starts"), limits = slice.attrs.get_dims("limits");
  const Ints steps = slice.attrs.get_ints("steps");
  ValueId part = made->operands[0];
  Shape begin(starts.size(), Dim(0));
  if (made->op == Op::pad) {
    begin = made->attrs.get_dims("low");
    for (size_t i = 0; i < starts.size(); ++i)
      if (!is_inside(starts[i], limits[i], begin[i], graph.shape(part)[i])) return std::nullopt;
  } else {
    const auto axis = static_cast<size_t>(made->attrs.get_int("axis"));
    const auto found = std::find_if(made->operands.begin(), made->operands.end(), [&](ValueId operand) {
      const Dim& size = graph.shape(operand)[axis];
      const bool inside = is_inside(starts[axis], limits[axis], begin[axis], size);
      if (!inside) begin[axis] = begin[axis] + size;
      return inside;
    });
    if (found == made->operands.end()) return std::nullopt;
    part = *found;
  }
  for (size_t i = 0; i < starts.size(); ++i)
    starts[i] = starts[i] - begin[i], limits[i] = limits[i] - begin[i];
  const auto all = [](const auto& list, const auto& value) {
    return std::all_of(list.begin(), list.end(), [&](const auto& item) { return item == value; });
  };
  if (limits == graph.shape(part) && all(starts, Dim(0)) && all(steps, 1)) return part;
  return graph.add(Op::slice, {part}, {{"starts", starts}, {"limits", limits}, {"steps", steps}},
                   slice.origin);
}

bool is_pointwise(const Node& node) { return op_info(node.op).has(kPointwise) || node.op == Op::cast; }

// The operand of a pointwise node or a cast that varies; none if several do.
std::optional<ValueId> varying_operand(const Graph& graph, const Node& node) {
  if (!is_pointwise(node)) return std::nullopt;
  std::optional<ValueId> found;
  for (const ValueId operand : node.operands) {
    if (element_count(graph.shape(operand)) == Dim(1)) continue;
    if ((found && *found != operand) || !(graph.shape(operand) == graph.shape(node.results[0])))
      return std::nullopt;
    found = operand;
  }
  return found;
}

// slice(f(concat(a, b))) = f(a) where the slice is that of a, and alike of a pad: as gradients of them are.
std::optional<ValueId> slice_before_pointwise(Graph& graph, const Node& node, const TensorType&) {
  if (node.op != Op::slice) return std::nullopt;
  std::vector<Node> chain;  // nodes move while others are added
  std::vector<ValueId> varying;
  ValueId x = node.operands[0];
  for (const Node* made = graph.producer(x); made != nullptr; made = graph.producer(x)) {
    const auto operand = varying_operand(graph, *made);
    if (!operand) break;
    chain.push_back(*made);
    varying.push_back(*operand);
    x = *operand;
  }
  const auto part = slice_of_part(graph, x, node);
  if (!part) return std::nullopt;
  ValueId value = *part;
  for (size_t i = chain.size(); i-- > 0;) {
    std::replace(chain[i].operands.begin(), chain[i].operands.end(), varying[i], value);
    value = graph.add(chain[i].op, chain[i].operands, chain[i].attrs, chain[i].origin);
  }
  return value;
}

// What pointwise nodes make of transposes that `perm` undoes, and of values of one element.
struct TransposedTree {
  std::vector<Node> nodes;  // in topological order; copies, as nodes move while others are added
  std::map<ValueId, ValueId>
      in_order;                 // what a transposed value is the transpose of; itself until it is made
  size_t seen = 0, leaves = 0;  // pointwise nodes, transposes
};

// A leaf more is a read more where others read what the tree makes.
constexpr size_t kTransposedNodes = 16, kTransposedLeaves = 2;

bool find_transposed(const Graph& graph, ValueId id, const Ints& perm, TransposedTree& tree) {
  if (tree.in_order.contains(id) || element_count(graph.shape(id)) == Dim(1)) return true;
  const Node* node = graph.producer(id);
  if (node == nullptr) return false;
  if (node->op == Op::transpose) {
    const Ints& inner = node->attrs.get_ints("perm");
    for (size_t i = 0; i < perm.size(); ++i)
      if (inner[static_cast<size_t>(perm[i])] != static_cast<int64_t>(i)) return false;
    tree.in_order[id] = node->operands[0];
    return ++tree.leaves <= kTransposedLeaves;
  }
  if (!is_pointwise(*node) || ++tree.seen > kTransposedNodes) return false;
  for (const ValueId operand : node->operands) {
    const Shape& shape = graph.shape(operand);
    if (!(shape == graph.shape(id)) && !(element_count(shape) == Dim(1))) return false;
    if (!find_transposed(graph, operand, perm, tree)) return false;
  }
  tree.nodes.push_back(*node);
  tree.in_order[id] = id;
  return true;
}

// transpose(f(transpose(x))) = f(x), where the two transposes undo each other: as gradients of them are.
std::optional<ValueId> drop_transposes_around_pointwise(Graph& graph, const Node& node, const TensorType&) {
  if (node.op != Op::transpose) return std::nullopt;
  const Node* last = graph.producer(node.operands[0]);
  if (last == nullptr || !is_pointwise(*last)) return std::nullopt;
  TransposedTree tree;
  const bool found = find_transposed(graph, node.operands[0], node.attrs.get_ints("perm"), tree);
  if (!found || tree.leaves == 0) return std::nullopt;
  for (const Node& made : tree.nodes) {
    std::vector<ValueId> operands = made.operands;
    for (ValueId& operand : operands)
      if (const auto at = tree.in_order.find(operand); at != tree.in_order.end()) operand = at->second;
    tree.in_order[made.results[0]] = graph.add(made.op, operands, made.attrs, made.origin);
  }
  return tree.in_order[node.operands[0]];
}

// select(c, a, b) = a or b where the constant c is all true or all false.
std::optional<ValueId> drop_decided_select(Graph& graph, const Node& node, const TensorType& result) {
  if (node.op != Op::select || graph.value(node.operands[0]).role != Role::kConstant) return std::nullopt;
  const Array& keeps = graph.value(node.operands[0]).constant;
  if (keeps.count() == 0) return std::nullopt;
  const int64_t first = keeps.get_i64(0);
  for (int64_t i = 1; i < keeps.count(); ++i)
    if (keeps.get_i64(i) != first) return std::nullopt;
  const ValueId chosen = node.operands[first != 0 ? 1 : 2];
  if (graph.type(chosen) == result) return chosen;
  return graph.add(Op::broadcast_to, {chosen}, {{"shape", result.shape}}, node.origin);
}

// iota over several axes = iota over the one that it counts along, repeated by a view.
std::optional<ValueId> count_once(Graph& graph, const Node& node, const TensorType& result) {
  if (node.op != Op::iota) return std::nullopt;
  Shape line(result.shape.size(), Dim(1));
  const auto axis = static_cast<size_t>(node.attrs.get_int("axis"));
  line[axis] = result.shape[axis];
  if (line == result.shape) return std::nullopt;
  Attrs attrs = node.attrs;
  attrs.set("shape", line);
  const ValueId counted = graph.add(Op::iota, {}, attrs, node.origin);
  return graph.add(Op::broadcast_to, {counted}, {{"shape", result.shape}}, node.origin);
}

constexpr Rule kRules[] = {count_once,
                           drop_decided_select,
                           gather_before_cast,
                           gather_before_rows,
                           slice_before_pointwise,
                           drop_identity_operand,
                           drop_no_op,
                           merge_reshapes,
                           merge_transposes,
                           drop_transposes_around_pointwise,
                           drop_involution,
                           fold_transpose_into_matmul,
                           narrow_before_views};

std::optional<ValueId> apply_rules(Graph& graph, const Node& node, const TensorType& result) {
  for (Rule rule : kRules)
    if (auto value = rule(graph, node, result)) return value;
  return std::nullopt;
}

}  // namespace

// One walk in topological order suffices: a rule sees operands that are already simplified.
Graph simplify(const Graph& graph, const PassContext&) {
  GraphRewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    if (node.results.size() != 1 || !node.bodies.empty()) {
      rewriter.copy(node);
      continue;
    }
    Node mapped = node;
    mapped.operands = rewriter.values(node.operands);
    auto value = apply_rules(rewriter.graph(), mapped, graph.type(node.results[0]));
    // A rule's own result may match another: views collapse in chains.
    while (value && rewriter.graph().producer(*value) != nullptr) {
      const Node again = *rewriter.graph().producer(*value);
      const auto next = again.results.size() == 1
                            ? apply_rules(rewriter.graph(), again, rewriter.graph().type(*value))
                            : std::nullopt;
      if (!next || *next == *value) break;
      value = next;
    }
    if (value) {
      rewriter.map(node.results[0], *value);
    } else {
      rewriter.copy(node);
    }
  }
  return rewriter.finish();
}

}  // namespace aicf
