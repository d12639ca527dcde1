// Views, joins, growth: ops whose result shape is the point. Sizes may be symbolic throughout.
#include <algorithm>

#include "base/error.h"
#include "base/option_text.h"
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

// --- reshape family

void reshape(NodeContext& n) {
  const bool allow_zero = n.attr_int("allowzero", 0) != 0;
  const Shape from = n.shape(0);
  Shape to = n.require_sizes(1, "the new shape");
  Dim known(1);
  std::optional<size_t> inferred;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i] == Dim(0) && !allow_zero) {
      if (i >= from.size())
        n.bad("shape copies an axis that x lacks", "rank above " + std::to_string(i), to_string(from));
      to[i] = from[i];
    }
    if (to[i] == Dim(-1)) {
      if (inferred) n.bad("shape", "at most one -1", to_string(to));
      inferred = i;
    } else {
      known = known * to[i];
    }
  }
  if (inferred) {
    const Dim count = element_count(from);
    const auto size = known == Dim(0) ? std::optional<Dim>(Dim(0)) : divide_exactly(count, known);
    if (!size)
      throw UserError(ErrorCode::kU_bad_shape,
                      "node '" + n.origin() + "': the inferred size is not a whole number")
          .with_op("Reshape")
          .with_expected("a multiple of " + known.to_string())
          .with_actual(count.to_string())
          .with_remedy("give sizes that are always equal one name (" + dims_text({{"A", "B"}}) +
                       "), or sizes values that fit");
    to[*inferred] = *size;
  }
  n.out(0, n.reshape(n.in(0), to));
}

void flatten(NodeContext& n) {
  const int64_t rank = n.rank(0), given = n.attr_int("axis", 1);
  const int64_t axis = given == rank ? rank : n.axis(given, std::max<int64_t>(rank, 1));
  const Shape shape = n.shape(0);
  const auto middle = shape.begin() + std::min(axis, rank);
  n.out(0, n.reshape(n.in(0), {element_count(Shape(shape.begin(), middle)),
                               element_count(Shape(middle, shape.end()))}));
}

void squeeze(NodeContext& n) {
  const Shape shape = n.shape(0);
  std::vector<bool> drop(shape.size(), false);
  if (n.has(1)) {
    for (int64_t axis : n.require_ints(1, "axes")) drop[static_cast<size_t>(n.axis(axis, n.rank(0)))] = true;
  } else {
    for (size_t i = 0; i < shape.size(); ++i) drop[i] = shape[i] == Dim(1);
  }
  Shape to;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (drop[i] && shape[i].require_constant("node '" + n.origin() + "': a squeezed axis") != 1)
      n.bad("a squeezed axis", "size 1", shape[i].to_string());
    if (!drop[i]) to.push_back(shape[i]);
  }
  n.out(0, n.reshape(n.in(0), to));
}

void unsqueeze(NodeContext& n) {
  const Ints axes = n.require_ints(1, "axes");
  const int64_t rank = n.rank(0) + static_cast<int64_t>(axes.size());
  std::vector<bool> added(static_cast<size_t>(rank), false);
  for (int64_t axis : axes) {
    const size_t at = static_cast<size_t>(n.axis(axis, rank));
    if (added[at]) n.bad("axes", "each axis once", to_string(axes));
    added[at] = true;
  }
  Shape to;
  size_t from = 0;
  const Shape shape = n.shape(0);
  for (bool is_new : added) to.push_back(is_new ? Dim(1) : shape[from++]);
  n.out(0, n.reshape(n.in(0), to));
}

void transpose(NodeContext& n) {
  Ints perm(static_cast<size_t>(n.rank(0)));
  for (size_t i = 0; i < perm.size(); ++i) perm[i] = n.rank(0) - 1 - static_cast<int64_t>(i);
  n.out(0, n.transpose(n.in(0), n.attr_ints("perm", perm)));
}

// x [N, C b b, H, W] → [N, C, H b, W b]; DCR: blocks are the slower part of the channel.
void depth_to_space(NodeContext& n) {
  const int64_t b = n.attr_int("blocksize");
  const std::string mode = n.attr_str("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") n.unsupported("mode=" + mode);
  if (n.rank(0) != 4 || b < 1) n.bad("x or blocksize", "rank 4, blocksize >= 1", to_string(n.shape(0)));
  const Shape s = n.shape(0);
  const Dim channels = floordiv(s[1], Dim(b) * Dim(b));
  const bool dcr = mode == "DCR";
  const ValueId split = n.reshape(
      n.in(0), dcr ? Shape{s[0], b, b, channels, s[2], s[3]} : Shape{s[0], channels, b, b, s[2], s[3]});
  const ValueId moved = n.transpose(split, dcr ? Ints{0, 3, 4, 1, 5, 2} : Ints{0, 1, 4, 2, 5, 3});
  n.out(0, n.reshape(moved, {s[0], channels, s[2] * Dim(b), s[3] * Dim(b)}));
}

void space_to_depth(NodeContext& n) {
  const int64_t b = n.attr_int("blocksize");
  if (n.rank(0) != 4 || b < 1) n.bad("x or blocksize", "rank 4, blocksize >= 1", to_string(n.shape(0)));
  const Shape s = n.shape(0);
  const Dim height = floordiv(s[2], Dim(b)), width = floordiv(s[3], Dim(b));
  const ValueId moved =
      n.transpose(n.reshape(n.in(0), {s[0], s[1], height, b, width, b}), {0, 3, 5, 1, 2, 4});
  n.out(0, n.reshape(moved, {s[0], s[1] * Dim(b) * Dim(b), height, width}));
}

// --- joins and parts

void concat(NodeContext& n) {
  std::vector<ValueId> parts;
  for (size_t i = 0; i < n.input_count(); ++i) parts.push_back(n.in(i));
  n.out(0, n.add(Op::concat, parts, {{"axis", n.axis(n.attr_int("axis", 1), n.rank(0))}}));
}

void split(NodeContext& n) {
  const int64_t axis = n.axis(n.attr_int("axis", 0), n.rank(0));
  const Dim size = n.shape(0)[static_cast<size_t>(axis)];
  const int64_t parts = n.attr_int("num_outputs", static_cast<int64_t>(n.output_count()));
  if (parts != static_cast<int64_t>(n.output_count()))
    n.bad("num_outputs", std::to_string(n.output_count()), std::to_string(parts));
  std::vector<Dim> sizes;
  if (n.has(1)) {
    sizes = n.require_sizes(1, "split");
  } else {
    // Equal parts; the last is smaller if the size does not divide.
    const Dim each = ceildiv(size, Dim(parts));
    Dim left = size;
    for (int64_t i = 0; i < parts; ++i) {
      sizes.push_back(n.smaller(each, left));
      left = left - sizes.back();
    }
  }
  if (sizes.size() != n.output_count())
    n.bad("split", std::to_string(n.output_count()) + " sizes", std::to_string(sizes.size()));
  Dim at(0);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (n.wants(i)) n.out(i, n.slice_axis(n.in(0), axis, at, at + sizes[i]));
    at = at + sizes[i];
  }
}

// A position below 0 counts from the end. One that is below 0 for some sizes only takes the size times
// min(max(-value, 0), 1), which is 1 where it is below 0.
Dim from_front(NodeContext& n, const Dim& value, const Dim& size) {
  const Interval range = n.bounds_of(value);
  if (range.hi < 0) return value + size;
  return range.lo >= 0 ? value : value + size * min(max(Dim(0) - value, Dim(0)), Dim(1));
}

// One axis of x[start:end:step] with the clamping of ONNX; sizes may be symbolic. Going down, a start in
// front of all elements is the first of them, where Python would find nothing.
ValueId slice_one(NodeContext& n, ValueId x, int64_t axis, Dim start, Dim end, int64_t step) {
  const Dim size = n.shape_of(x)[static_cast<size_t>(axis)];
  const Dim last_start = step > 0 ? size : size - Dim(1);
  const int64_t longest = std::max<int64_t>(n.bounds_of(size).hi, 1);  // beyond it only the first is taken
  step = std::clamp(step, -longest, longest);
  start = n.smaller(n.larger(from_front(n, start, size), Dim(0)), last_start);
  end = n.larger(n.smaller(from_front(n, end, size), last_start), Dim(step > 0 ? 0 : -1));
  if (step > 0) return n.slice_axis(x, axis, start, n.larger(start, end), step);
  // Walking down is walking up the reversed axis: index i becomes size - 1 - i.
  const ValueId reversed = n.add(Op::reverse, {x}, {{"axes", Ints{axis}}});
  const Dim first = size - Dim(1) - start, last = size - Dim(1) - end;
  return n.slice_axis(reversed, axis, first, n.larger(first, last), -step);
}

// An end of this size or beyond means "to the end" (exporters write INT64_MAX or INT32_MAX).
constexpr int64_t kFarAway = int64_t{1} << 40;

Dim near(const Dim& dim) {
  const auto value = dim.constant();
  return value ? Dim(std::clamp(*value, -kFarAway, kFarAway)) : dim;
}

void slice(NodeContext& n) {
  const std::vector<Dim> starts = n.require_sizes(1, "starts"), ends = n.require_sizes(2, "ends");
  Ints axes, steps(starts.size(), 1);
  for (size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  if (n.has(3)) axes = n.require_ints(3, "axes");
  if (n.has(4)) steps = n.require_ints(4, "steps");
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    n.bad("starts, ends, axes and steps", "equal lengths", std::to_string(starts.size()) + " starts");
  ValueId x = n.in(0);
  for (size_t i = 0; i < axes.size(); ++i) {
    if (steps[i] == 0) n.bad("steps", "not 0", "0");
    const int64_t step = std::clamp(steps[i], -kFarAway, kFarAway);
    x = slice_one(n, x, n.axis(axes[i], n.rank(0)), near(starts[i]), near(ends[i]), step);
  }
  n.out(0, x);
}

// --- growth

void expand(NodeContext& n) {
  Shape from = n.shape(0);
  Shape to = n.require_sizes(1, "the shape");
  while (from.size() < to.size()) from.insert(from.begin(), Dim(1));
  while (to.size() < from.size()) to.insert(to.begin(), Dim(1));
  for (size_t i = 0; i < to.size(); ++i)
    if (to[i] == Dim(1)) to[i] = from[i];
  n.out(0, n.broadcast(n.in(0), to));
}

// [a, b] repeated [r, s] times is [r, a, s, b] broadcast, seen as [r a, s b].
void tile(NodeContext& n) {
  const std::vector<Dim> repeats = n.require_sizes(1, "repeats");
  const Shape shape = n.shape(0);
  if (repeats.size() != shape.size())
    n.bad("repeats", std::to_string(shape.size()) + " numbers", std::to_string(repeats.size()));
  Shape thin, wide, result;
  for (size_t i = 0; i < shape.size(); ++i) {
    thin.insert(thin.end(), {Dim(1), shape[i]});
    wide.insert(wide.end(), {repeats[i], shape[i]});
    result.push_back(repeats[i] * shape[i]);
  }
  n.out(0, n.reshape(n.broadcast(n.reshape(n.in(0), thin), wide), result));
}

// Negative pads cut; they are applied first as a slice.
ValueId cut_negative(NodeContext& n, ValueId x, std::vector<Dim>& low, std::vector<Dim>& high) {
  for (size_t i = 0; i < low.size(); ++i) {
    Dim start(0), limit = n.shape_of(x)[i];
    if (n.bounds_of(low[i]).hi < 0) start = Dim(0) - low[i], low[i] = Dim(0);
    if (n.bounds_of(high[i]).hi < 0) limit = limit + high[i], high[i] = Dim(0);
    x = n.slice_axis(x, static_cast<int64_t>(i), start, limit);
  }
  return x;
}

void pad(NodeContext& n) {
  const std::string mode = n.attr_str("mode", "constant");
  if (mode != "constant" && mode != "edge" && mode != "reflect" && mode != "wrap")
    n.unsupported("mode=" + mode);
  const std::vector<Dim> pads = n.require_sizes(1, "pads");
  const size_t rank = static_cast<size_t>(n.rank(0));
  Ints axes;
  for (size_t i = 0; i < rank; ++i) axes.push_back(static_cast<int64_t>(i));
  if (n.has(3)) axes = n.require_ints(3, "axes");
  if (pads.size() != 2 * axes.size())
    n.bad("pads", std::to_string(2 * axes.size()) + " numbers", std::to_string(pads.size()));
  std::vector<Dim> low(rank, Dim(0)), high(rank, Dim(0));
  for (size_t i = 0; i < axes.size(); ++i) {
    const size_t at = static_cast<size_t>(n.axis(axes[i], n.rank(0)));
    low[at] = pads[i];
    high[at] = pads[axes.size() + i];
  }
  const ValueId value = n.has(2) ? n.reshape(n.in(2), {}) : kNoValue;
  const ValueId x = cut_negative(n, n.in(0), low, high);
  n.out(0, n.add(Op::pad, {x, mode == "constant" ? value : kNoValue},
                 {{"low", low}, {"high", high}, {"mode", mode}}));
}

// Crops and pads both halves around the middle, the odd element going behind.
void center_crop_pad(NodeContext& n) {
  const std::vector<Dim> target = n.require_sizes(1, "shape");
  Ints axes = n.attr_ints("axes");
  if (!n.has_attr("axes"))
    for (int64_t i = 0; i < n.rank(0); ++i) axes.push_back(i);
  if (axes.size() != target.size())
    n.bad("shape", std::to_string(axes.size()) + " sizes", std::to_string(target.size()));
  ValueId x = n.in(0);
  std::vector<Dim> low(static_cast<size_t>(n.rank(0)), Dim(0)), high = low;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = n.axis(axes[i], n.rank(0));
    const size_t at = static_cast<size_t>(axis);
    const int64_t size = n.shape_of(x)[at].require_constant("cropped axis"),
                  want = target[i].require_constant("target size");
    if (want < size) x = n.slice_axis(x, axis, (size - want) / 2, (size - want) / 2 + want);
    if (want > size) low[at] = (want - size) / 2, high[at] = want - size - (want - size) / 2;
  }
  n.out(0, n.add(Op::pad, {x, kNoValue}, {{"low", low}, {"high", high}, {"mode", std::string("constant")}}));
}

}  // namespace

std::vector<OpRule> shape_rules() {
  return {
      {"Reshape", reshape},
      {"Flatten", flatten},
      {"Squeeze", squeeze},
      {"Unsqueeze", unsqueeze},
      {"Transpose", transpose},
      {"DepthToSpace", depth_to_space},
      {"SpaceToDepth", space_to_depth},
      {"Concat", concat},
      {"Split", split},
      {"Slice", slice},
      {"Expand", expand},
      {"Tile", tile},
      {"Pad", pad},
      {"CenterCropPad", center_crop_pad},
  };
}

}  // namespace aicf::onnx
