#include "compile/testing/error_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "ir/primitives.h"
#include "ir/reference/error_rules.h"
#include "ir/reference/ref_op.h"

namespace aicf::testing {
namespace {

using reference::ErrorRule;
using reference::RefContext;
using reference::RefTensor;
using reference::RefValue;

constexpr double kExcluded = std::numeric_limits<double>::infinity();

double epsilon(DType t) { return 2 * reference::unit_roundoff(t); }
double tiny(DType t) { return t == DType::f64 ? 1e-300 : t == DType::f16 ? 0x1p-23 : 1e-36; }
double largest(DType t) { return t == DType::f64 ? 1e300 : t == DType::f16 ? 65504.0 : 3e38; }

class BoundRun {
 public:
  BoundRun(const Graph& graph, const SymbolValues& sizes)
      : graph_(graph), sizes_(sizes), values_(static_cast<size_t>(graph.value_count())) {}
  void set(ValueId id, Bounded value) { values_[static_cast<size_t>(id)] = std::move(value); }
  const Bounded& get(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  void run() {
    for (const Node& node : graph_.nodes()) step(node);
  }

 private:
  // The op over other operand contents, results as f64 where a float tensor was put for an integer one.
  std::vector<RefTensor> apply(const Node& node, std::vector<RefValue> operands, bool as_f64) const {
    RefContext context{node, std::move(operands), {}, {}, sizes_, {false}};
    for (ValueId id : node.results) {
      context.result_dtypes.push_back(as_f64 ? DType::f64 : graph_.dtype(id));
      context.result_sizes.push_back(evaluate(graph_.shape(id), sizes_));
    }
    std::vector<RefTensor> results = reference::call_reference(context);
    for (RefTensor& t : results) reference::normalize(t, false);
    return results;
  }
  template <typename Body>
  std::vector<RefValue> operands(const Node& node, Body&& body) const {
    std::vector<RefValue> out;
    for (size_t k = 0; k < node.operands.size(); ++k)
      out.push_back(node.operands[k] == kNoValue
                        ? nullptr
                        : std::make_shared<RefTensor>(body(k, get(node.operands[k]))));
    return out;
  }
  static RefTensor as_f64(const Bounded& x, const std::vector<double>& f) {
    RefTensor t;
    t.dtype = DType::f64;
    t.sizes = x.value.sizes;
    t.f = f;
    return t;
  }
  static RefTensor plain(size_t, const Bounded& x) { return x.value; }

  void step(const Node& node) {
    std::vector<RefTensor> exact = apply(node, operands(node, plain), false);
    std::vector<std::vector<double>> bounds = propagate(node, exact);
    for (size_t k = 0; k < exact.size(); ++k) {
      limit(exact[k], bounds[k]);
      set(node.results[k], {std::move(exact[k]), std::move(bounds[k])});
    }
  }
  static void limit(const RefTensor& value, std::vector<double>& bound) {
    for (size_t i = 0; i < bound.size(); ++i) {
      double& b = bound[i];
      if (std::isnan(b) || b < 0) b = kExcluded;
      if (!value.is_float()) {
        b = b > 0 ? kExcluded : 0;
        continue;
      }
      if (!std::isfinite(value.f[i]) || std::fabs(value.f[i]) + b > largest(value.dtype)) b = kExcluded;
    }
  }

  std::vector<std::vector<double>> propagate(const Node& node, const std::vector<RefTensor>& exact) const {
    const OpInfo& info = op_info(node.op);
    const ErrorRule rule = reference::error_rule(node.op);
    switch (node.op) {
      case Op::reshape:
      case Op::transpose:
      case Op::broadcast_to:
      case Op::slice:
      case Op::reverse:
      case Op::concat:
      case Op::pad: {
        return {
            apply(node, operands(node, [](size_t, const Bounded& x) { return as_f64(x, x.bound); }), true)[0]
                .f};
      }
      case Op::gather: {
        if (tainted(node.operands[1])) break;
        return {apply(node,
                      operands(node, [](size_t k,
                                        const Bounded& x) { return k == 0 ? as_f64(x, x.bound) : x.value; }),
                      true)[0]
                    .f};
      }
      case Op::reduce_max:
      case Op::reduce_min:
      case Op::max_pool: {
        Node largest_bound = node;
        if (node.op == Op::reduce_min) largest_bound.op = Op::reduce_max;
        return {apply(largest_bound,
                      operands(node, [](size_t, const Bounded& x) { return as_f64(x, x.bound); }), true)[0]
                    .f};
      }
      case Op::scatter_elements:
      case Op::scatter_nd:
        break;
      case Op::sort:
        if (exact[0].is_float()) return sorted(node, exact);
        break;
      default:
        if (exact[0].is_float() && (rule == ErrorRule::kSum || rule == ErrorRule::kProduct))
          return {majorant(node, exact[0].dtype)};
        if (info.has(kPointwise)) return {pointwise(node, exact[0])};
    }
    return everything(node, exact);
  }

  bool tainted(ValueId id) const {
    for (double b : get(id).bound)
      if (b > 0) return true;
    return false;
  }
  // All or nothing: exact if every operand is exact.
  std::vector<std::vector<double>> everything(const Node& node, const std::vector<RefTensor>& exact) const {
    bool any = false;
    for (ValueId id : node.operands) any = any || (id != kNoValue && tainted(id));
    std::vector<std::vector<double>> bounds;
    for (const RefTensor& t : exact)
      bounds.emplace_back(static_cast<size_t>(t.count()), any ? kExcluded : 0.0);
    return bounds;
  }
  std::vector<std::vector<double>> sorted(const Node& node, const std::vector<RefTensor>& exact) const {
    double largest_bound = 0;
    for (double b : get(node.operands[0]).bound) largest_bound = std::max(largest_bound, b);
    const auto n = static_cast<size_t>(exact[0].count());
    return {std::vector<double>(n, largest_bound),
            std::vector<double>(n, largest_bound > 0 ? kExcluded : 0.0)};
  }

  // Sums and products of magnitudes bound what errors in the operands and every rounding on the way can add.
  std::vector<double> majorant(const Node& node, DType dtype) const {
    double length = 4;
    for (ValueId id : node.operands)
      if (id != kNoValue) length = std::max(length, static_cast<double>(get(id).value.count()));
    const auto magnitude = [](const Bounded& x, bool wide) {
      RefTensor t = as_f64(x, x.value.f);
      for (size_t i = 0; i < t.f.size(); ++i)
        t.f[i] =
            std::isfinite(x.bound[i]) ? std::fabs(t.f[i]) + (wide ? x.bound[i] : 0) : (wide ? kExcluded : 0);
      return t;
    };
    const RefTensor low =
        apply(node, operands(node, [&](size_t, const Bounded& x) { return magnitude(x, false); }), true)[0];
    RefTensor high =
        apply(node, operands(node, [&](size_t, const Bounded& x) { return magnitude(x, true); }), true)[0];
    // The largest product of some of the factors: a part may overflow, or be what an underflow of others
    // meets, though the whole is small or 0.
    std::vector<double> part(high.f.size(), 1);
    if (reference::error_rule(node.op) == ErrorRule::kProduct) {
      const auto at_least_one = [&](size_t, const Bounded& x) {
        RefTensor t = magnitude(x, true);
        for (double& f : t.f) f = std::max(f, 1.0);
        return t;
      };
      part = apply(node, operands(node, at_least_one), true)[0].f;
    }
    const double rounding = 2 * epsilon(dtype) + (length + 8) * (dtype == DType::f64 ? 0x1p-52 : 0x1p-23);
    for (size_t i = 0; i < high.f.size(); ++i) {
      const double spread = high.f[i] - low.f[i];
      const bool bounded = high.f[i] <= largest(dtype) && part[i] <= largest(dtype);
      high.f[i] = bounded ? 2 * spread + rounding * high.f[i] + length * tiny(dtype) * part[i] : kExcluded;
    }
    return high.f;
  }

  static bool decides(Op op) {
    switch (op) {
      case Op::eq:
      case Op::ne:
      case Op::lt:
      case Op::le:
      case Op::gt:
      case Op::ge:
      case Op::is_nan:
      case Op::is_inf:
        return true;
      default:
        return false;
    }
  }
  static bool steps(Op op) {
    return op == Op::floor || op == Op::ceil || op == Op::trunc || op == Op::round || op == Op::round_tf32 ||
           op == Op::sign;
  }
  std::vector<double> pointwise(const Node& node, const RefTensor& exact) const {
    const auto n = static_cast<size_t>(exact.count());
    std::vector<std::vector<double>> bounds;
    std::vector<RefTensor> full;
    bool moved = false;
    for (ValueId id : node.operands) {
      bounds.push_back(reference::expand(as_f64(get(id), get(id).bound), exact.sizes).f);
      full.push_back(reference::expand(get(id).value, exact.sizes));
      moved = moved || tainted(id);
    }
    std::vector<double> out(n, 0.0);
    if (node.op == Op::select) {
      for (size_t i = 0; i < n; ++i)
        out[i] = bounds[0][i] > 0 ? kExcluded : full[0].i[i] != 0 ? bounds[1][i] : bounds[2][i];
      return out;
    }
    const bool from_float = full[0].is_float();
    if (moved && from_float) corners(node, exact, bounds, full, out);
    for (size_t i = 0; i < n; ++i) {
      bool excluded = false;
      for (const auto& b : bounds) excluded = excluded || !std::isfinite(b[i]);
      if (from_float && decides(node.op) && full.size() == 2) {
        const double reach = bounds[0][i] + bounds[1][i];
        excluded = excluded || (reach > 0 && !(std::fabs(full[0].f[i] - full[1].f[i]) > reach));
      }
      // Whether a value is zero is not decided by the ends of its interval.
      if (from_float && node.op == Op::cast && exact.dtype == DType::boolean)
        excluded = excluded || (bounds[0][i] > 0 && !(std::fabs(full[0].f[i]) > bounds[0][i]));
      if (excluded) {
        out[i] = kExcluded;
      } else if (exact.is_float()) {
        const double size = std::fabs(exact.f[i]);
        if (steps(node.op) || (node.op == Op::cast && !from_float)) {
          out[i] = out[i] > 0 ? kExcluded : node.op == Op::cast ? epsilon(exact.dtype) * size : 0;
        } else if (reference::error_rule(node.op) != ErrorRule::kNone) {
          const bool angle = reference::error_rule(node.op) == ErrorRule::kAngle;
          out[i] += epsilon(exact.dtype) * (size + out[i]) * (angle ? 32 : 8) +
                    (angle ? 4 * epsilon(exact.dtype) : 0) + tiny(exact.dtype);
        }
      }
    }
    return out;
  }
  // Twice the largest change when every operand moves to either end of its bound.
  void corners(const Node& node, const RefTensor& exact, const std::vector<std::vector<double>>& bounds,
               const std::vector<RefTensor>& full, std::vector<double>& out) const {
    for (size_t corner = 0; corner < (size_t{1} << full.size()); ++corner) {
      std::vector<RefValue> moved;
      for (size_t k = 0; k < full.size(); ++k) {
        RefTensor t = full[k];
        for (size_t i = 0; i < t.f.size(); ++i)
          if (std::isfinite(bounds[k][i])) t.f[i] += (corner >> k & 1) != 0 ? bounds[k][i] : -bounds[k][i];
        moved.push_back(std::make_shared<RefTensor>(std::move(t)));
      }
      const RefTensor result = apply(node, std::move(moved), false)[0];
      for (size_t i = 0; i < out.size(); ++i) {
        const double change = exact.is_float()            ? 2 * std::fabs(result.f[i] - exact.f[i])
                              : result.i[i] != exact.i[i] ? kExcluded
                                                          : 0;
        out[i] = std::isnan(change) ? kExcluded : std::max(out[i], change);
      }
    }
    // Between the ends a wave may go further than at them; it never changes by more than its angle, nor by 2.
    for (size_t i = 0; (node.op == Op::sin || node.op == Op::cos) && i < out.size(); ++i)
      out[i] = std::max(out[i], std::min(bounds[0][i], 2.0));
    const bool wraps = node.op == Op::rem || node.op == Op::mod || node.op == Op::div ||
                       node.op == Op::atan2 || node.op == Op::pow || node.op == Op::tan;
    for (size_t i = 0; wraps && i < out.size(); ++i) {
      const double reach = bounds.back()[i];
      // What it goes through infinity at: zero, or for a tangent the nearest odd multiple of pi / 2.
      const double at = full.back().f[i];
      const double divisor =
          std::fabs(node.op == Op::tan ? std::remainder(at - std::numbers::pi / 2, std::numbers::pi) : at);
      if (reach > 0.25 * divisor) out[i] = reach > 0 ? kExcluded : out[i];
      if ((node.op == Op::rem || node.op == Op::mod) &&
          bounds[0][i] + reach * (1 + std::fabs(full[0].f[i] / divisor)) > 0.25 * divisor)
        out[i] = kExcluded;
    }
  }

  const Graph& graph_;
  const SymbolValues& sizes_;
  std::vector<Bounded> values_;
};

}  // namespace

std::map<std::string, Bounded> bounded_outputs(const Program& program,
                                               const std::map<std::string, Array>& inputs,
                                               const SymbolValues& sizes) {
  const Graph graph = primitives(program.entries[0]);
  BoundRun run(graph, sizes);
  for (ValueId id : graph.leaves()) {
    const Value& value = graph.value(id);
    const Array& array = value.role == Role::kInput      ? inputs.at(value.name)
                         : value.role == Role::kConstant ? value.constant
                                                         : program.variables.find(value.name)->second.data;
    RefTensor tensor = reference::from_array(array, value.type.dtype);
    const auto n = static_cast<size_t>(tensor.count());
    run.set(id, {std::move(tensor), std::vector<double>(n, 0.0)});
  }
  run.run();
  std::map<std::string, Bounded> out;
  for (size_t i = 0; i < graph.outputs().size(); ++i)
    out[graph.output_names()[i]] = run.get(graph.outputs()[i]);
  for (const Update& update : graph.updates())
    out["update:" + graph.value(update.variable).name] = run.get(update.value);
  return out;
}

}  // namespace aicf::testing
