// Symbolic sizes. A Dim is an integer polynomial over atoms, an atom being a named size or floordiv, mod, max
// or min of two Dims. It is kept in one canonical form, so two equal polynomials compare equal and print the
// same text. Arithmetic is checked: a coefficient that leaves 63 bits is UserError size_overflow.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aicf {

class Dim;

// Inclusive range of a size.
struct Interval {
  int64_t lo = 0, hi = 0;
  bool operator==(const Interval&) const = default;
};

using SymbolRanges = std::map<std::string, Interval, std::less<>>;
using SymbolValues = std::map<std::string, int64_t, std::less<>>;

class Dim {
 public:
  enum class AtomKind : uint8_t { kSymbol, kFloorDiv, kMod, kMax, kMin };
  struct Atom {
    std::string text;  // canonical; order and equality of atoms are those of their texts
    AtomKind kind = AtomKind::kSymbol;
    std::shared_ptr<const std::pair<Dim, Dim>> args;  // null for a symbol
  };
  struct Term {
    int64_t coefficient;
    std::vector<Atom> factors;  // sorted, with repetition for powers
  };

  Dim() = default;
  Dim(int64_t value) : constant_(value) {}  // NOLINT: a number is a size
  static Dim symbol(std::string name);

  bool is_constant() const { return terms_.empty(); }
  std::optional<int64_t> constant() const;
  // The constant value; size_not_static if symbolic. `what` names the use in the message.
  int64_t require_constant(std::string_view what) const;
  // The name, if this is exactly one symbol.
  std::optional<std::string> as_symbol() const;

  const std::vector<Term>& terms() const { return terms_; }
  int64_t constant_part() const { return constant_; }

  std::string to_string() const;
  static Dim parse(std::string_view text);  // inverse of to_string; bad_text
  void collect_symbols(std::map<std::string, int>& names) const;

  bool operator==(const Dim& other) const;
  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);

 private:
  friend Dim make_function(AtomKind kind, const Dim& a, const Dim& b);
  void add_term(Term term);
  int64_t constant_ = 0;
  std::vector<Term> terms_;  // sorted by factors' text, no zero coefficients
};

// Division rounding to minus infinity, its remainder, and ceiling division, as in Python; the divisor must be
// positive.
Dim floordiv(const Dim& a, const Dim& b);
Dim mod(const Dim& a, const Dim& b);
Dim ceildiv(const Dim& a, const Dim& b);
Dim max(const Dim& a, const Dim& b);
Dim min(const Dim& a, const Dim& b);
// a / b where the division leaves no remainder for every value of the symbols; nullopt if that cannot be
// shown.
std::optional<Dim> divide_exactly(const Dim& a, const Dim& b);

// Value under a binding; unset_size names a missing symbol.
int64_t evaluate(const Dim& dim, const SymbolValues& values);
// Replaces symbols that have a value.
Dim substitute(const Dim& dim, const std::map<std::string, Dim, std::less<>>& values);
// Interval arithmetic over the ranges (conservative); a symbol without a range is [0, 2^31].
Interval bounds(const Dim& dim, const SymbolRanges& ranges);

using Shape = std::vector<Dim>;

Dim element_count(const Shape& shape);
std::string to_string(const Shape& shape);  // "[batch, 384]"
std::string to_string(const std::vector<int64_t>& values);
Shape to_shape(const std::vector<int64_t>& sizes);
std::vector<int64_t> evaluate(const Shape& shape, const SymbolValues& values);
std::vector<Dim> row_major_strides(const Shape& shape);

// Checked 64-bit products and sums; size_overflow beyond 63 bits.
int64_t checked_mul(int64_t a, int64_t b);
int64_t checked_add(int64_t a, int64_t b);
int64_t element_count(const std::vector<int64_t>& sizes);

}  // namespace aicf
