#include "base/dim.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace aicf {
namespace {

constexpr int64_t kUnboundedSize = int64_t{1} << 31;
// Multiplying sums multiplies their term counts; far beyond any real model, it bounds what hostile text can
// cost.
constexpr size_t kMaxProductTerms = 4096, kMaxFactors = 64;

int64_t floor_div(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

void require_positive_divisor(int64_t b) {
  if (b <= 0)
    throw UserError(ErrorCode::kU_bad_shape, "a size expression divides by a number that is not positive")
        .with_actual(std::to_string(b));
}

int64_t apply(Dim::AtomKind kind, int64_t a, int64_t b) {
  switch (kind) {
    case Dim::AtomKind::kFloorDiv:
      require_positive_divisor(b);
      return floor_div(a, b);
    case Dim::AtomKind::kMod:
      require_positive_divisor(b);
      return a - b * floor_div(a, b);
    case Dim::AtomKind::kMax:
      return std::max(a, b);
    case Dim::AtomKind::kMin:
      return std::min(a, b);
    case Dim::AtomKind::kSymbol:
      break;
  }
  AICF_CHECK(false, "a symbol has no function");
}

const char* function_name(Dim::AtomKind kind) {
  switch (kind) {
    case Dim::AtomKind::kFloorDiv:
      return "floordiv";
    case Dim::AtomKind::kMod:
      return "mod";
    case Dim::AtomKind::kMax:
      return "max";
    case Dim::AtomKind::kMin:
      return "min";
    case Dim::AtomKind::kSymbol:
      break;
  }
  return "";
}

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
  throw UserError(ErrorCode::kU_size_not_static, std::string(what) + " must be known when compiling")
      .with_actual(to_string())
      .with_remedy("give this size one value with --dim NAME=VALUE");
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
  if (a.is_constant() && b.is_constant()) return Dim(apply(kind, a.constant_, b.constant_));
  std::string text = std::string(function_name(kind)) + "(" + a.to_string() + ", " + b.to_string() + ")";
  Dim dim;
  dim.terms_.push_back({1, {{std::move(text), kind, std::make_shared<const std::pair<Dim, Dim>>(a, b)}}});
  return dim;
}

Dim floordiv(const Dim& a, const Dim& b) {
  if (auto exact = divide_exactly(a, b)) return *exact;
  return make_function(Dim::AtomKind::kFloorDiv, a, b);
}

Dim mod(const Dim& a, const Dim& b) {
  if (divide_exactly(a, b)) return Dim(0);
  return make_function(Dim::AtomKind::kMod, a, b);
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

std::optional<Dim> divide_exactly(const Dim& a, const Dim& b) {
  if (a == b && !(b == Dim(0))) return Dim(1);
  if (a == Dim(0) && !(b == Dim(0))) return Dim(0);
  // b must be one monomial; every term of a must contain it.
  const bool constant_divisor = b.is_constant();
  if (!constant_divisor && (b.constant_part() != 0 || b.terms().size() != 1)) return std::nullopt;
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
    Dim product(term.coefficient / coefficient);
    for (const Dim::Atom& factor : rest)
      product = product * (factor.args ? make_function(factor.kind, factor.args->first, factor.args->second)
                                       : Dim::symbol(factor.text));
    quotient = quotient + product;
  }
  return quotient;
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

namespace {

// Recursive descent over sum := product (('+'|'-') product)*, product := unary ('*' unary)*. Depth is bounded
// because the text may come from a stranger.
class DimParser {
 public:
  explicit DimParser(std::string_view text) : text_(text) {}

  Dim parse_all() {
    Dim dim = sum(0);
    skip();
    if (at_ != text_.size()) fail("unexpected text after the expression");
    return dim;
  }

 private:
  static constexpr int kMaxDepth = 32;
  static constexpr size_t kMaxSumTerms = 512;  // a sum of n terms takes n^2 copies of a term

  [[noreturn]] void fail(const char* why) const {
    throw UserError(ErrorCode::kU_bad_text, std::string("cannot read a size expression: ") + why)
        .with_value(std::string(text_.substr(0, 200)));
  }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Dim sum(int depth) {
    if (depth > kMaxDepth) fail("nested too deeply");
    Dim result = take('-') ? Dim(-1) * product(depth) : product(depth);
    for (;;) {
      if (result.terms().size() > kMaxSumTerms) fail("too many terms");
      if (take('+')) {
        result = result + product(depth);
      } else if (take('-')) {
        result = result - product(depth);
      } else {
        return result;
      }
    }
  }
  Dim product(int depth) {
    Dim result = unary(depth);
    while (take('*')) result = result * unary(depth);
    return result;
  }
  Dim unary(int depth) {
    skip();
    if (take('(')) {
      Dim inner = sum(depth + 1);
      if (!take(')')) fail("expected ')'");
      return inner;
    }
    if (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) return number();
    return name_or_function(depth);
  }
  Dim number() {
    int64_t value = 0;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])))
      value = checked_add(checked_mul(value, 10), text_[at_++] - '0');
    return Dim(value);
  }
  Dim name_or_function(int depth) {
    const size_t begin = at_;
    while (at_ < text_.size() && is_symbol_char(text_[at_])) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (name.empty()) fail("expected a number, a name or '('");
    if (!take('(')) return Dim::symbol(std::string(name));
    Dim a = sum(depth + 1);
    if (!take(',')) fail("expected ','");
    Dim b = sum(depth + 1);
    if (!take(')')) fail("expected ')'");
    if (name == "floordiv") return floordiv(a, b);
    if (name == "mod") return mod(a, b);
    if (name == "max") return max(a, b);
    if (name == "min") return min(a, b);
    fail("unknown function");
  }
  static bool is_symbol_char(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '$' || c == ':' ||
           c == '/';
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Dim Dim::parse(std::string_view text) { return DimParser(text).parse_all(); }

int64_t evaluate(const Dim& dim, const SymbolValues& values) {
  int64_t total = dim.constant_part();
  for (const Dim::Term& term : dim.terms()) {
    int64_t product = term.coefficient;
    for (const Dim::Atom& factor : term.factors) {
      if (factor.args) {
        product = checked_mul(product, apply(factor.kind, evaluate(factor.args->first, values),
                                             evaluate(factor.args->second, values)));
        continue;
      }
      auto at = values.find(factor.text);
      if (at == values.end())
        throw UserError(ErrorCode::kU_unset_size, "size '" + factor.text + "' has no value")
            .with_value(dim.to_string())
            .with_remedy("set it with --dim " + factor.text + "=VALUE or " + factor.text + "=LO..HI");
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
        const Dim a = substitute(factor.args->first, values), b = substitute(factor.args->second, values);
        switch (factor.kind) {
          case Dim::AtomKind::kFloorDiv:
            product = product * floordiv(a, b);
            break;
          case Dim::AtomKind::kMod:
            product = product * mod(a, b);
            break;
          case Dim::AtomKind::kMax:
            product = product * max(a, b);
            break;
          default:
            product = product * min(a, b);
            break;
        }
      } else {
        auto at = values.find(factor.text);
        product = product * (at == values.end() ? Dim::symbol(factor.text) : at->second);
      }
    }
    total = total + product;
  }
  return total;
}

Interval bounds(const Dim& dim, const SymbolRanges& ranges) {
  auto mul = [](Interval a, Interval b) {
    const int64_t p[] = {checked_mul(a.lo, b.lo), checked_mul(a.lo, b.hi), checked_mul(a.hi, b.lo),
                         checked_mul(a.hi, b.hi)};
    return Interval{*std::min_element(p, p + 4), *std::max_element(p, p + 4)};
  };
  Interval total{dim.constant_part(), dim.constant_part()};
  for (const Dim::Term& term : dim.terms()) {
    Interval product{term.coefficient, term.coefficient};
    for (const Dim::Atom& factor : term.factors) {
      Interval range{0, kUnboundedSize};
      if (factor.args) {
        const Interval a = bounds(factor.args->first, ranges), b = bounds(factor.args->second, ranges);
        switch (factor.kind) {
          case Dim::AtomKind::kFloorDiv: {
            const int64_t lo = std::max<int64_t>(b.lo, 1), hi = std::max(b.hi, lo);
            const int64_t q[] = {floor_div(a.lo, lo), floor_div(a.lo, hi), floor_div(a.hi, lo),
                                 floor_div(a.hi, hi)};
            range = {*std::min_element(q, q + 4), *std::max_element(q, q + 4)};
            break;
          }
          case Dim::AtomKind::kMod:
            range = {0, std::max<int64_t>(b.hi, 1) - 1};
            break;
          case Dim::AtomKind::kMax:
            range = {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
            break;
          default:
            range = {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
            break;
        }
      } else if (auto at = ranges.find(factor.text); at != ranges.end()) {
        range = at->second;
      }
      product = mul(product, range);
    }
    total = {checked_add(total.lo, product.lo), checked_add(total.hi, product.hi)};
  }
  return total;
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
