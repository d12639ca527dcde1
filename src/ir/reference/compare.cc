#include "ir/reference/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

namespace aicf {
namespace {

constexpr double kMismatch = std::numeric_limits<double>::infinity();

// How far an element is over its tolerance: above 1 it does not agree.
double float_excess(double actual, double expected, double tolerance, CompareReport& report) {
  if (std::isnan(actual) || std::isnan(expected)) {
    if (std::isnan(actual) && std::isnan(expected)) return 0;
    ++report.nan_mismatches;
    return kMismatch;
  }
  if (std::isinf(actual) || std::isinf(expected)) {
    if (actual == expected) return 0;
    ++report.inf_mismatches;
    return kMismatch;
  }
  const double error = std::fabs(actual - expected);
  report.max_abs_error = std::max(report.max_abs_error, error);
  if (expected != 0) report.max_rel_error = std::max(report.max_rel_error, error / std::fabs(expected));
  if (error == 0) return 0;
  return tolerance == 0 ? kMismatch : error / tolerance;
}

double integer_excess(int64_t actual, int64_t expected, CompareReport& report) {
  if (actual == expected) return 0;
  const double error = std::fabs(static_cast<double>(actual) - static_cast<double>(expected));
  report.max_abs_error = std::max(report.max_abs_error, error);
  if (expected != 0)
    report.max_rel_error = std::max(report.max_rel_error, error / std::fabs(static_cast<double>(expected)));
  return kMismatch;
}

double cosine_of(const Array& a, const Array& b) {
  double product = 0, aa = 0, bb = 0;
  for (int64_t k = 0; k < a.count(); ++k) {
    product += a.get_f64(k) * b.get_f64(k);
    aa += a.get_f64(k) * a.get_f64(k);
    bb += b.get_f64(k) * b.get_f64(k);
  }
  if (aa == 0 && bb == 0) return 1;
  return aa == 0 || bb == 0 ? 0 : product / (std::sqrt(aa) * std::sqrt(bb));
}

// tolerance(i): of element i; null: nothing can be said about it.
template <typename Tolerance>
CompareReport compare_all(const Array& actual, const Array& expected, Tolerance tolerance) {
  CompareReport report;
  report.same_sizes = actual.sizes() == expected.sizes();
  if (!report.same_sizes) return report;
  const bool floats = is_float(actual.dtype()) || is_float(expected.dtype());
  double worst_excess = -1;
  for (int64_t k = 0; k < actual.count(); ++k) {
    const std::optional<double> allowed = tolerance(k);
    if (!allowed) {
      ++report.undecided;
      continue;
    }
    const double excess = floats ? float_excess(actual.get_f64(k), expected.get_f64(k), *allowed, report)
                                 : integer_excess(actual.get_i64(k), expected.get_i64(k), report);
    report.beyond += excess > 1;
    if (excess > worst_excess) {
      worst_excess = excess;
      report.worst = k;
      report.worst_actual = actual.get_f64(k);
      report.worst_expected = expected.get_f64(k);
      report.worst_allowed = floats ? *allowed : 0;
    }
  }
  report.count = actual.count();
  report.cosine = cosine_of(actual, expected);
  return report;
}

}  // namespace

CompareReport compare(const Array& actual, const Array& expected, double rtol, double atol) {
  return compare_all(actual, expected, [&](int64_t k) -> std::optional<double> {
    return atol + rtol * std::fabs(expected.get_f64(k));
  });
}

CompareReport compare(const Array& actual, const Array& expected, const std::vector<double>& bound) {
  return compare_all(actual, expected, [&](int64_t k) -> std::optional<double> {
    const double allowed = bound[static_cast<size_t>(k)];
    return std::isfinite(allowed) ? std::optional(allowed) : std::nullopt;
  });
}

std::string to_string(const CompareReport& report) {
  if (!report.same_sizes) return "sizes differ";
  char text[400];
  std::snprintf(
      text, sizeof text,
      "%lld of %lld beyond tolerance, %lld undecided, max abs %.3g, max rel %.3g, cosine %.9f, worst "
      "[%lld]: %.9g, expected %.9g ± %.3g, "
      "NaN mismatches %lld, Inf mismatches %lld",
      static_cast<long long>(report.beyond), static_cast<long long>(report.count),
      static_cast<long long>(report.undecided), report.max_abs_error, report.max_rel_error, report.cosine,
      static_cast<long long>(report.worst), report.worst_actual, report.worst_expected, report.worst_allowed,
      static_cast<long long>(report.nan_mismatches), static_cast<long long>(report.inf_mismatches));
  return text;
}

}  // namespace aicf
