// Recurrent layers step by step and unit by unit, each from its own formula.
#include "ir/recurrent.h"

#include <cmath>

#include "ir/reference/ref_op.h"

namespace aicf::reference {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Sizes, places and the order of the steps.
struct Layer {
  const RefContext& c;
  RecurrentCell cell;
  int64_t directions, length, batch, hidden, gates, kept;

  Layer(const RefContext& context, size_t w, size_t walked)
      : c(context),
        cell(recurrent_cell(context.attrs())),
        directions(direction_count(context.attrs())),
        length(context.x(walked).sizes[0]),
        batch(context.x(walked).sizes[1]),
        hidden(context.x(w).sizes[2]),
        gates(gate_count(cell)),
        kept(kept_count(cell)) {}

  bool is_lstm() const { return cell == RecurrentCell::kLstm; }
  // The step that comes `i`th.
  int64_t step(int64_t d, int64_t i) const { return is_reversed(c.attrs(), d) ? length - 1 - i : i; }
  // Number `k` of `count` of a unit in a tensor [T, B, D count H].
  size_t at(int64_t t, int64_t b, int64_t d, int64_t k, int64_t count, int64_t unit) const {
    return static_cast<size_t>(((t * batch + b) * directions * count + d * count + k) * hidden + unit);
  }
  // In [D, B, H].
  size_t state_at(int64_t d, int64_t b, int64_t unit) const {
    return static_cast<size_t>((d * batch + b) * hidden + unit);
  }
  // In w [D, G H, H], and in bias.
  size_t row(int64_t d, int64_t gate, int64_t unit) const {
    return static_cast<size_t>((d * gates + gate) * hidden + unit);
  }
  // Every op of the decomposition rounds.
  double rounded(double x) const { return c.round_to_dtype() ? round_to(c.x(0).dtype, x) : x; }

  // What the state holds before step `i`, of all units: [T, B, D H] with [D, B, H] in front.
  std::vector<double> before(const RefTensor& states, const RefTensor& first, int64_t d, int64_t i,
                             int64_t b) const {
    std::vector<double> values;
    for (int64_t u = 0; u < hidden; ++u)
      values.push_back(i == 0 ? first.f[state_at(d, b, u)] : states.f[at(step(d, i - 1), b, d, 0, 1, u)]);
    return values;
  }
};

void run_step(const Layer& l, RefResults& results, int64_t d, int64_t i, int64_t b) {
  const RefContext& c = l.c;
  const int64_t t = l.step(d, i);
  const auto r = [&](double x) { return l.rounded(x); };
  const std::vector<double> h = l.before(results[0], c.x(1), d, i, b);
  std::vector<double> cells;
  if (l.is_lstm()) cells = l.before(results[1], c.x(4), d, i, b);
  const auto given = [&](int64_t gate, int64_t unit) { return c.x(0).f[l.at(t, b, d, gate, l.gates, unit)]; };
  const auto own = [&](int64_t gate, int64_t unit) {
    double sum = 0;
    const size_t row = l.row(d, gate, unit);
    for (size_t k = 0; k < h.size(); ++k) sum += h[k] * c.x(2).f[row * h.size() + k];
    return c.has(3) ? r(r(sum) + c.x(3).f[row]) : r(sum);
  };
  const auto keep = [&](int64_t k, int64_t unit, double value) {
    if (!results[2].f.empty()) results[2].f[l.at(t, b, d, k, l.kept, unit)] = value;
  };
  for (int64_t u = 0; u < l.hidden; ++u) {
    const auto both = [&](int64_t gate) { return r(given(gate, u) + own(gate, u)); };
    double& y = results[0].f[l.at(t, b, d, 0, 1, u)];
    const auto unit = static_cast<size_t>(u);
    if (l.is_lstm()) {
      const double in = r(sigmoid(both(0))), forget = r(sigmoid(both(1)));
      const double fresh = r(std::tanh(both(2))), out = r(sigmoid(both(3)));
      const double next = r(r(forget * cells[unit]) + r(in * fresh));
      results[1].f[l.at(t, b, d, 0, 1, u)] = next;
      y = r(out * r(std::tanh(next)));
      keep(0, u, in), keep(1, u, forget), keep(2, u, fresh), keep(3, u, out);
    } else if (l.cell == RecurrentCell::kGru) {
      const double reset = r(sigmoid(both(0))), old = r(sigmoid(both(1))), candidate = own(2, u);
      const double fresh = r(std::tanh(r(given(2, u) + r(reset * candidate))));
      y = r(fresh + r(old * r(h[unit] - fresh)));
      keep(0, u, reset), keep(1, u, old), keep(2, u, fresh), keep(3, u, candidate);
    } else {
      y = l.cell == RecurrentCell::kTanh ? r(std::tanh(both(0))) : max_of(both(0), 0);
    }
  }
}

}  // namespace

RefResults ref_recurrent(const RefContext& c) {
  const Layer l(c, 2, 0);
  RefResults results;
  for (size_t k = 0; k < 3; ++k) results.push_back(c.result(k));
  for (int64_t d = 0; d < l.directions; ++d)
    for (int64_t i = 0; i < l.length; ++i)
      for (int64_t b = 0; b < l.batch; ++b) run_step(l, results, d, i, b);
  return results;
}

namespace {

// One row of one direction from the last step to the first.
void walk_back(const Layer& l, RefResults& results, int64_t d, int64_t b) {
  const RefContext& c = l.c;
  const auto r = [&](double x) { return l.rounded(x); };
  const auto slope = [&](double s) { return r(s * r(1 - s)); };
  const auto bend = [&](double t) { return r(1 - r(t * t)); };
  const auto count = static_cast<size_t>(l.hidden);
  std::vector<double> dh(count, 0.0), dc(count, 0.0);
  for (int64_t i = l.length - 1; i >= 0; --i) {
    const int64_t t = l.step(d, i);
    const std::vector<double> h = l.before(c.x(2), c.x(1), d, i, b);
    std::vector<double> cells, down(count * static_cast<size_t>(l.gates)), direct(count, 0.0);
    if (l.is_lstm()) cells = l.before(c.x(3), c.x(6), d, i, b);
    for (int64_t u = 0; u < l.hidden; ++u) {
      const auto unit = static_cast<size_t>(u);
      const double all = r(c.x(5).f[l.at(t, b, d, 0, 1, u)] + dh[unit]);
      const double y = c.x(2).f[l.at(t, b, d, 0, 1, u)];
      const auto gate = [&](int64_t k) { return c.x(4).f[l.at(t, b, d, k, l.kept, u)]; };
      const auto put = [&](int64_t k, double value, double own) {
        results[0].f[l.at(t, b, d, k, l.gates, u)] = value;
        down[static_cast<size_t>(k) * count + unit] = own;
      };
      if (l.is_lstm()) {
        const double bent = r(std::tanh(c.x(3).f[l.at(t, b, d, 0, 1, u)]));
        double dcell = dc[unit];
        if (c.has(7)) dcell = r(c.x(7).f[l.at(t, b, d, 0, 1, u)] + dcell);
        dcell = r(dcell + r(r(all * gate(3)) * bend(bent)));
        const double into[] = {r(r(dcell * gate(2)) * slope(gate(0))),
                               r(r(dcell * cells[unit]) * slope(gate(1))),
                               r(r(dcell * gate(0)) * bend(gate(2))), r(r(all * bent) * slope(gate(3)))};
        for (int64_t k = 0; k < 4; ++k) put(k, into[k], into[k]);
        dc[unit] = r(dcell * gate(1));
      } else if (l.cell == RecurrentCell::kGru) {
        const double dn = r(r(all * r(1 - gate(1))) * bend(gate(2)));
        const double dz = r(r(all * r(h[unit] - gate(2))) * slope(gate(1)));
        const double dr = r(r(dn * gate(3)) * slope(gate(0)));
        put(0, dr, dr), put(1, dz, dz), put(2, dn, r(dn * gate(0)));
        direct[unit] = r(all * gate(1));
      } else {
        const double value = l.cell == RecurrentCell::kTanh ? r(all * bend(y)) : y > 0 ? all : 0;
        put(0, value, value);
      }
    }
    for (size_t u = 0; u < count; ++u) {
      double sum = 0;
      for (size_t k = 0; k < down.size(); ++k)
        sum += down[k] * c.x(0).f[(static_cast<size_t>(d * l.gates) * count + k) * count + u];
      dh[u] = l.cell == RecurrentCell::kGru ? r(direct[u] + r(sum)) : r(sum);
    }
  }
  for (int64_t u = 0; u < l.hidden; ++u) {
    results[1].f[l.state_at(d, b, u)] = dh[static_cast<size_t>(u)];
    if (l.is_lstm()) results[2].f[l.state_at(d, b, u)] = dc[static_cast<size_t>(u)];
  }
}

}  // namespace

RefResults ref_recurrent_backward(const RefContext& c) {
  const Layer l(c, 0, 2);
  RefResults results;
  for (size_t k = 0; k < 3; ++k) results.push_back(c.result(k));
  for (int64_t d = 0; d < l.directions; ++d)
    for (int64_t b = 0; b < l.batch; ++b) walk_back(l, results, d, b);
  return results;
}

}  // namespace aicf::reference
