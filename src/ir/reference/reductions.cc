// Reductions: each element of x, in row-major order, is folded into the result element that shares its kept
// axes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/reference/ref_op.h"

namespace aicf::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// For every element of x the flat position in the result, whose reduced axes are kept as 1 or dropped: the
// same order.
std::vector<size_t> targets(const RefContext& c) {
  const RefTensor& x = c.x(0);
  Index kept = x.sizes;
  const std::vector<int64_t> axes = c.axes("axes", x.rank());
  for (int64_t axis : axes) kept[static_cast<size_t>(axis)] = 1;
  std::vector<size_t> target(static_cast<size_t>(x.count()));
  Index to;
  for_each_index(x.sizes, [&](const Index& index, int64_t flat) {
    to = index;
    for (int64_t axis : axes) to[static_cast<size_t>(axis)] = 0;
    target[static_cast<size_t>(flat)] = static_cast<size_t>(flat_index(kept, to));
  });
  return target;
}

template <typename FloatFold, typename IntFold>
RefTensor fold(const RefContext& c, double float_start, int64_t int_start, FloatFold float_fold,
               IntFold int_fold) {
  RefTensor out = c.result();
  std::fill(out.f.begin(), out.f.end(), float_start);
  std::fill(out.i.begin(), out.i.end(), int_start);
  const std::vector<size_t> target = targets(c);
  const RefTensor& x = c.x(0);
  for (size_t k = 0; k < x.f.size(); ++k) out.f.at(target[k]) = float_fold(out.f.at(target[k]), x.f[k]);
  for (size_t k = 0; k < x.i.size(); ++k) out.i.at(target[k]) = int_fold(out.i.at(target[k]), x.i[k]);
  return out;
}

RefTensor sum(const RefContext& c) {
  return fold(c, 0, 0, [](double a, double b) { return a + b; }, wrap_add);
}

RefTensor maximum(const RefContext& c) {
  return fold(c, -kInfinity, lowest(c.x(0).dtype), max_of,
              [](int64_t a, int64_t b) { return std::max(a, b); });
}

int64_t reduced_count(const RefContext& c) {
  int64_t count = 1;
  for (int64_t axis : c.axes("axes", c.x(0).rank())) count *= c.x(0).sizes[static_cast<size_t>(axis)];
  return count;
}

// Whether element b takes the place of a as the extreme; `sense` is 1 for the maximum and -1 for the minimum.
bool beats(double b, double a, int sense) {
  if (std::isnan(a)) return false;
  return std::isnan(b) || (sense > 0 ? b > a : b < a);
}
bool beats(int64_t b, int64_t a, int sense) { return sense > 0 ? b > a : b < a; }

bool ties(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }
bool ties(int64_t a, int64_t b) { return a == b; }

RefResults arg_extreme(const RefContext& c, int sense) {
  const RefTensor& x = c.x(0);
  const Lines lines = lines_along(x.sizes, c.axis("axis", x.rank()));
  const bool select_last = c.attrs().get_bool("select_last");
  RefTensor out = c.result();
  if (lines.length == 0 && out.count() != 0) fail_sizes(c, "a non-empty axis", "size 0");
  const auto run = [&](const auto& from) {
    for (int64_t o = 0; o < lines.outer; ++o)
      for (int64_t n = 0; n < lines.inner; ++n) {
        int64_t best = 0;
        for (int64_t k = 1; k < lines.length; ++k) {
          const auto candidate = from[lines.at(o, k, n)], champion = from[lines.at(o, best, n)];
          if (beats(candidate, champion, sense) || (select_last && ties(candidate, champion))) best = k;
        }
        out.i[static_cast<size_t>(o * lines.inner + n)] = best;
      }
  };
  if (out.count() == 0) return one(std::move(out));
  if (x.is_float())
    run(x.f);
  else
    run(x.i);
  return one(std::move(out));
}

}  // namespace

RefResults ref_reduce_sum(const RefContext& c) { return one(sum(c)); }

RefResults ref_reduce_prod(const RefContext& c) {
  return one(fold(c, 1, 1, [](double a, double b) { return a * b; }, wrap_mul));
}

RefResults ref_reduce_max(const RefContext& c) { return one(maximum(c)); }

RefResults ref_reduce_min(const RefContext& c) {
  return one(
      fold(c, kInfinity, highest(c.x(0).dtype), min_of, [](int64_t a, int64_t b) { return std::min(a, b); }));
}

RefResults ref_argmax(const RefContext& c) { return arg_extreme(c, 1); }

RefResults ref_argmin(const RefContext& c) { return arg_extreme(c, -1); }

RefResults ref_reduce_mean(const RefContext& c) {
  RefTensor out = sum(c);
  const int64_t count = reduced_count(c);
  for (double& value : out.f) value /= static_cast<double>(count);
  // An integer sum wraps in its dtype before it is divided; a mean of no integers is x / 0 = 0.
  for (int64_t& value : out.i) value = count == 0 ? 0 : wrap_to(out.dtype, value) / count;
  return one(std::move(out));
}

RefResults ref_reduce_logsumexp(const RefContext& c) {
  const RefTensor top = maximum(c);
  RefTensor out = c.result();
  const std::vector<size_t> target = targets(c);
  const RefTensor& x = c.x(0);
  for (size_t k = 0; k < x.f.size(); ++k) {
    const double m = top.f.at(target[k]);
    out.f.at(target[k]) += std::isinf(m) ? 0 : std::exp(x.f[k] - m);
  }
  // An infinite maximum is the answer itself: all terms vanish or one overflows.
  for (size_t k = 0; k < out.f.size(); ++k)
    out.f[k] = std::isinf(top.f[k]) ? top.f[k] : top.f[k] + std::log(out.f[k]);
  return one(std::move(out));
}

}  // namespace aicf::reference
