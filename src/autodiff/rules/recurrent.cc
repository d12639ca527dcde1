// Recurrent layers: the steps backward are an op of their own; weights then have products over all steps.
#include "ir/recurrent.h"

#include "autodiff/vjp.h"

namespace aicf {
namespace {

// Of what w's product with the state adds to the gates, [T, B, G H], from that of the gates' sums: a GRU
// multiplies the candidate's by its reset gate.
ValueId own_gradient(Emitter& e, RecurrentCell cell, ValueId dx, ValueId gates, const Dim& hidden) {
  if (cell != RecurrentCell::kGru) return dx;
  const Dim both = hidden * Dim(2);
  const ValueId candidate = e.mul(e.slice_last(dx, both, hidden * Dim(3)), e.slice_last(gates, 0, hidden));
  return e.concat_last({e.slice_last(dx, 0, both), candidate});
}

ValueId stacked(Emitter& e, const Values& parts) {
  return parts.size() == 1 ? parts[0] : e.op(Op::concat, parts, {{"axis", int64_t{0}}});
}

}  // namespace

Values vjp_recurrent(const Vjp& v) {
  const bool keep = v.attrs().get_bool("keep");
  if (keep && v.dy(2) != kNoValue) return kDifferentiateDecomposition;
  Emitter& e = v.e;
  const RecurrentCell cell = recurrent_cell(v.attrs());
  const Shape w_shape = e.shape(v.x(2)), y_shape = e.shape(v.y());
  const DType dtype = e.dtype(v.x());
  Values made = v.node.results;
  if (!keep) {
    Attrs attrs = v.attrs();
    attrs.set("keep", true);
    made = e.ops(Op::recurrent, v.node.operands, attrs);
  }
  const ValueId dy = v.dy() != kNoValue ? v.dy() : filled(e, dtype, y_shape);
  const ValueId dcells = cell == RecurrentCell::kLstm ? v.dy(1) : kNoValue;
  const Values back =
      e.ops(Op::recurrent_backward, {v.x(2), v.x(1), made[0], made[1], made[2], dy, v.x(4), dcells},
            {{"cell", v.attrs().get_str("cell")}, {"direction", v.attrs().get_str("direction")}});
  Values dw, dbias;
  const Dim &hidden = w_shape[2], &gates = w_shape[1], rows = y_shape[0] * y_shape[1];
  for (int64_t d = 0; d < direction_count(v.attrs()); ++d) {
    const auto of_d = [&](ValueId x, const Dim& width) {
      return e.slice_last(x, width * Dim(d), width * Dim(d + 1));
    };
    const ValueId kept = kept_count(cell) > 0 ? of_d(made[2], hidden * Dim(4)) : kNoValue;
    const ValueId own = own_gradient(e, cell, of_d(back[0], gates), kept, hidden);
    if (v.wants(2)) {
      const Shape h_shape = e.shape(v.x(1));
      const ValueId first = e.reshape(
          cut(e, v.x(1), {Dim(d), Dim(0), Dim(0)}, {Dim(d + 1), h_shape[1], hidden}), {h_shape[1], hidden});
      const ValueId before = states_before(e, of_d(made[0], hidden), first, is_reversed(v.attrs(), d));
      const ValueId product =
          e.op(Op::matmul, {e.reshape(own, {rows, gates}), e.reshape(before, {rows, hidden})},
               {{"transpose_x", true}});
      dw.push_back(e.reshape(product, {Dim(1), gates, hidden}));
    }
    if (v.wants(3)) dbias.push_back(e.reshape(e.reduce(Op::reduce_sum, own, {0, 1}, false), {Dim(1), gates}));
  }
  return {back[0], back[1], dw.empty() ? kNoValue : stacked(e, dw),
          dbias.empty() ? kNoValue : stacked(e, dbias), cell == RecurrentCell::kLstm ? back[2] : kNoValue};
}

}  // namespace aicf
