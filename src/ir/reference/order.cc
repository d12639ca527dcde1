// Scans and sorting along one axis.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ir/reference/ref_op.h"

namespace aicf::reference {
namespace {

template <typename Element, typename Combine>
void scan_lines(const RefContext& c, const std::vector<Element>& from, std::vector<Element>& to,
                Element start, Combine combine) {
  const Lines lines = lines_along(c.x(0).sizes, c.axis("axis", c.x(0).rank()));
  const bool exclusive = c.attrs().get_bool("exclusive"), reverse = c.attrs().get_bool("reverse");
  for (int64_t o = 0; o < lines.outer; ++o)
    for (int64_t n = 0; n < lines.inner; ++n) {
      Element running = start;
      for (int64_t step = 0; step < lines.length; ++step) {
        const size_t at = lines.at(o, reverse ? lines.length - 1 - step : step, n);
        const Element next = combine(running, from[at]);
        to[at] = exclusive ? running : next;
        running = next;
      }
    }
}

bool is_nan(double x) { return std::isnan(x); }
bool is_nan(int64_t) { return false; }

// Strict order of the result: NaN after everything ascending, before everything descending.
template <typename Element>
bool comes_before(Element a, Element b, bool descending) {
  if (is_nan(a) || is_nan(b)) return descending ? is_nan(a) && !is_nan(b) : !is_nan(a) && is_nan(b);
  return descending ? a > b : a < b;
}

// The first `kept` of each line's stable sort, and where they were.
RefResults sorted(const RefContext& c, int64_t axis, bool descending, int64_t kept) {
  const RefTensor& x = c.x(0);
  RefTensor values = c.result(0), indices = c.result(1);
  const Lines from_lines = lines_along(x.sizes, axis), to_lines = lines_along(values.sizes, axis);
  if (kept < 0 || kept > from_lines.length)
    fail_sizes(c, "0 <= k <= " + std::to_string(from_lines.length), std::to_string(kept));
  with_elements(values, x, [&](auto& to, const auto& from) {
    for (int64_t o = 0; o < from_lines.outer; ++o)
      for (int64_t n = 0; n < from_lines.inner; ++n) {
        std::vector<int64_t> order(static_cast<size_t>(from_lines.length));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
          return comes_before(from[from_lines.at(o, a, n)], from[from_lines.at(o, b, n)], descending);
        });
        for (int64_t k = 0; k < kept; ++k) {
          to[to_lines.at(o, k, n)] = from[from_lines.at(o, order[static_cast<size_t>(k)], n)];
          indices.i[to_lines.at(o, k, n)] = order[static_cast<size_t>(k)];
        }
      }
  });
  RefResults results;
  results.push_back(std::move(values));
  results.push_back(std::move(indices));
  return results;
}

}  // namespace

RefResults ref_cumsum(const RefContext& c) {
  RefTensor out = c.result();
  if (out.is_float())
    scan_lines(c, c.x(0).f, out.f, 0.0, [](double a, double b) { return a + b; });
  else
    scan_lines(c, c.x(0).i, out.i, int64_t{0}, wrap_add);
  return one(std::move(out));
}

RefResults ref_cumprod(const RefContext& c) {
  RefTensor out = c.result();
  if (out.is_float())
    scan_lines(c, c.x(0).f, out.f, 1.0, [](double a, double b) { return a * b; });
  else
    scan_lines(c, c.x(0).i, out.i, int64_t{1}, wrap_mul);
  return one(std::move(out));
}

RefResults ref_sort(const RefContext& c) {
  const int64_t axis = c.axis("axis", c.x(0).rank());
  return sorted(c, axis, c.attrs().get_bool("descending"), c.x(0).sizes[static_cast<size_t>(axis)]);
}

RefResults ref_top_k(const RefContext& c) {
  const int64_t axis = c.axis("axis", c.x(0).rank());
  return sorted(c, axis, c.attrs().get_bool("largest"), c.dims("k").at(0));
}

}  // namespace aicf::reference
