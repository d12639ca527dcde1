// What a Dim is once something is known of its symbols: their values, other Dims, or ranges.
#include <algorithm>

#include "base/dim_function.h"
#include "base/error.h"
#include "base/option_text.h"

namespace aicf {
namespace {

constexpr int64_t kUnboundedSize = int64_t{1} << 31;

Interval multiply(Interval a, Interval b) {
  return span(checked_mul(a.lo, b.lo), checked_mul(a.lo, b.hi), checked_mul(a.hi, b.lo),
              checked_mul(a.hi, b.hi));
}

}  // namespace

int64_t evaluate(const Dim& dim, const SymbolValues& values) {
  int64_t total = dim.constant_part();
  for (const Dim::Term& term : dim.terms()) {
    int64_t product = term.coefficient;
    for (const Dim::Atom& factor : term.factors) {
      if (factor.args) {
        product = checked_mul(product, apply_function(factor.kind, evaluate(factor.args->first, values),
                                                      evaluate(factor.args->second, values)));
        continue;
      }
      auto at = values.find(factor.text);
      if (at == values.end())
        throw UserError(ErrorCode::kU_unset_size, "size '" + factor.text + "' has no value")
            .with_value(dim.to_string())
            .with_remedy("set it with " + dims_text({{factor.text, "VALUE"}}) + " or " +
                         dims_text({{factor.text, "LO..HI"}}));
      product = checked_mul(product, at->second);
    }
    total = checked_add(total, product);
  }
  return total;
}

Dim substitute(const Dim& dim, const std::map<std::string, Dim, std::less<>>& values) {
  Dim total(dim.constant_part());
  for (const Dim::Term& term : dim.terms()) {
    Dim product(term.coefficient);
    for (const Dim::Atom& factor : term.factors) {
      if (factor.args) {
        product = product * apply_function(factor.kind, substitute(factor.args->first, values),
                                           substitute(factor.args->second, values));
      } else {
        auto at = values.find(factor.text);
        product = product * (at == values.end() ? Dim::symbol(factor.text) : at->second);
      }
    }
    total = total + product;
  }
  return total;
}

namespace {

// What a size and a quotient of it have in common cancels: n - 4 floor((n + 3) / 4) is mod(n + 3, 4) - 3.
Interval bounds_of_remainders(const Dim& dim, const SymbolRanges& ranges, Interval total) {
  constexpr size_t kMaxTerms = 4;  // each term that cancels asks for the bounds of the others
  if (dim.terms().size() < 2 || dim.terms().size() > kMaxTerms) return total;
  for (const Dim::Term& term : dim.terms()) {
    const Dim::Atom& atom = term.factors[0];
    if (term.factors.size() != 1 || atom.kind != Dim::AtomKind::kFloorDiv) continue;
    const auto& [x, divisor] = *atom.args;
    const int64_t by = divisor.constant().value_or(0);
    if (by < 1 || term.coefficient % by != 0) continue;
    const Dim times(term.coefficient / by);
    const Dim rest = dim - times * divisor * floordiv(x, divisor) + times * x;
    if (rest.terms().size() >= dim.terms().size()) continue;
    const Interval others = bounds(rest, ranges);
    const Interval cut = multiply({-times.constant_part(), -times.constant_part()}, {0, by - 1});
    total.lo = std::max(total.lo, checked_add(others.lo, cut.lo));
    total.hi = std::min(total.hi, checked_add(others.hi, cut.hi));
  }
  return total;
}

}  // namespace

Interval bounds(const Dim& dim, const SymbolRanges& ranges) {
  Interval total{dim.constant_part(), dim.constant_part()};
  for (const Dim::Term& term : dim.terms()) {
    Interval product{term.coefficient, term.coefficient};
    for (const Dim::Atom& factor : term.factors) {
      Interval range{0, kUnboundedSize};
      if (factor.args) {
        range = apply_function(factor.kind, bounds(factor.args->first, ranges),
                               bounds(factor.args->second, ranges));
      } else if (auto at = ranges.find(factor.text); at != ranges.end()) {
        range = at->second;
      }
      product = multiply(product, range);
    }
    total = {checked_add(total.lo, product.lo), checked_add(total.hi, product.hi)};
  }
  return bounds_of_remainders(dim, ranges, total);
}

}  // namespace aicf
