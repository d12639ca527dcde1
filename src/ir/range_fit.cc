#include "ir/range_fit.h"

#include <algorithm>
#include <optional>

#include "base/comma_list.h"
#include "base/error.h"
#include "base/option_text.h"

namespace aicf {
namespace {

constexpr uint64_t kPoints = 24;  // besides the corners

// All low, all high, then spread over the ranges, differently for each size, none below `least`.
SymbolValues point(const std::map<std::string, int>& names, const SymbolRanges& ranges, uint64_t index,
                   int64_t least) {
  SymbolValues values;
  uint64_t state = index;
  for (const auto& [name, count] : names) {
    Interval range = ranges.find(name)->second;
    range.lo = std::min(std::max(range.lo, least), range.hi);
    const auto span = static_cast<uint64_t>(range.hi - range.lo) + 1;
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth, MMIX
    const uint64_t offset = index == 0 ? 0 : index == 1 ? span - 1 : (state >> 33) % span;
    values[name] = range.lo + static_cast<int64_t>(offset);
  }
  return values;
}

// Null where it divides by nothing.
std::optional<int64_t> value_of(const Dim& dim, const SymbolValues& at) {
  try {
    return evaluate(dim, at);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

enum class Relation : uint8_t { kAtMost, kEqual };

bool holds(int64_t a, Relation relation, int64_t b) { return relation == Relation::kEqual ? a == b : a <= b; }

// The relation must hold at every size from `least` on; a size of nothing is mostly left to binding.
void require(const Node& node, const SymbolRanges& ranges, const Dim& left, Relation relation,
             const Dim& right, int64_t least = 1) {
  std::map<std::string, int> names;
  left.collect_symbols(names);
  right.collect_symbols(names);
  for (uint64_t i = 0; i < (names.empty() ? 1 : kPoints + 2); ++i) {
    const SymbolValues at = point(names, ranges, i, least);
    const auto a = value_of(left, at), b = value_of(right, at);
    if (!a || !b || holds(*a, relation, *b)) continue;
    throw UserError(ErrorCode::kU_bad_shape, "an op does not fit every size of the declared ranges")
        .with_op(std::string(op_info(node.op).name) + (node.origin.empty() ? "" : " (" + node.origin + ")"))
        .with_value(
            comma_list(at, [](const auto& size) { return size.first + "=" + std::to_string(size.second); }))
        .with_expected(left.to_string() + (relation == Relation::kEqual ? " = " : " <= ") + right.to_string())
        .with_actual(std::to_string(*a) + " and " + std::to_string(*b))
        .with_remedy("narrow the ranges, or say how the sizes hang together: " +
                     dims_text({{"NAME", "2*HALF"}, {"HALF", "8..16"}}));
  }
}

void check_slice(const Graph& graph, const Node& node, const SymbolRanges& ranges) {
  const Shape &shape = graph.shape(node.operands[0]), &starts = node.attrs.get_dims("starts"),
              &limits = node.attrs.get_dims("limits");
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (!(limits[axis] == shape[axis])) require(node, ranges, limits[axis], Relation::kAtMost, shape[axis]);
    if (starts[axis] == Dim(0)) continue;
    require(node, ranges, Dim(0), Relation::kAtMost, starts[axis]);
    require(node, ranges, starts[axis], Relation::kAtMost, limits[axis]);
  }
}

// At least one window fits; one that hangs over the end, as ceil_mode allows, may be the only one.
void check_windows(const Graph& graph, const Node& node, const SymbolRanges& ranges) {
  const bool is_conv = node.op == Op::conv;
  const Shape& x = graph.shape(node.operands[0]);
  const Ints &strides = node.attrs.get_ints("strides"), &pads = node.attrs.get_ints("pads"),
             &dilations = node.attrs.get_ints("dilations");
  const size_t spatial = x.size() - 2;
  for (size_t i = 0; i < spatial; ++i) {
    const Dim kernel = is_conv ? graph.shape(node.operands[1])[2 + i] : Dim(node.attrs.get_ints("kernel")[i]);
    const bool hangs_over = !is_conv && node.attrs.get_bool("ceil_mode");
    const Dim extent = Dim(dilations[i]) * (kernel - Dim(1)) + Dim(1),
              reach = x[2 + i] + Dim(pads[i] + pads[spatial + i] + (hangs_over ? strides[i] - 1 : 0));
    if (extent.is_constant() && reach.is_constant()) continue;  // the shape rule has judged them
    require(node, ranges, extent, Relation::kAtMost, reach);
  }
}

// Where padding is negative, or cuts a transposed convolution, something is left.
void check_cut(const Graph& graph, const Node& node, const SymbolRanges& ranges) {
  for (const Dim& size : graph.shape(node.results[0]))
    if (!size.is_constant()) require(node, ranges, Dim(0), Relation::kAtMost, size);
}

// What is picked must be there, also where there is nothing: the kernels of a GPU do not look.
void check_picks(const Graph& graph, const Node& node, const SymbolRanges& ranges) {
  const Shape& x = graph.shape(node.operands[0]);
  if (node.op == Op::top_k) {
    const Shape& kept = graph.shape(node.results[0]);
    for (size_t axis = 0; axis < x.size(); ++axis)
      if (!(kept[axis] == x[axis])) require(node, ranges, kept[axis], Relation::kAtMost, x[axis], 0);
  } else {
    const Dim& size = x[static_cast<size_t>(node.attrs.get_int("axis"))];
    if (!size.is_constant()) require(node, ranges, Dim(1), Relation::kAtMost, size, 0);
  }
}

// Off the axis, indices address the rows of x that they have themselves.
void check_element_indices(const Graph& graph, const Node& node, const SymbolRanges& ranges) {
  const Shape &x = graph.shape(node.operands[0]), &used = graph.shape(node.operands[1]);
  const auto picked = static_cast<size_t>(node.attrs.get_int("axis"));
  for (size_t axis = 0; axis < x.size(); ++axis)
    if (axis != picked && !(used[axis] == x[axis]))
      require(node, ranges, used[axis], Relation::kAtMost, x[axis], 0);
}

void check_reshape(const Graph& graph, const Node& node, const SymbolRanges& ranges) {
  const Dim from = element_count(graph.shape(node.operands[0])),
            to = element_count(graph.shape(node.results[0]));
  if (!(from == to)) require(node, ranges, to, Relation::kEqual, from);
}

// The axes of `node` that are cut into as many groups as it says.
void check_groups(const Graph& graph, const Node& node, const SymbolRanges& ranges) {
  const Dim groups(node.attrs.get_int("groups"));
  const auto divides = [&](size_t operand, size_t axis) {
    const Dim& size = graph.shape(node.operands[operand])[axis];
    if (!size.is_constant()) require(node, ranges, groups * floordiv(size, groups), Relation::kEqual, size);
  };
  if (node.op == Op::conv)
    divides(1, 0);
  else
    divides(0, 1);
  if (node.op == Op::conv_weight_gradient) divides(1, 1);
}

void check(const Graph& graph, const SymbolRanges& ranges) {
  for (const Node& node : graph.nodes()) {
    for (const Graph& body : node.bodies) check(body, ranges);
    if (node.op == Op::slice) check_slice(graph, node, ranges);
    if (node.op == Op::conv || node.op == Op::max_pool || node.op == Op::max_pool_indices ||
        node.op == Op::avg_pool)
      check_windows(graph, node, ranges);
    if (node.op == Op::top_k || node.op == Op::argmax || node.op == Op::argmin)
      check_picks(graph, node, ranges);
    if (node.op == Op::gather_elements || node.op == Op::scatter_elements)
      check_element_indices(graph, node, ranges);
    if (node.op == Op::conv_transpose || node.op == Op::pad) check_cut(graph, node, ranges);
    if (node.op == Op::reshape) check_reshape(graph, node, ranges);
    if (node.op == Op::group_norm || node.op == Op::conv || node.op == Op::conv_transpose ||
        node.op == Op::conv_weight_gradient)
      check_groups(graph, node, ranges);
  }
}

}  // namespace

void check_range_fit(const Program& program) {
  for (const Graph& entry : program.entries) check(entry, program.sizes);
}

}  // namespace aicf
