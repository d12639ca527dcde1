// Gathers, scatters and padding. Gradients of elements that were read several times are added in the
// row-major order of the indices.
#include "autodiff/vjp.h"

namespace aicf {
namespace {

ValueId with_last_axis(Emitter& e, ValueId indices) {
  Shape column = e.shape(indices);
  column.push_back(Dim(1));
  return e.reshape(indices, column);
}

ValueId scatter_nd(Emitter& e, ValueId x, ValueId indices, ValueId updates, const std::string& reduction) {
  return e.op(Op::scatter_nd, {x, indices, updates}, {{"reduction", reduction}});
}

}  // namespace

// The axis is brought to the front, where scatter_nd wants it, and back.
ValueId add_at(Emitter& e, ValueId dy, ValueId indices, int64_t axis, const Shape& full) {
  const int64_t rank = static_cast<int64_t>(full.size()), index_rank = e.rank(indices);
  Ints to_front, from_front(full.size(), 0);
  for (int64_t i = 0; i < index_rank; ++i) to_front.push_back(axis + i);
  for (int64_t i = 0; i < axis; ++i) to_front.push_back(i);
  for (int64_t i = axis + index_rank; i < rank - 1 + index_rank; ++i) to_front.push_back(i);
  Shape front = {full[static_cast<size_t>(axis)]};
  for (int64_t i = 0; i < rank; ++i) {
    if (i != axis) front.push_back(full[static_cast<size_t>(i)]);
    from_front[static_cast<size_t>(i)] = i == axis ? 0 : i < axis ? i + 1 : i;
  }
  const ValueId updates = permute(e, e.widen(dy), to_front);
  const ValueId zeros = filled(e, e.dtype(updates), front);
  return permute(e, scatter_nd(e, zeros, with_last_axis(e, indices), updates, "add"), from_front);
}

Values vjp_gather(const Vjp& v) {
  const Shape full = v.e.shape(v.x(0));
  return {add_at(v.e, v.dy(), v.x(1), v.attrs().get_int("axis"), full), kNoValue};
}

Values vjp_gather_elements(const Vjp& v) {
  const Shape full = v.e.shape(v.x(0));
  const ValueId dy = v.wide(v.dy()), zeros = filled(v.e, v.e.dtype(dy), full);
  const Attrs attrs = {{"axis", v.attrs().get_int("axis")}, {"reduction", std::string("add")}};
  return {v.e.op(Op::scatter_elements, {zeros, v.x(1), dy}, attrs), kNoValue};
}

// Batch axes become leading indices.
Values vjp_gather_nd(const Vjp& v) {
  Emitter& e = v.e;
  const Shape full = e.shape(v.x(0));
  Shape column = e.shape(v.x(1));
  column.back() = Dim(1);
  Values parts;
  for (int64_t axis = 0; axis < v.attrs().get_int("batch_dims"); ++axis)
    parts.push_back(e.op(Op::iota, {}, {{"shape", column}, {"axis", axis}, {"dtype", e.dtype(v.x(1))}}));
  parts.push_back(v.x(1));
  const ValueId indices = parts.size() == 1 ? parts[0] : e.concat_last(parts);
  const ValueId dy = v.wide(v.dy()), zeros = filled(e, e.dtype(dy), full);
  return {scatter_nd(e, zeros, indices, dy, "add"), kNoValue};
}

namespace {

// What scatter_elements and scatter_nd have in common: putting updates and reading the same places.
struct Places {
  const Vjp& v;

  ValueId put(ValueId x, ValueId updates, const std::string& reduction) const {
    Attrs attrs = {{"reduction", reduction}};
    if (v.node.op == Op::scatter_elements) attrs.set("axis", v.attrs().get_int("axis"));
    return v.e.op(v.node.op, {x, v.x(1), updates}, attrs);
  }
  ValueId take(ValueId x) const {
    if (v.node.op == Op::scatter_nd) return v.e.op(Op::gather_nd, {x, v.x(1)});
    return v.e.op(Op::gather_elements, {x, v.x(1)}, {{"axis", v.attrs().get_int("axis")}});
  }
};

// Of several updates of one element the last one counts: each is numbered and asks who owns its place.
Values overwrite_gradients(const Vjp& v, const Places& places) {
  Emitter& e = v.e;
  const Shape shape = e.shape(v.x(0)), update_shape = e.shape(v.x(2));
  Values gradients(3, kNoValue);
  if (v.wants(0)) gradients[0] = places.put(v.dy(), filled(e, e.dtype(v.dy()), update_shape), "none");
  if (v.wants(2)) {
    const Shape flat = {element_count(update_shape)};
    const ValueId line = e.op(Op::iota, {}, {{"shape", flat}, {"axis", int64_t{0}}, {"dtype", DType::i64}});
    const ValueId numbers = e.reshape(line, update_shape);
    const ValueId owners = places.put(filled(e, DType::i64, shape), numbers, "none");
    const ValueId owns = e.op(Op::eq, {places.take(owners), numbers});
    gradients[2] = e.select(owns, places.take(v.dy()), v.number(v.dy(), 0));
  }
  return gradients;
}

// As reduce_prod: the product of the other factors of an element without division by zero.
Values product_gradients(const Vjp& v, const Places& places) {
  Emitter& e = v.e;
  const ValueId x = v.wide(v.x(0)), updates = v.wide(v.x(2)), dy = v.wide(v.dy());
  const ValueId zero = v.number(x, 0), one = v.number(x, 1);
  const auto is_zero = [&](ValueId a) { return e.op(Op::eq, {a, zero}); };
  const auto nonzero = [&](ValueId a) { return e.select(is_zero(a), one, a); };
  const auto count = [&](ValueId a) { return e.cast(is_zero(a), DType::i64); };
  const ValueId product = places.put(nonzero(x), nonzero(updates), "mul");
  const ValueId zeros = places.put(count(x), count(updates), "add");
  const auto slope = [&](ValueId a, ValueId all, ValueId all_zeros) {
    const ValueId alone = e.op(Op::eq, {e.sub(all_zeros, count(a)), e.scalar_int(DType::i64, 0)});
    return e.select(alone, e.div(all, nonzero(a)), zero);
  };
  Values gradients(3, kNoValue);
  if (v.wants(0)) gradients[0] = e.mul(dy, slope(x, product, zeros));
  if (v.wants(2))
    gradients[2] = e.mul(places.take(dy), slope(updates, places.take(product), places.take(zeros)));
  return gradients;
}

Values extremum_gradients(const Vjp& v, const Places& places) {
  Emitter& e = v.e;
  const ValueId dy = v.wide(v.dy()), zero = v.number(dy, 0);
  const ValueId x_best = e.op(Op::eq, {v.x(0), v.y()});
  const ValueId updates_best = e.op(Op::eq, {v.x(2), places.take(v.y())});
  const ValueId count = places.put(e.cast(x_best, e.dtype(dy)), e.cast(updates_best, e.dtype(dy)), "add");
  const ValueId share = e.div(dy, count);
  return {v.wants(0) ? e.select(x_best, share, zero) : kNoValue, kNoValue,
          v.wants(2) ? e.select(updates_best, places.take(share), zero) : kNoValue};
}

Values scatter_gradients(const Vjp& v) {
  const Places places{v};
  const std::string& reduction = v.attrs().get_str("reduction");
  if (reduction == "none") return overwrite_gradients(v, places);
  if (reduction == "add") return {v.dy(), kNoValue, v.wants(2) ? places.take(v.dy()) : kNoValue};
  return reduction == "mul" ? product_gradients(v, places) : extremum_gradients(v, places);
}

}  // namespace

Values vjp_scatter_elements(const Vjp& v) { return scatter_gradients(v); }
Values vjp_scatter_nd(const Vjp& v) { return scatter_gradients(v); }

namespace {

// The value fills what lies outside x.
Values constant_pad_gradients(const Vjp& v) {
  Emitter& e = v.e;
  const Shape shape = e.shape(v.x(0)), &low = v.attrs().get_dims("low");
  Values gradients(2, kNoValue);
  if (v.wants(0)) {
    Shape limits;
    for (size_t i = 0; i < shape.size(); ++i) limits.push_back(low[i] + shape[i]);
    gradients[0] = cut(e, v.dy(), low, limits);
  }
  if (v.wants(1)) {
    const ValueId dy = v.wide(v.dy());
    const ValueId inside = e.op(Op::pad, {filled(e, DType::boolean, shape, 1)},
                                {{"low", low}, {"high", v.attrs().get_dims("high")}});
    const ValueId outside = e.select(inside, v.number(dy, 0), dy);
    gradients[1] = e.reduce(Op::reduce_sum, outside, axes_from(0, e.rank(dy)), false);
  }
  return gradients;
}

}  // namespace

// A padding that copies takes each element of an axis from an index of x, which padding the indices
// themselves tells; axis by axis.
Values vjp_pad(const Vjp& v) {
  const std::string& mode = v.attrs().get_str("mode");
  if (mode == "constant") return constant_pad_gradients(v);
  Emitter& e = v.e;
  const Shape shape = e.shape(v.x(0)), &low = v.attrs().get_dims("low"), &high = v.attrs().get_dims("high");
  ValueId dx = v.dy();
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (low[axis] == Dim(0) && high[axis] == Dim(0)) continue;
    const ValueId line =
        e.op(Op::iota, {}, {{"shape", Shape{shape[axis]}}, {"axis", int64_t{0}}, {"dtype", DType::i64}});
    const ValueId sources =
        e.op(Op::pad, {line}, {{"low", Shape{low[axis]}}, {"high", Shape{high[axis]}}, {"mode", mode}});
    Shape full = e.shape(dx);
    full[axis] = shape[axis];
    dx = add_at(e, dx, sources, static_cast<int64_t>(axis), full);
  }
  return {dx, kNoValue};
}

}  // namespace aicf
