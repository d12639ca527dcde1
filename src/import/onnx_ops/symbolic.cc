// Shape arithmetic: small integer values whose contents are sizes stay symbolic, so that Shape → Gather →
// Concat → Reshape leaves no trace in the graph. A rule answers false where it cannot tell; the node is then
// converted as data.
#include <algorithm>

#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

using Dims = std::vector<Dim>;
using MaybeDim = std::optional<Dim>;

bool is_tracked(const TensorType& type) {
  const auto count = element_count(type.shape).constant();
  return count && *count <= kMaxSymbolicElements &&
         (type.dtype == DType::i64 || type.dtype == DType::i32 || type.dtype == DType::boolean);
}

// Decides a < b, a == b from the ranges of the symbols.
std::optional<bool> less(NodeContext& n, const Dim& a, const Dim& b) {
  const Interval difference = n.bounds_of(a - b);
  if (difference.hi < 0) return true;
  if (difference.lo >= 0) return false;
  return std::nullopt;
}
std::optional<bool> equal(NodeContext& n, const Dim& a, const Dim& b) {
  const Interval difference = n.bounds_of(a - b);
  if (difference.lo == 0 && difference.hi == 0) return true;
  if (difference.lo > 0 || difference.hi < 0) return false;
  return std::nullopt;
}
MaybeDim from_bool(std::optional<bool> value) {
  if (!value) return std::nullopt;
  return Dim(*value ? 1 : 0);
}

MaybeDim symbolic_divide(NodeContext& n, const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) {
    if (*b.constant() == 0 || *b.constant() == -1) return std::nullopt;
    return Dim(*a.constant() / *b.constant());
  }
  if (n.bounds_of(b).lo <= 0) return std::nullopt;
  if (auto exact = divide_exactly(a, b)) return exact;
  // Truncation equals flooring only for non-negative numbers.
  const Interval range = n.bounds_of(a);
  if (range.lo >= 0) return floordiv(a, b);
  if (range.hi <= 0) return Dim(0) - floordiv(Dim(0) - a, b);
  return floordiv(max(a, Dim(0)), b) - floordiv(max(Dim(0) - a, Dim(0)), b);
}
MaybeDim symbolic_modulo(NodeContext& n, const Dim& a, const Dim& b) {
  const Interval x = n.bounds_of(a), y = n.bounds_of(b);
  if (y.lo <= 0) return std::nullopt;
  if (x.lo < 0 && n.attr_int("fmod", 0) != 0) return std::nullopt;  // the remainder has the sign of a
  // One divisor below zero, as torch.roll by a negative number.
  if (x.hi < 0 && x.lo >= -y.lo) return a + b;
  return mod(a, b);
}

MaybeDim symbolic_binary(NodeContext& n, const Dim& a, const Dim& b) {
  const std::string& op = n.op_type;
  if (op == "Add") return a + b;
  if (op == "Sub") return a - b;
  if (op == "Mul") return a * b;
  if (op == "Div") return symbolic_divide(n, a, b);
  if (op == "Mod") return symbolic_modulo(n, a, b);
  if (op == "Max") return less(n, a, b).has_value() ? (*less(n, a, b) ? b : a) : max(a, b);
  if (op == "Min") return less(n, a, b).has_value() ? (*less(n, a, b) ? a : b) : min(a, b);
  if (op == "Equal") return from_bool(equal(n, a, b));
  if (op == "Less") return from_bool(less(n, a, b));
  if (op == "Greater") return from_bool(less(n, b, a));
  if (op == "And") return a * b;
  if (op == "Or")
    return a.is_constant() && b.is_constant() ? MaybeDim(Dim(a == Dim(1) || b == Dim(1))) : std::nullopt;
  const auto below = op == "LessOrEqual" ? less(n, b, a) : less(n, a, b);
  if (below) return from_bool(!*below);  // LessOrEqual, GreaterOrEqual
  return std::nullopt;
}

// Result shape of broadcasting values of rank <= 1; nullopt if a rank is higher or sizes differ.
std::optional<Shape> broadcast_small(NodeContext& n, size_t count) {
  int64_t size = 1;
  int rank = 0;
  for (size_t i = 0; i < count; ++i) {
    if (n.rank(i) > 1) return std::nullopt;
    if (n.rank(i) == 0) continue;
    rank = 1;
    const int64_t own = *n.shape(i)[0].constant();
    if (own != 1 && size != 1 && own != size) return std::nullopt;
    if (own != 1) size = own;
  }
  return rank == 0 ? Shape{} : Shape{Dim(size)};
}

const Dim& element(const Dims& values, size_t i) { return values[values.size() == 1 ? 0 : i]; }

// A polynomial can square its length with each product; beyond this the value is treated as data. The product
// of two simple ones must stay within what Dim accepts (64 factors a term).
constexpr size_t kMaxComplexity = 32;

bool is_simple(const Dim& dim) {
  size_t complexity = 0;
  for (const Dim::Term& term : dim.terms())
    for (const Dim::Atom& atom : term.factors) complexity += 1 + atom.text.size() / 16;
  return complexity <= kMaxComplexity;
}

using Operands = std::vector<Dims>;

bool pointwise(NodeContext& n, const Operands& x) {
  const auto shape = broadcast_small(n, x.size());
  if (!shape || x.empty()) return false;
  const size_t count = static_cast<size_t>(*element_count(*shape).constant());
  const bool compares = n.op_type == "Equal" || n.op_type == "Less" || n.op_type == "Greater" ||
                        n.op_type == "LessOrEqual" || n.op_type == "GreaterOrEqual";
  Dims result;
  for (size_t i = 0; i < count; ++i) {
    Dim value = element(x[0], i);
    for (size_t k = 1; k < x.size(); ++k) {
      const MaybeDim next = symbolic_binary(n, value, element(x[k], i));
      if (!next || !is_simple(*next)) return false;
      value = *next;
    }
    result.push_back(value);
  }
  if (n.op_type == "Mod") n.ignore("fmod");
  n.out_sizes(0, result, {compares ? DType::boolean : n.dtype(0), *shape});
  return true;
}

bool symbolic_where(NodeContext& n, const Operands& x) {
  const auto shape = broadcast_small(n, 3);
  if (!shape) return false;
  const size_t count = static_cast<size_t>(*element_count(*shape).constant());
  Dims result;
  for (size_t i = 0; i < count; ++i) {
    const Dim& condition = element(x[0], i);
    if (!condition.is_constant()) return false;
    result.push_back(element(condition == Dim(0) ? x[2] : x[1], i));
  }
  n.out_sizes(0, result, {n.dtype(1), *shape});
  return true;
}

bool negate(NodeContext& n, const Operands& x) {
  Dims result;
  for (const Dim& dim : x[0]) result.push_back(n.op_type == "Not" ? Dim(1) - dim : Dim(0) - dim);
  n.out_sizes(0, result, n.type(0));
  return true;
}

bool same_values(NodeContext& n, const Operands& x) {
  n.out_sizes(0, x[0], n.type(0));
  return true;
}

bool cast_sizes(NodeContext& n, const Operands& x) {
  const auto dtype = dtype_from_onnx(static_cast<int>(n.attr_int("to")));
  if (!dtype || (*dtype != DType::i64 && *dtype != DType::i32)) return false;
  n.ignore("saturate");
  n.ignore("round_mode");
  n.out_sizes(0, x[0], {*dtype, n.shape(0)});
  return true;
}

bool symbolic_gather(NodeContext& n, const Operands& x) {
  if (n.rank(0) != 1 || n.axis(n.attr_int("axis", 0), 1) != 0 || n.rank(1) > 1) return false;
  const int64_t size = static_cast<int64_t>(x[0].size());
  Dims result;
  for (const Dim& index : x[1]) {
    if (!index.is_constant()) return false;
    const int64_t at = *index.constant() + (*index.constant() < 0 ? size : 0);
    if (at < 0 || at >= size) return false;
    result.push_back(x[0][static_cast<size_t>(at)]);
  }
  n.out_sizes(0, result, {n.dtype(0), n.shape(1)});
  return true;
}

bool symbolic_concat(NodeContext& n, const Operands& x) {
  Dims result;
  for (size_t i = 0; i < x.size(); ++i) {
    if (n.rank(i) != 1) return false;
    result.insert(result.end(), x[i].begin(), x[i].end());
  }
  n.ignore("axis");
  n.out_sizes(0, result, {n.dtype(0), {Dim(static_cast<int64_t>(result.size()))}});
  return true;
}

// Squeeze and Unsqueeze between [1] and a scalar, Reshape: same content.
bool rank_change(NodeContext& n, const Operands& x) {
  const int64_t count = static_cast<int64_t>(x[0].size());
  if (n.op_type == "Squeeze") {
    if (n.rank(0) != 1 || count != 1) return false;
    n.out_sizes(0, x[0], {n.dtype(0), {}});
    return true;
  }
  if (n.op_type == "Unsqueeze") {
    if (n.rank(0) != 0 || x[1].size() != 1) return false;
    n.out_sizes(0, x[0], {n.dtype(0), {Dim(1)}});
    return true;
  }
  Shape shape = x[1];
  int64_t known = 1;
  Dim* inferred = nullptr;
  for (Dim& dim : shape) {
    if (!dim.is_constant() || *dim.constant() == 0) return false;
    if (dim == Dim(-1) && inferred != nullptr) return false;
    if (dim == Dim(-1))
      inferred = &dim;
    else
      known = checked_mul(known, *dim.constant());
  }
  if (inferred != nullptr && known > 0 && count % known == 0) *inferred = Dim(count / known);
  if (element_count(shape) != Dim(count)) return false;
  n.ignore("allowzero");
  n.out_sizes(0, x[0], {n.dtype(0), shape});
  return true;
}

// Pairs of sizes, which torch turns from its order of pads into that of ONNX.
bool symbolic_transpose(NodeContext& n, const Operands& x) {
  if (n.rank(0) != 2) return false;
  const std::vector<int64_t> perm = n.attr_ints("perm", {1, 0});
  if (perm != std::vector<int64_t>{1, 0}) return false;
  const size_t rows = static_cast<size_t>(*n.shape(0)[0].constant());
  const size_t columns = static_cast<size_t>(*n.shape(0)[1].constant());
  Dims result;
  for (size_t i = 0; i < columns; ++i)
    for (size_t k = 0; k < rows; ++k) result.push_back(x[0][k * columns + i]);
  n.out_sizes(0, result, {n.dtype(0), {n.shape(0)[1], n.shape(0)[0]}});
  return true;
}

// Along the first of one or two axes.
bool symbolic_slice(NodeContext& n, const Operands& x) {
  if (n.rank(0) != 1 && n.rank(0) != 2) return false;
  for (size_t i = 1; i < x.size(); ++i)
    if (x[i].size() != 1 || !x[i][0].is_constant()) return false;
  if (n.rank(0) == 2 && (x.size() < 4 || n.axis(*x[3][0].constant(), 2) != 0)) return false;
  const int64_t size = *n.shape(0)[0].constant();
  const int64_t row = n.rank(0) == 2 ? *n.shape(0)[1].constant() : 1;
  const int64_t step = x.size() > 4 ? *x[4][0].constant() : 1;
  if (step == 0) return false;
  const auto clamp = [&](int64_t value, int64_t low, int64_t high) {
    return std::min(std::max(value < 0 ? value + size : value, low), high);  // high < low of an empty axis
  };
  const int64_t start = clamp(*x[1][0].constant(), 0, step > 0 ? size : size - 1);
  const int64_t end = clamp(*x[2][0].constant(), step > 0 ? 0 : -1, size);
  Dims result;
  for (int64_t i = start; step > 0 ? i < end : i > end; i += std::clamp(step, -size - 1, size + 1))
    result.insert(result.end(), x[0].begin() + i * row, x[0].begin() + (i + 1) * row);
  Shape shape = n.shape(0);
  shape[0] = Dim(row == 0 ? 0 : static_cast<int64_t>(result.size()) / row);
  n.out_sizes(0, result, {n.dtype(0), shape});
  return true;
}

// onnxruntime's optimizer writes several Gathers of one shape as a Split.
bool symbolic_split(NodeContext& n, const Operands& x) {
  const int64_t size = static_cast<int64_t>(x[0].size()), parts = static_cast<int64_t>(n.output_count());
  if (n.rank(0) != 1 || parts < 1) return false;
  Dims counts(n.output_count(), Dim(size / parts));
  if (x.size() > 1) counts = x[1];
  if (counts.size() != n.output_count() || (x.size() == 1 && size % parts != 0)) return false;
  int64_t end = 0;
  for (const Dim& count : counts) {
    if (!count.is_constant() || *count.constant() < 0) return false;
    end += *count.constant();
  }
  if (end != size) return false;
  n.ignore("axis");
  n.ignore("num_outputs");
  auto at = x[0].begin();
  for (size_t i = 0; i < counts.size(); ++i) {
    const auto next = at + static_cast<std::ptrdiff_t>(*counts[i].constant());
    n.out_sizes(i, {at, next}, {n.dtype(0), {counts[i]}});
    at = next;
  }
  return true;
}

bool reduce(NodeContext& n, const Operands& x) {
  if (n.rank(0) != 1 || x[0].empty()) return false;
  const bool keepdims = n.attr_int("keepdims", 1) != 0;
  if (n.attr_int("noop_with_empty_axes", 0) != 0) return false;
  Dim value = x[0][0];
  for (size_t i = 1; i < x[0].size(); ++i) {
    const Dim& next = x[0][i];
    value = n.op_type == "ReduceProd"  ? value * next
            : n.op_type == "ReduceSum" ? value + next
            : n.op_type == "ReduceMax" ? max(value, next)
                                       : min(value, next);
    if (!is_simple(value)) return false;
  }
  n.out_sizes(0, {value}, {n.dtype(0), keepdims ? Shape{Dim(1)} : Shape{}});
  return true;
}

bool symbolic_expand(NodeContext& n, const Operands& x) {
  if (x[0].size() != 1 || x[1].size() != 1 || n.rank(0) > 1 || !x[1][0].is_constant()) return false;
  const int64_t count = *x[1][0].constant();
  if (count < 0 || count > kMaxSymbolicElements) return false;
  n.out_sizes(0, Dims(static_cast<size_t>(count), x[0][0]), {n.dtype(0), {Dim(count)}});
  return true;
}

struct SymbolicRow {
  std::string_view op;
  bool (*apply)(NodeContext&, const Operands&);
  size_t operands = 1;  // at least; a node with fewer is for its converter to refuse
};

constexpr SymbolicRow kSymbolicRows[] = {
    {"Add", pointwise},
    {"Sub", pointwise},
    {"Mul", pointwise},
    {"Div", pointwise},
    {"Mod", pointwise},
    {"Max", pointwise},
    {"Min", pointwise},
    {"Equal", pointwise},
    {"Less", pointwise},
    {"Greater", pointwise},
    {"LessOrEqual", pointwise},
    {"GreaterOrEqual", pointwise},
    {"And", pointwise},
    {"Or", pointwise},
    {"Where", symbolic_where, 3},
    {"Neg", negate},
    {"Not", negate},
    {"Identity", same_values},
    {"Cast", cast_sizes},
    {"Gather", symbolic_gather, 2},
    {"Concat", symbolic_concat},
    {"Reshape", rank_change, 2},
    {"Squeeze", rank_change},
    {"Unsqueeze", rank_change, 2},
    {"Slice", symbolic_slice, 3},
    {"Transpose", symbolic_transpose},
    {"Split", symbolic_split},
    {"ReduceProd", reduce},
    {"ReduceSum", reduce},
    {"ReduceMax", reduce},
    {"ReduceMin", reduce},
    {"Expand", symbolic_expand, 2},
};

}  // namespace

bool convert_symbolically(NodeContext& n) {
  if (!n.proto().domain.empty()) return false;
  const auto row = std::find_if(std::begin(kSymbolicRows), std::end(kSymbolicRows),
                                [&](const SymbolicRow& r) { return r.op == n.op_type; });
  if (row == std::end(kSymbolicRows) || n.input_count() < row->operands) return false;
  Operands operands;
  bool symbolic = false;
  for (size_t i = 0; i < n.input_count(); ++i) {
    if (!n.has(i) || n.any(i)->items || !is_tracked(n.type(i))) return false;
    auto sizes = n.sizes(i);
    if (!sizes) return false;
    symbolic = true;
    operands.push_back(std::move(*sizes));
  }
  return symbolic && row->apply(n, operands);
}

}  // namespace aicf::onnx
