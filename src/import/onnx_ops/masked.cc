// y[mask] = values: a choice between the values and the data, element by element (import/masked_updates.h).
#include "import/masked_updates.h"
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

Shape tail_of(const Shape& shape, size_t from) {
  return {shape.begin() + static_cast<std::ptrdiff_t>(from), shape.end()};
}

// Whether the mask says the same along the last `count` axes, because it was expanded over them.
bool is_even_over_last(NodeContext& n, size_t count) {
  if (!n.has(3)) return false;
  const Shape thin = n.shape(3);
  for (size_t i = 1; i <= count && i <= thin.size(); ++i)
    if (thin[thin.size() - i] != Dim(1)) return false;
  return true;
}

// Values that are one for all places: as they broadcast to the data.
ValueId spread_values(NodeContext& n, const Shape& data, size_t masked) {
  const ValueId values = n.in(2);
  Shape shape = n.shape(2);
  if (element_count(shape) == Dim(1)) return n.reshape(values, {});
  if (n.attr_int("flat") != 0 && masked == data.size()) {
    const bool rows = shape.size() <= data.size() && shape == tail_of(data, data.size() - shape.size());
    if (rows && is_even_over_last(n, shape.size())) return values;
  } else {
    if (shape.size() == data.size() - masked + 1 && shape[0] == Dim(1)) shape.erase(shape.begin());
    if (shape.size() <= data.size() - masked) return n.reshape(values, shape);
  }
  n.unsupported("values for the places of a mask that are neither one for all nor a row of the data");
}

// Values that the places take in order: the place's number among those of the mask picks.
ValueId values_in_order(NodeContext& n, ValueId mask, const Shape& data, size_t masked) {
  const Shape shape = n.shape(2);
  if (shape.size() != data.size() - masked + 1 || tail_of(shape, 1) != tail_of(data, masked))
    n.bad("the updates", "one row of the data for each place", to_string(shape));
  const ValueId ones = n.cast(n.reshape(mask, {element_count(n.shape_of(mask))}), DType::i64);
  const ValueId one = n.iscalar(DType::i64, 1), zero = n.iscalar(DType::i64, 0);
  const ValueId last = n.add(Op::sub, {n.size_scalar(shape[0], DType::i64), one});
  const ValueId number = n.add(Op::sub, {n.add(Op::cumsum, {ones}, {{"axis", int64_t{0}}}), one});
  const ValueId picked =
      n.add(Op::gather, {n.in(2), n.add(Op::clamp, {number, zero, last})}, {{"axis", int64_t{0}}});
  return n.reshape(picked, data);
}

ValueId values_of(NodeContext& n, ValueId mask, const Shape& data, size_t masked) {
  const std::string kind = n.attr_str("values", "ordered");
  if (kind == "spread") return spread_values(n, data, masked);
  if (kind == "ordered") return values_in_order(n, mask, data, masked);
  if (n.shape(2) != data) n.unsupported("values at the places of a mask of data of another shape");
  return n.in(2);
}

void masked_scatter_nd(NodeContext& n) {
  const ValueId data = n.in(0), mask = n.cast(n.in(1), DType::boolean);
  const Shape shape = n.shape(0);
  Shape thin = n.shape(1);
  const size_t masked = thin.size();
  if (masked < 1 || masked > shape.size() || !std::equal(thin.begin(), thin.end(), shape.begin()))
    n.bad("the mask", "the first sizes of the data, " + to_string(shape), to_string(thin));
  n.ignore_input(3);
  n.ignore("flat");
  if (n.shape(2).empty() ? false : n.shape(2)[0] == Dim(0)) return n.out(0, data);
  const ValueId values = values_of(n, mask, shape, masked);
  thin.resize(shape.size(), Dim(1));
  n.out(0, n.add(Op::select, {n.reshape(mask, thin), values, data}));
}

}  // namespace

std::vector<OpRule> masked_rules() { return {{"ScatterND", masked_scatter_nd, 1, kMaskedDomain}}; }

}  // namespace aicf::onnx
