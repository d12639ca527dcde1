#include "base/dim.h"

#include <algorithm>

#include "base/dim_function.h"
#include "base/error.h"
#include "base/option_text.h"

namespace aicf {
namespace {

// Multiplying sums multiplies their term counts; far beyond any real model, it bounds what hostile text can
// cost.
constexpr size_t kMaxProductTerms = 4096, kMaxFactors = 64;

bool same_factors(const std::vector<Dim::Atom>& a, const std::vector<Dim::Atom>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Dim::Atom& x, const Dim::Atom& y) { return x.text == y.text; });
}

bool factors_less(const std::vector<Dim::Atom>& a, const std::vector<Dim::Atom>& b) {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                      [](const Dim::Atom& x, const Dim::Atom& y) { return x.text < y.text; });
}

bool atom_less(const Dim::Atom& a, const Dim::Atom& b) { return a.text < b.text; }

}  // namespace

int64_t checked_mul(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_mul_overflow(a, b, &result))
    throw UserError(ErrorCode::kU_size_overflow, "a size does not fit in 63 bits")
        .with_actual(std::to_string(a) + " * " + std::to_string(b));
  return result;
}

int64_t checked_add(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_add_overflow(a, b, &result))
    throw UserError(ErrorCode::kU_size_overflow, "a size does not fit in 63 bits")
        .with_actual(std::to_string(a) + " + " + std::to_string(b));
  return result;
}

Dim Dim::symbol(std::string name) {
  Dim dim;
  dim.terms_.push_back({1, {Atom{std::move(name), AtomKind::kSymbol, nullptr}}});
  return dim;
}

std::optional<int64_t> Dim::constant() const {
  if (!is_constant()) return std::nullopt;
  return constant_;
}

int64_t Dim::require_constant(std::string_view what) const {
  if (is_constant()) return constant_;
  std::map<std::string, int> symbols;
  collect_symbols(symbols);
  std::string names;
  for (const auto& [name, count] : symbols) names += (names.empty() ? "" : ", ") + name;
  throw UserError(ErrorCode::kU_size_not_static, std::string(what) + " must be known when compiling")
      .with_value(names)
      .with_actual(to_string())
      .with_remedy("give " + names + " one value: " + dims_text({{names.substr(0, names.find(',')), "8"}}));
}

std::optional<std::string> Dim::as_symbol() const {
  if (constant_ != 0 || terms_.size() != 1) return std::nullopt;
  const Term& term = terms_[0];
  if (term.coefficient != 1 || term.factors.size() != 1) return std::nullopt;
  if (term.factors[0].kind != AtomKind::kSymbol) return std::nullopt;
  return term.factors[0].text;
}

void Dim::add_term(Term term) {
  if (term.coefficient == 0) return;
  if (term.factors.empty()) {
    constant_ = checked_add(constant_, term.coefficient);
    return;
  }
  auto at = std::lower_bound(terms_.begin(), terms_.end(), term,
                             [](const Term& a, const Term& b) { return factors_less(a.factors, b.factors); });
  if (at != terms_.end() && same_factors(at->factors, term.factors)) {
    at->coefficient = checked_add(at->coefficient, term.coefficient);
    if (at->coefficient == 0) terms_.erase(at);
  } else {
    terms_.insert(at, std::move(term));
  }
}

bool Dim::operator==(const Dim& other) const {
  return constant_ == other.constant_ && std::equal(terms_.begin(), terms_.end(), other.terms_.begin(),
                                                    other.terms_.end(), [](const Term& a, const Term& b) {
                                                      return a.coefficient == b.coefficient &&
                                                             same_factors(a.factors, b.factors);
                                                    });
}

Dim operator+(const Dim& a, const Dim& b) {
  Dim sum = a;
  sum.constant_ = checked_add(sum.constant_, b.constant_);
  for (const Dim::Term& term : b.terms_) sum.add_term(term);
  return sum;
}

Dim operator-(const Dim& a, const Dim& b) { return a + Dim(-1) * b; }

Dim operator*(const Dim& a, const Dim& b) {
  if (a.terms_.size() * b.terms_.size() > kMaxProductTerms)
    throw UserError(ErrorCode::kU_size_overflow, "a size expression has too many terms")
        .with_expected(std::to_string(kMaxProductTerms) + " at most")
        .with_actual(std::to_string(a.terms_.size()) + " * " + std::to_string(b.terms_.size()));
  Dim product(checked_mul(a.constant_, b.constant_));
  for (const Dim::Term& x : a.terms_) {
    if (b.constant_ != 0) product.add_term({checked_mul(x.coefficient, b.constant_), x.factors});
    for (const Dim::Term& y : b.terms_) {
      Dim::Term term{checked_mul(x.coefficient, y.coefficient), x.factors};
      if (x.factors.size() + y.factors.size() > kMaxFactors)
        throw UserError(ErrorCode::kU_size_overflow, "a size expression has too many factors")
            .with_expected(std::to_string(kMaxFactors) + " at most")
            .with_actual(std::to_string(x.factors.size() + y.factors.size()));
      term.factors.insert(term.factors.end(), y.factors.begin(), y.factors.end());
      std::sort(term.factors.begin(), term.factors.end(), atom_less);
      product.add_term(std::move(term));
    }
  }
  if (a.constant_ != 0)
    for (const Dim::Term& y : b.terms_)
      product.add_term({checked_mul(a.constant_, y.coefficient), y.factors});
  return product;
}

Dim make_function(Dim::AtomKind kind, const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) return Dim(apply_function(kind, a.constant_, b.constant_));
  std::string text = std::string(function_name(kind)) + "(" + a.to_string() + ", " + b.to_string() + ")";
  Dim dim;
  dim.terms_.push_back({1, {{std::move(text), kind, std::make_shared<const std::pair<Dim, Dim>>(a, b)}}});
  return dim;
}

namespace {

// The term divided by a number, with these of its factors.
Dim from_term(const Dim::Term& term, const std::vector<Dim::Atom>& factors, int64_t divisor) {
  Dim product(term.coefficient / divisor);
  for (const Dim::Atom& factor : factors)
    product = product * (factor.args ? make_function(factor.kind, factor.args->first, factor.args->second)
                                     : Dim::symbol(factor.text));
  return product;
}

// Divisors beyond this are left alone, so that products of them stay small.
constexpr int64_t kMaxDivisor = int64_t{1} << 20;

// The division that `dim` is, if it is one by a constant and nothing else.
const std::pair<Dim, Dim>* as_division(const Dim& dim) {
  if (dim.terms().size() != 1 || dim.terms()[0].coefficient != 1 || dim.terms()[0].factors.size() != 1)
    return nullptr;
  const Dim::Atom& atom = dim.terms()[0].factors[0];
  return atom.kind == Dim::AtomKind::kFloorDiv && atom.args->second.is_constant() ? atom.args.get() : nullptr;
}

// The arguments of a remainder by a constant.
const std::pair<Dim, Dim>* as_remainder(const Dim::Atom& atom) {
  return atom.kind == Dim::AtomKind::kMod && atom.args->second.is_constant() ? atom.args.get() : nullptr;
}

// Remainders within remainders double the work: longer ones stay as they are.
constexpr size_t kMaxSpelledText = 96;

// With x - m floor(x / m) for the remainder of x by m: n + mod(-n, 4) is 4 ceil(n / 4).
Dim without_remainders(const Dim& dim) {
  Dim sum(dim.constant_part());
  for (const Dim::Term& term : dim.terms()) {
    Dim product(term.coefficient);
    for (const Dim::Atom& factor : term.factors)
      if (const std::pair<Dim, Dim>* args = as_remainder(factor);
          args && factor.text.size() <= kMaxSpelledText)
        product = product * (args->first - args->second * floordiv(args->first, args->second));
      else
        product = product * from_term({1, {}}, {factor}, 1);
    sum = sum + product;
  }
  return sum;
}

}  // namespace

// One form for what strided windows give and exporters write in their own ways: multiples of a constant
// divisor stand outside, and floor((floor(x / m) + c) / d) is floor((x + m c) / (m d)).
Dim floordiv(const Dim& a, const Dim& b) {
  if (auto exact = divide_exactly(a, b)) return *exact;
  const int64_t divisor = b.constant().value_or(0);
  if (a.is_constant() || divisor < 1 || divisor > kMaxDivisor)
    return make_function(Dim::AtomKind::kFloorDiv, a, b);
  const int64_t rest = apply_function(Dim::AtomKind::kMod, a.constant_part(), divisor);
  Dim outside(apply_function(Dim::AtomKind::kFloorDiv, a.constant_part(), divisor)), inside;
  for (const Dim::Term& term : a.terms()) {
    const bool whole = term.coefficient % divisor == 0;
    Dim& side = whole ? outside : inside;
    side = side + from_term(term, term.factors, whole ? divisor : 1);
  }
  // floor(-x / d) is -ceil(x / d): the first term is not negative.
  if (!inside.is_constant() && inside.terms()[0].coefficient < 0)
    return outside - floordiv(Dim(divisor - 1 - rest) - inside, b);
  const std::pair<Dim, Dim>* inner = as_division(inside);
  const int64_t inner_divisor = inner ? inner->second.constant_part() : 0;
  if (inner_divisor > 0 && inner_divisor <= kMaxDivisor / divisor)
    return outside + floordiv(inner->first + Dim(inner_divisor * rest), Dim(inner_divisor * divisor));
  return outside + make_function(Dim::AtomKind::kFloorDiv, inside + Dim(rest), b);
}

// One form for what pads to a multiple: coefficients lie about zero, and a remainder of a remainder by a
// multiple is the remainder, so mod(4 - mod(n, 4), 4) is mod(-n, 4).
Dim mod(const Dim& a, const Dim& b) {
  if (divide_exactly(a, b)) return Dim(0);
  const int64_t divisor = b.constant().value_or(0);
  if (a.is_constant() || divisor < 1 || divisor > kMaxDivisor)
    return make_function(Dim::AtomKind::kMod, a, b);
  Dim reduced(apply_function(Dim::AtomKind::kMod, a.constant_part(), divisor));
  bool unwrapped = false;
  for (const Dim::Term& term : a.terms()) {
    int64_t coefficient = term.coefficient % divisor;
    if (coefficient > divisor / 2) coefficient -= divisor;
    if (coefficient <= -(divisor + 1) / 2) coefficient += divisor;
    const std::pair<Dim, Dim>* inner = term.factors.size() == 1 ? as_remainder(term.factors[0]) : nullptr;
    const bool unwraps = inner != nullptr && inner->second.constant_part() % divisor == 0;
    unwrapped |= unwraps;
    reduced = reduced + (unwraps ? Dim(coefficient) * inner->first
                                 : from_term({coefficient, term.factors}, term.factors, 1));
  }
  return unwrapped ? mod(reduced, b) : make_function(Dim::AtomKind::kMod, reduced, b);
}

Dim ceildiv(const Dim& a, const Dim& b) { return floordiv(a + b - Dim(1), b); }

Dim max(const Dim& a, const Dim& b) {
  if (a == b) return a;
  const bool ordered = a.to_string() < b.to_string();
  return make_function(Dim::AtomKind::kMax, ordered ? a : b, ordered ? b : a);
}

Dim min(const Dim& a, const Dim& b) {
  if (a == b) return a;
  const bool ordered = a.to_string() < b.to_string();
  return make_function(Dim::AtomKind::kMin, ordered ? a : b, ordered ? b : a);
}

namespace {

// The term of most factors, the first of these in the order of atoms; the constant if there is none.
Dim leading_term(const Dim& dim) {
  const Dim::Term* leading = nullptr;
  const auto precedes = [](const Dim::Term& a, const Dim::Term& b) {
    if (a.factors.size() != b.factors.size()) return a.factors.size() > b.factors.size();
    return std::lexicographical_compare(a.factors.begin(), a.factors.end(), b.factors.begin(),
                                        b.factors.end(), atom_less);
  };
  for (const Dim::Term& term : dim.terms())
    if (leading == nullptr || precedes(term, *leading)) leading = &term;
  return leading == nullptr ? Dim(dim.constant_part()) : from_term(*leading, leading->factors, 1);
}

// Long division by leading terms; right because nothing may be left, whatever their order.
std::optional<Dim> divide_polynomial(Dim rest, Dim by) {
  constexpr int kMaxSteps = 64;
  const Dim leading = leading_term(by);
  if (leading.constant_part() < 0 || (!leading.is_constant() && leading.terms()[0].coefficient < 0)) {
    rest = Dim(0) - rest;
    by = Dim(0) - by;
  }
  Dim quotient;
  for (int step = 0; step < kMaxSteps; ++step) {
    if (rest == Dim(0)) return quotient;
    const auto factor = divide_exactly(leading_term(rest), leading_term(by));
    if (!factor) return std::nullopt;
    quotient = quotient + *factor;
    rest = rest - *factor * by;
  }
  return std::nullopt;
}

// By a divisor of one term, which every term of a must contain.
std::optional<Dim> divide_terms(const Dim& a, const Dim& b) {
  const bool constant_divisor = b.is_constant();
  const int64_t coefficient = constant_divisor ? b.constant_part() : b.terms()[0].coefficient;
  if (coefficient <= 0) return std::nullopt;
  if (!constant_divisor && a.constant_part() != 0) return std::nullopt;
  if (a.constant_part() % coefficient != 0) return std::nullopt;
  Dim quotient(a.constant_part() / coefficient);
  for (const Dim::Term& term : a.terms()) {
    if (term.coefficient % coefficient != 0) return std::nullopt;
    std::vector<Dim::Atom> rest = term.factors;
    if (!constant_divisor) {
      for (const Dim::Atom& factor : b.terms()[0].factors) {
        auto at =
            std::find_if(rest.begin(), rest.end(), [&](const Dim::Atom& x) { return x.text == factor.text; });
        if (at == rest.end()) return std::nullopt;
        rest.erase(at);
      }
    }
    quotient = quotient + from_term(term, rest, coefficient);
  }
  return quotient;
}

}  // namespace

std::optional<Dim> divide_exactly(const Dim& a, const Dim& b) {
  if (a == b && !(b == Dim(0))) return Dim(1);
  if (a == Dim(0) && !(b == Dim(0))) return Dim(0);
  if (!b.is_constant() && (b.constant_part() != 0 || b.terms().size() != 1)) return divide_polynomial(a, b);
  if (auto quotient = divide_terms(a, b)) return quotient;
  const Dim spelled = without_remainders(a);
  return spelled == a ? std::nullopt : divide_terms(spelled, b);
}

std::string Dim::to_string() const {
  std::string text;
  auto append = [&](int64_t coefficient, const std::string& body) {
    if (!text.empty() && coefficient >= 0) text += "+";
    if (body.empty()) {
      text += std::to_string(coefficient);
    } else if (coefficient == 1) {
      text += body;
    } else if (coefficient == -1) {
      text += "-" + body;
    } else {
      text += std::to_string(coefficient) + "*" + body;
    }
  };
  for (const Term& term : terms_) {
    std::string body;
    for (const Atom& factor : term.factors) body += (body.empty() ? "" : "*") + factor.text;
    append(term.coefficient, body);
  }
  if (constant_ != 0 || terms_.empty()) append(constant_, "");
  return text;
}

void Dim::collect_symbols(std::map<std::string, int>& names) const {
  for (const Term& term : terms_)
    for (const Atom& factor : term.factors) {
      if (factor.kind == AtomKind::kSymbol) {
        ++names[factor.text];
      } else {
        factor.args->first.collect_symbols(names);
        factor.args->second.collect_symbols(names);
      }
    }
}

Dim element_count(const Shape& shape) {
  Dim count(1);
  for (const Dim& dim : shape) count = count * dim;
  return count;
}

int64_t element_count(const std::vector<int64_t>& sizes) {
  int64_t count = 1;
  for (int64_t size : sizes) count = checked_mul(count, size);
  return count;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + shape[i].to_string();
  return text + "]";
}

std::string to_string(const std::vector<int64_t>& values) { return to_string(to_shape(values)); }

Shape to_shape(const std::vector<int64_t>& sizes) { return Shape(sizes.begin(), sizes.end()); }

std::vector<int64_t> evaluate(const Shape& shape, const SymbolValues& values) {
  std::vector<int64_t> sizes;
  sizes.reserve(shape.size());
  for (const Dim& dim : shape) sizes.push_back(evaluate(dim, values));
  return sizes;
}

std::vector<Dim> row_major_strides(const Shape& shape) {
  std::vector<Dim> strides(shape.size(), Dim(1));
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

}  // namespace aicf
