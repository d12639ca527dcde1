// Recurrent layers and their gradients: a walk over the steps, unrolled where these are few.
#include "ir/recurrent.h"

#include <functional>

#include "ir/decompose/emitter.h"

namespace aicf {
namespace {

// Steps, at most, that become nodes of the graph around them: they are fused, their weights packed.
constexpr int64_t kUnrolledSteps = 128;

// What one step makes: the carried values that follow, and rows of results.
struct CellStep {
  Values carried, rows;
};
// Over the carried values, those that all steps read (kNoValue where absent) and a row of each walked one.
using StepFunction =
    std::function<CellStep(Emitter& e, const Values& carried, const Values& kept, const Values& rows)>;

// x without its first axis, at index `at`.
ValueId row_of(Emitter& e, ValueId x, int64_t at) {
  Shape starts(e.shape(x).size(), Dim(0)), limits = e.shape(x);
  starts[0] = Dim(at);
  limits[0] = Dim(at + 1);
  Shape row(limits.begin() + 1, limits.end());
  const Ints steps(starts.size(), 1);
  return e.reshape(e.op(Op::slice, {x}, {{"starts", starts}, {"limits", limits}, {"steps", steps}}), row);
}

ValueId as_row(Emitter& e, ValueId x) {
  Shape shape = e.shape(x);
  shape.insert(shape.begin(), Dim(1));
  return e.reshape(x, shape);
}

struct Walk {
  Values last, stacked;  // carried values after the last step, rows of results along a first axis
};

Walk unrolled(Emitter& e, int64_t length, bool reverse, Values carried, const Values& kept,
              const Values& walked, const StepFunction& step) {
  std::vector<Values> stacks;
  for (int64_t i = 0; i < length; ++i) {
    Values rows;
    for (ValueId x : walked) rows.push_back(row_of(e, x, reverse ? length - 1 - i : i));
    CellStep made = step(e, carried, kept, rows);
    carried = std::move(made.carried);
    stacks.resize(made.rows.size());
    for (size_t k = 0; k < made.rows.size(); ++k) {
      const ValueId row = as_row(e, made.rows[k]);
      stacks[k].insert(reverse ? stacks[k].begin() : stacks[k].end(), row);
    }
  }
  Walk walk{std::move(carried), {}};
  for (Values& stack : stacks)
    walk.stacked.push_back(e.op(Op::concat, std::move(stack), {{"axis", int64_t{0}}}));
  return walk;
}

Walk scanned(Emitter& e, bool reverse, const Values& carried, const Values& kept, const Values& walked,
             const StepFunction& step) {
  Graph body("step");
  Emitter inner(body, e.origin());
  Values operands, own_kept;
  const auto input = [&](ValueId x, bool is_row) {
    if (x == kNoValue) return kNoValue;
    TensorType type{e.dtype(x), e.shape(x)};
    if (is_row) type.shape.erase(type.shape.begin());
    operands.push_back(x);
    return body.add_input("in" + std::to_string(operands.size()), std::move(type));
  };
  Values state, rows;
  for (ValueId x : carried) state.push_back(input(x, false));
  for (ValueId x : kept) own_kept.push_back(input(x, false));
  const auto count = static_cast<int64_t>(operands.size());
  for (ValueId x : walked) rows.push_back(input(x, true));
  const CellStep made = step(inner, state, own_kept, rows);
  int outputs = 0;
  const auto output = [&](ValueId x) {
    if (x != kNoValue) body.add_output(x, "out" + std::to_string(++outputs));
  };
  for (ValueId x : made.carried) output(x);
  for (ValueId x : own_kept) output(x);
  for (ValueId x : made.rows) output(x);
  const Values results = e.ops(Op::scan, operands, {{"carried", count}, {"reverse", reverse}}, {body});
  const auto end = results.begin();
  return {{end, end + static_cast<std::ptrdiff_t>(carried.size())}, {end + count, results.end()}};
}

Walk walk_steps(Emitter& e, bool reverse, const Values& carried, const Values& kept, const Values& walked,
                const StepFunction& step) {
  const auto length = e.shape(walked[0])[0].constant();
  if (length && *length > 0 && *length <= kUnrolledSteps)
    return unrolled(e, *length, reverse, carried, kept, walked, step);
  return scanned(e, reverse, carried, kept, walked, step);
}

// Part `index` of x's last axis, which holds parts of this width.
ValueId part(Emitter& e, ValueId x, int64_t index, const Dim& width) {
  return e.slice_last(x, width * Dim(index), width * Dim(index + 1));
}

// x [D, …] of a direction; kNoValue stays.
ValueId of_direction(Emitter& e, ValueId x, int64_t direction) {
  return x == kNoValue ? x : row_of(e, x, direction);
}

ValueId zeros(Emitter& e, DType dtype, const Shape& shape) {
  return e.op(Op::broadcast_to, {e.scalar(dtype, 0)}, {{"shape", shape}});
}

ValueId one_minus(Emitter& e, ValueId x) { return e.sub(e.scalar(e.dtype(x), 1), x); }

ValueId sigmoid(Emitter& e, ValueId x) { return e.op(Op::sigmoid, {x}); }
ValueId tanh(Emitter& e, ValueId x) { return e.op(Op::tanh, {x}); }

// The state after a step, h and of an LSTM c; then h, c and what is kept as rows of results.
CellStep cell_step(Emitter& e, RecurrentCell cell, bool keep, const Values& state, const Values& kept,
                   ValueId x) {
  const Dim hidden = e.shape(state[0])[1];
  const ValueId own = e.op(Op::linear, {state[0], kept[0], kept[1]}, {{"transpose_w", true}});
  Values next, gates;
  if (cell == RecurrentCell::kLstm) {
    const ValueId sum = e.add(x, own);
    const ValueId i = sigmoid(e, part(e, sum, 0, hidden)), f = sigmoid(e, part(e, sum, 1, hidden));
    const ValueId g = tanh(e, part(e, sum, 2, hidden)), o = sigmoid(e, part(e, sum, 3, hidden));
    const ValueId c = e.add(e.mul(f, state[1]), e.mul(i, g));
    next = {e.mul(o, tanh(e, c)), c};
    gates = {i, f, g, o};
  } else if (cell == RecurrentCell::kGru) {
    const auto both = [&](int64_t at) { return e.add(part(e, x, at, hidden), part(e, own, at, hidden)); };
    const ValueId r = sigmoid(e, both(0)), candidate = part(e, own, 2, hidden);
    const ValueId n = tanh(e, e.add(part(e, x, 2, hidden), e.mul(r, candidate)));
    const ValueId z = sigmoid(e, both(1));
    next = {e.add(n, e.mul(z, e.sub(state[0], n)))};
    gates = {r, z, n, candidate};
  } else {
    const ValueId sum = e.add(x, own);
    next = {e.op(cell == RecurrentCell::kTanh ? Op::tanh : Op::relu, {sum})};
  }
  CellStep made{next, next};
  if (keep && !gates.empty()) made.rows.push_back(e.concat_last(gates));
  return made;
}

// Of the gates' sums, as x has them and as w's product has them, and of the state before the step.
struct CellGradient {
  ValueId dx, down;
  Values state;  // beside what the product with w adds: dh if there is any, and dc of an LSTM
};

CellGradient cell_gradient(Emitter& e, RecurrentCell cell, ValueId dh, const Values& rows, ValueId dc) {
  const ValueId y = rows[1], before = rows[2];
  const Dim hidden = e.shape(dh)[1];
  if (cell == RecurrentCell::kTanh || cell == RecurrentCell::kRelu) {
    const ValueId zero = e.scalar(e.dtype(y), 0);
    const ValueId dsum = cell == RecurrentCell::kTanh ? e.mul(dh, one_minus(e, e.mul(y, y)))
                                                      : e.select(e.op(Op::gt, {y, zero}), dh, zero);
    return {dsum, dsum, {}};
  }
  const ValueId kept = rows[3];
  const auto gate = [&](int64_t at) { return part(e, kept, at, hidden); };
  const auto through_sigmoid = [&](ValueId d, ValueId s) { return e.mul(d, e.mul(s, one_minus(e, s))); };
  const auto through_tanh = [&](ValueId d, ValueId t) { return e.mul(d, one_minus(e, e.mul(t, t))); };
  if (cell == RecurrentCell::kGru) {
    const ValueId r = gate(0), z = gate(1), n = gate(2);
    const ValueId dn = through_tanh(e.mul(dh, one_minus(e, z)), n);
    const ValueId dz = through_sigmoid(e.mul(dh, e.sub(before, n)), z);
    const ValueId dr = through_sigmoid(e.mul(dn, gate(3)), r);
    return {e.concat_last({dr, dz, dn}), e.concat_last({dr, dz, e.mul(dn, r)}), {e.mul(dh, z)}};
  }
  const ValueId i = gate(0), f = gate(1), g = gate(2), o = gate(3);
  const ValueId bent = tanh(e, rows[4]);
  const ValueId all = e.add(dc, through_tanh(e.mul(dh, o), bent));
  const ValueId dsum =
      e.concat_last({through_sigmoid(e.mul(all, g), i), through_sigmoid(e.mul(all, rows[5]), f),
                     through_tanh(e.mul(all, i), g), through_sigmoid(e.mul(dh, bent), o)});
  return {dsum, dsum, {e.mul(all, f)}};
}

}  // namespace

// A size that is not known may be 0: the joined states, one more than there are steps, are cut then.
ValueId states_before(Emitter& e, ValueId states, ValueId first, bool reverse) {
  const Shape shape = e.shape(states);
  const auto length = shape[0].constant();
  if (length == 0) return states;
  const auto cut = [&](ValueId x, const Dim& from, const Dim& to) {
    const Shape starts = {from, Dim(0), Dim(0)}, limits = {to, shape[1], shape[2]};
    return e.op(Op::slice, {x}, {{"starts", starts}, {"limits", limits}, {"steps", Ints(3, 1)}});
  };
  const auto joined = [&](ValueId rest) {
    const ValueId start = as_row(e, first);
    return e.op(Op::concat, reverse ? Values{rest, start} : Values{start, rest}, {{"axis", int64_t{0}}});
  };
  if (!length)
    return reverse ? cut(joined(states), Dim(1), shape[0] + Dim(1)) : cut(joined(states), Dim(0), shape[0]);
  if (*length == 1) return as_row(e, first);
  return joined(reverse ? cut(states, Dim(1), shape[0]) : cut(states, Dim(0), shape[0] - Dim(1)));
}

Values decompose_recurrent(Emitter& e, const Node& node, const Values& x) {
  const RecurrentCell cell = recurrent_cell(node.attrs);
  const bool keep = node.attrs.get_bool("keep");
  const Dim length = e.shape(x[0])[0], batch = e.shape(x[0])[1], hidden = e.shape(x[1])[2];
  std::vector<Values> columns(3);
  for (int64_t d = 0; d < direction_count(node.attrs); ++d) {
    Values state = {of_direction(e, x[1], d)};
    if (cell == RecurrentCell::kLstm) state.push_back(of_direction(e, x[4], d));
    const Values kept = {of_direction(e, x[2], d), of_direction(e, x[3], d)};
    const ValueId given = part(e, x[0], d, hidden * Dim(gate_count(cell)));
    Walk walk = walk_steps(e, is_reversed(node.attrs, d), state, kept, {given},
                           [&](Emitter& in, const Values& carried, const Values& weights, const Values& row) {
                             return cell_step(in, cell, keep, carried, weights, row[0]);
                           });
    if (cell != RecurrentCell::kLstm && walk.stacked.size() > 1)
      walk.stacked.insert(walk.stacked.begin() + 1, kNoValue);
    for (size_t k = 0; k < walk.stacked.size(); ++k)
      if (walk.stacked[k] != kNoValue) columns[k].push_back(walk.stacked[k]);
  }
  Values results;
  for (Values& column : columns) {
    if (column.empty())
      results.push_back(zeros(e, e.dtype(x[0]), {length, batch, Dim(0)}));
    else
      results.push_back(column.size() == 1 ? column[0] : e.concat_last(column));
  }
  return results;
}

Values decompose_recurrent_backward(Emitter& e, const Node& node, const Values& x) {
  const RecurrentCell cell = recurrent_cell(node.attrs);
  const bool has_cells = cell == RecurrentCell::kLstm;
  const ValueId w = x[0], h = x[1], y = x[2], cells = x[3], gates = x[4], dy = x[5], c = x[6], dcells = x[7];
  const Dim hidden = e.shape(h)[2], batch = e.shape(h)[1];
  const int64_t directions = direction_count(node.attrs);
  Values dx, dh, dc;
  for (int64_t d = 0; d < directions; ++d) {
    const bool reverse = is_reversed(node.attrs, d);
    const ValueId own_y = part(e, y, d, hidden);
    Values walked = {part(e, dy, d, hidden), own_y, states_before(e, own_y, of_direction(e, h, d), reverse)};
    if (kept_count(cell) > 0) walked.push_back(part(e, gates, d, hidden * Dim(kept_count(cell))));
    if (has_cells) {
      const ValueId own = part(e, cells, d, hidden);
      walked.insert(walked.end(), {own, states_before(e, own, of_direction(e, c, d), reverse)});
      if (dcells != kNoValue) walked.push_back(part(e, dcells, d, hidden));
    }
    const ValueId none = zeros(e, e.dtype(y), {batch, hidden});
    const Values start = has_cells ? Values{none, none} : Values{none};
    const StepFunction back = [&](Emitter& in, const Values& carried, const Values& kept,
                                  const Values& rows) {
      const ValueId dh_here = in.add(rows[0], carried[0]);
      ValueId dc_here = has_cells ? carried[1] : kNoValue;
      if (rows.size() > 6) dc_here = in.add(rows[6], dc_here);
      CellGradient g = cell_gradient(in, cell, dh_here, rows, dc_here);
      ValueId before = in.op(Op::matmul, {g.down, kept[0]});
      CellStep made;
      if (cell == RecurrentCell::kGru) before = in.add(g.state[0], before);
      made.carried = {before};
      if (has_cells) made.carried.push_back(g.state[0]);
      made.rows = {g.dx};
      return made;
    };
    const Walk walk = walk_steps(e, !reverse, start, {of_direction(e, w, d)}, walked, back);
    dx.push_back(walk.stacked[0]);
    dh.push_back(as_row(e, walk.last[0]));
    if (has_cells) dc.push_back(as_row(e, walk.last[1]));
  }
  const auto stacked = [&](const Values& parts) {
    return parts.size() == 1 ? parts[0] : e.op(Op::concat, parts, {{"axis", int64_t{0}}});
  };
  return {dx.size() == 1 ? dx[0] : e.concat_last(dx), stacked(dh),
          has_cells ? stacked(dc) : zeros(e, e.dtype(y), {Dim(directions), batch, Dim(0)})};
}

}  // namespace aicf
