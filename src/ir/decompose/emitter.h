// Terse graph building for decompositions: every emitted node carries the origin of the composite that it
// comes from. Also declares decompose_<name> for each AICF_COMPOSITE row of ops.def, so a row without one
// fails to link.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace aicf {

using Values = std::vector<ValueId>;

class Emitter {
 public:
  Emitter(Graph& graph, const std::string& origin) : graph_(graph), origin_(origin) {}

  const Shape& shape(ValueId id) const { return graph_.shape(id); }
  DType dtype(ValueId id) const { return graph_.dtype(id); }
  int64_t rank(ValueId id) const { return static_cast<int64_t>(graph_.shape(id).size()); }

  ValueId op(Op op, std::vector<ValueId> operands, Attrs attrs = {});
  // The results of an op with several.
  Values ops(Op op, std::vector<ValueId> operands, Attrs attrs, std::vector<Graph> bodies = {});
  ValueId add(ValueId x, ValueId y) { return op(Op::add, {x, y}); }
  ValueId sub(ValueId x, ValueId y) { return op(Op::sub, {x, y}); }
  ValueId mul(ValueId x, ValueId y) { return op(Op::mul, {x, y}); }
  ValueId div(ValueId x, ValueId y) { return op(Op::div, {x, y}); }
  ValueId exp(ValueId x) { return op(Op::exp, {x}); }
  ValueId select(ValueId condition, ValueId x, ValueId y) { return op(Op::select, {condition, x, y}); }

  const std::string& origin() const { return origin_; }
  // A scalar constant, rounded once to dtype.
  ValueId scalar(DType dtype, double value) { return graph_.add_constant(Array::scalar_f64(dtype, value)); }
  ValueId scalar_int(DType dtype, int64_t value) {
    return graph_.add_constant(Array::scalar_i64(dtype, value));
  }
  // The value of a size as a scalar: a constant where it is known.
  ValueId size(const Dim& size, DType dtype);

  // x itself where nothing changes.
  ValueId cast(ValueId x, DType dtype);
  ValueId reshape(ValueId x, Shape shape);
  // f32 for f16 and bf16; anything else, kNoValue too, stays.
  ValueId widen(ValueId x);

  ValueId reduce(Op reduction, ValueId x, const Ints& axes, bool keepdims);
  // Sum over axes divided by the element count; floats only.
  ValueId mean(ValueId x, const Ints& axes, bool keepdims);
  // x[..., start:limit] along the last axis.
  ValueId slice_last(ValueId x, const Dim& start, const Dim& limit);
  ValueId concat_last(std::vector<ValueId> xs);
  // A vector over the channels, reshaped to broadcast along axis 1 of a tensor of this rank.
  ValueId along_channels(ValueId vector, int64_t rank);

 private:
  Graph& graph_;
  const std::string& origin_;
};

// The axes first .. rank-1.
Ints axes_from(int64_t first, int64_t rank);

// Statistics of group_norm over x [n, channels, …], which its derivative needs again: those of each channel
// first, in x's own axes, so that x is read in order however it lies, and those of the groups from these.
struct GroupMoments {
  ValueId channel_mean;  // [n, channels, 1…]
  ValueId mean, r;       // [n, groups, 1], r = 1 / sqrt(variance + epsilon)
  ValueId apart;         // [n, groups, channels / groups]: channel_mean - mean
};
GroupMoments group_moments(Emitter& e, ValueId x, int64_t groups, double epsilon);
// A vector over the channels as [1, groups, channels / groups]; kNoValue stays.
ValueId by_group(Emitter& e, ValueId channels, int64_t groups);
// A value of each group, [n, groups, 1], for each of its channels.
ValueId to_channels(Emitter& e, ValueId of_group, const GroupMoments& moments);
// [n, groups, channels / groups] as [n, channels, 1…], which broadcasts to `like`.
ValueId along_space(Emitter& e, ValueId grouped, const Shape& like);

// What a recurrent layer's state was before each step, from what it was after them, [T, B, H], and before the
// first, [B, H].
ValueId states_before(Emitter& e, ValueId states, ValueId first, bool reverse);

#define AICF_OP(...)
#define AICF_POINTWISE(...)
#define AICF_COMPOSITE(name, operands, types, attributes, results, traits, shape_rule, meaning) \
  Values decompose_##name(Emitter& e, const Node& node, const Values& x);
#include "ir/ops.def"
#undef AICF_OP

}  // namespace aicf
