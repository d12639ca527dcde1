#include <set>

#include "base/error.h"
#include "ir/shape_rules/rules.h"

namespace aicf {
namespace {

// The symbols of a plain polynomial; null if it contains floordiv, mod, max or min.
bool polynomial_symbols(const Dim& dim, std::set<std::string>& symbols) {
  for (const Dim::Term& term : dim.terms())
    for (const Dim::Atom& factor : term.factors) {
      if (factor.kind != Dim::AtomKind::kSymbol) return false;
      symbols.insert(factor.text);
    }
  return true;
}

// Two different polynomials in the same symbols differ for some values of them, so every size in the declared
// range could not run. Where rounding functions or a further symbol take part, equality is left to
// check_range_fit, which knows the ranges.
bool counts_may_agree(const Dim& a, const Dim& b) {
  if (a == b) return true;
  if ((a - b).is_constant()) return false;
  std::set<std::string> in_a, in_b;
  if (!polynomial_symbols(a, in_a) || !polynomial_symbols(b, in_b)) return true;
  return in_a != in_b;
}

}  // namespace

void shape_reshape(ShapeQuery& query) {
  const Shape& shape = require_dims(query, "shape", query.attrs.get_dims("shape").size());
  const Dim from = element_count(query.shape(0)), to = element_count(shape);
  if (!counts_may_agree(from, to))
    fail_shape(query, "a shape of " + from.to_string() + " elements",
               to_string(shape) + " of " + to.to_string());
  query.results[0].shape = shape;
}

void shape_transpose(ShapeQuery& query) {
  const Shape& x = query.shape(0);
  const Ints& perm = query.attrs.get_ints("perm");
  std::vector<bool> seen(x.size(), false);
  bool fits = perm.size() == x.size();
  for (size_t i = 0; fits && i < perm.size(); ++i) {
    const int64_t axis = perm[i];
    fits = axis >= 0 && axis < query.rank(0) && !seen[static_cast<size_t>(axis)];
    if (fits) seen[static_cast<size_t>(axis)] = true;
  }
  if (!fits)
    fail_attribute(query, "perm", "each of 0 to " + std::to_string(query.rank(0) - 1) + " once",
                   to_string(perm));
  Shape& result = query.results[0].shape;
  for (int64_t axis : perm) result.push_back(x[static_cast<size_t>(axis)]);
}

void shape_broadcast_to(ShapeQuery& query) {
  const Shape& shape = require_dims(query, "shape", query.attrs.get_dims("shape").size());
  require_broadcastable(query, 0, shape);
  query.results[0].shape = shape;
}

void shape_slice(ShapeQuery& query) {
  const Shape& x = query.shape(0);
  const Shape& starts = require_dims(query, "starts", x.size());
  const Shape& limits = require_dims(query, "limits", x.size());
  const Ints& steps = require_ints(query, "steps", x.size(), 1);
  Shape& result = query.results[0].shape;
  for (size_t i = 0; i < x.size(); ++i) {
    if (known_greater(starts[i], limits[i]) || known_greater(limits[i], x[i]))
      fail_shape(query, "0 <= start <= limit <= " + x[i].to_string() + " on axis " + std::to_string(i),
                 "start " + starts[i].to_string() + ", limit " + limits[i].to_string());
    result.push_back(ceildiv(limits[i] - starts[i], steps[i]));
  }
}

// Modes that copy from x need an element to copy: an axis known to be empty can then not be padded.
void shape_pad(ShapeQuery& query) {
  const Shape& x = query.shape(0);
  require_choice(query, "mode", {"constant", "edge", "reflect", "wrap"});
  const bool copies = query.attrs.get_str("mode") != "constant";
  const Shape& low = require_dims(query, "low", x.size());
  const Shape& high = require_dims(query, "high", x.size());
  require_rank(query, 1, 0);
  if (copies && query.operands[1])
    fail_attribute(query, "mode", "constant, as a value is given", query.attrs.get_str("mode"));
  Shape& result = query.results[0].shape;
  for (size_t i = 0; i < x.size(); ++i) {
    const Dim added = low[i] + high[i];
    if (copies && x[i] == Dim(0) && !(added == Dim(0)))
      fail_shape(query, "a size of at least 1 on axis " + std::to_string(i) + " to copy from", "0");
    result.push_back(x[i] + added);
  }
}

void shape_concat(ShapeQuery& query) {
  const size_t axis = use_axis(query, query.rank(0));
  Shape result = query.shape(0);
  for (size_t i = 1; i < query.operands.size(); ++i) {
    require_rank(query, i, query.rank(0));
    for (size_t d = 0; d < result.size(); ++d)
      if (d != axis) require_equal(query, result[d], query.shape(i)[d], "sizes on axis " + std::to_string(d));
    result[axis] = result[axis] + query.shape(i)[axis];
  }
  query.results[0].shape = std::move(result);
}

// iota and random_bits: no operand decides the shape.
void shape_iota(ShapeQuery& query) {
  const Shape& shape = require_dims(query, "shape", query.attrs.get_dims("shape").size());
  const DType dtype = query.attrs.get_dtype("dtype");
  for (size_t i = 0; i < query.operands.size(); ++i) require_rank(query, i, 0);
  if (query.info.op == Op::random_bits) {
    if (dtype != DType::i32) fail_attribute(query, "dtype", "i32", std::string(dtype_name(dtype)));
  } else {
    if (dtype == DType::boolean) fail_attribute(query, "dtype", "a number", "bool");
    use_axis(query, static_cast<int64_t>(shape.size()));
  }
  query.results[0].shape = shape;
}

}  // namespace aicf
