#include "base/dim_function.h"

#include <algorithm>

#include "base/error.h"

namespace aicf {
namespace {

int64_t floor_div(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

void require_positive_divisor(int64_t b) {
  if (b <= 0)
    throw UserError(ErrorCode::kU_bad_shape, "a size expression divides by a number that is not positive")
        .with_actual(std::to_string(b));
}

}  // namespace

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

int64_t apply_function(Dim::AtomKind kind, int64_t a, int64_t b) {
  switch (kind) {
    case Dim::AtomKind::kFloorDiv:
      require_positive_divisor(b);
      return floor_div(a, b);
    case Dim::AtomKind::kMod:
      require_positive_divisor(b);
      return a % b < 0 ? a % b + b : a % b;
    case Dim::AtomKind::kMax:
      return std::max(a, b);
    case Dim::AtomKind::kMin:
      return std::min(a, b);
    case Dim::AtomKind::kSymbol:
      break;
  }
  AICF_CHECK(false, "a symbol has no function");
}

Dim apply_function(Dim::AtomKind kind, const Dim& a, const Dim& b) {
  switch (kind) {
    case Dim::AtomKind::kFloorDiv:
      return floordiv(a, b);
    case Dim::AtomKind::kMod:
      return mod(a, b);
    case Dim::AtomKind::kMax:
      return max(a, b);
    case Dim::AtomKind::kMin:
      return min(a, b);
    case Dim::AtomKind::kSymbol:
      break;
  }
  AICF_CHECK(false, "a symbol has no function");
}

Interval apply_function(Dim::AtomKind kind, Interval a, Interval b) {
  switch (kind) {
    case Dim::AtomKind::kFloorDiv: {
      const int64_t lo = std::max<int64_t>(b.lo, 1), hi = std::max(b.hi, lo);
      return span(floor_div(a.lo, lo), floor_div(a.lo, hi), floor_div(a.hi, lo), floor_div(a.hi, hi));
    }
    case Dim::AtomKind::kMod:
      return {0, std::max<int64_t>(b.hi, 1) - 1};
    case Dim::AtomKind::kMax:
      return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
    case Dim::AtomKind::kMin:
      return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
    case Dim::AtomKind::kSymbol:
      break;
  }
  AICF_CHECK(false, "a symbol has no function");
}

Interval span(int64_t a, int64_t b, int64_t c, int64_t d) {
  return {std::min({a, b, c, d}), std::max({a, b, c, d})};
}

}  // namespace aicf
