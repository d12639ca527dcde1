// matmul and linear: i-k-j loops over contiguous f64 (or wrapping i64) matrices.
#include "ir/reference/contractions.h"

#include <algorithm>
#include <cmath>

#include "ir/reference/ref_op.h"

namespace aicf::reference {

// Four rows of y at a time: a sum is loaded and stored once for four products, added in the order of k.
void multiply(const double* x, const double* y, double* out, int64_t m, int64_t k, int64_t n) {
  constexpr int64_t kRows = 4;
  for (int64_t i = 0; i < m; ++i) {
    const double* factors = x + i * k;
    double* sums = out + i * n;
    int64_t l = 0;
    for (; l + kRows <= k; l += kRows) {
      const double *a = y + l * n, *b = a + n, *c = b + n, *d = c + n;
      const double of_a = factors[l], of_b = factors[l + 1], of_c = factors[l + 2], of_d = factors[l + 3];
      for (int64_t j = 0; j < n; ++j)
        sums[j] = sums[j] + of_a * a[j] + of_b * b[j] + of_c * c[j] + of_d * d[j];
    }
    for (; l < k; ++l)
      for (int64_t j = 0; j < n; ++j) sums[j] += factors[l] * y[l * n + j];
  }
}

void multiply(const int64_t* x, const int64_t* y, int64_t* out, int64_t m, int64_t k, int64_t n) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t l = 0; l < k; ++l)
      for (int64_t j = 0; j < n; ++j)
        out[i * n + j] = wrap_add(out[i * n + j], wrap_mul(x[i * k + l], y[l * n + j]));
}

double round_tf32(double x, DType dtype) {
  if (!std::isfinite(x) || x == 0) return x;
  // The dtype's smallest normal number has its leading one there; below it the spacing stays.
  const int lowest = dtype == DType::f64 ? -1022 : -126;
  const double spacing = std::ldexp(1.0, std::max(std::ilogb(x), lowest) - 10);
  return std::round(x / spacing) * spacing;
}

RefTensor multiplied_operand(const RefContext& c, size_t k) {
  RefTensor x = c.x(k);
  if (c.attrs().get_bool("tf32"))
    for (double& element : x.f) element = round_tf32(element, x.dtype);
  return x;
}

RefTensor swap_last_axes(const RefTensor& x) {
  const size_t rank = x.sizes.size();
  Index sizes = x.sizes;
  std::swap(sizes[rank - 1], sizes[rank - 2]);
  Index from;
  return rearrange(x, sizes, [&](const Index& index) -> const Index& {
    from = index;
    std::swap(from[rank - 1], from[rank - 2]);
    return from;
  });
}

namespace {

// The batch axes of a matmul operand broadcast to those of the result.
RefTensor expand_batch(const RefTensor& x, const Index& result_sizes) {
  Index sizes(result_sizes.begin(), result_sizes.end() - 2);
  sizes.insert(sizes.end(), x.sizes.end() - 2, x.sizes.end());
  return expand(x, sizes);
}

// Operand `k` of a product as it is multiplied, rows of x times columns of y.
RefTensor factor(const RefContext& c, size_t k, const char* transposed) {
  RefTensor matrix = multiplied_operand(c, k);
  return transposed != nullptr && c.attrs().get_bool(transposed) ? swap_last_axes(matrix) : matrix;
}

}  // namespace

RefResults ref_matmul(const RefContext& c) {
  RefTensor out = c.result();
  RefTensor x = factor(c, 0, "transpose_x"), y = factor(c, 1, "transpose_y");
  const int64_t m = x.sizes.end()[-2], k = x.sizes.end()[-1], n = y.sizes.end()[-1];
  if (y.sizes.end()[-2] != k)
    fail_sizes(c, "equal contracted sizes", to_string(x.sizes) + " and " + to_string(y.sizes));
  x = expand_batch(x, out.sizes);
  y = expand_batch(y, out.sizes);
  const int64_t batches = m * n == 0 ? 0 : out.count() / (m * n);
  for (int64_t b = 0; b < batches; ++b) {
    if (out.is_float())
      multiply(x.f.data() + b * m * k, y.f.data() + b * k * n, out.f.data() + b * m * n, m, k, n);
    else
      multiply(x.i.data() + b * m * k, y.i.data() + b * k * n, out.i.data() + b * m * n, m, k, n);
  }
  return one(std::move(out));
}

RefResults ref_linear(const RefContext& c) {
  RefTensor out = c.result();
  const RefTensor x = factor(c, 0, nullptr), w = factor(c, 1, "transpose_w");
  const int64_t k = w.sizes[0], n = w.sizes[1];
  if (x.sizes.back() != k)
    fail_sizes(c, "equal contracted sizes", to_string(x.sizes) + " and " + to_string(w.sizes));
  const int64_t m = n == 0 ? 0 : out.count() / n;
  multiply(x.f.data(), w.f.data(), out.f.data(), m, k, n);
  normalize(out, c.round_to_dtype());  // the matmul of its decomposition
  if (c.has(2))
    for (int64_t at = 0; at < out.count(); ++at)
      out.f[static_cast<size_t>(at)] += c.x(2).f.at(static_cast<size_t>(at % n));
  return one(std::move(out));
}

}  // namespace aicf::reference
