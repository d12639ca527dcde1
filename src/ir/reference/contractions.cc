// matmul and linear: plain i-k-j loops over contiguous f64 (or wrapping i64) matrices.
#include "ir/reference/contractions.h"

#include "ir/reference/ref_op.h"

namespace aicf::reference {

void multiply(const double* x, const double* y, double* out, int64_t m, int64_t k, int64_t n) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t l = 0; l < k; ++l) {
      const double factor = x[i * k + l];
      for (int64_t j = 0; j < n; ++j) out[i * n + j] += factor * y[l * n + j];
    }
}

void multiply(const int64_t* x, const int64_t* y, int64_t* out, int64_t m, int64_t k, int64_t n) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t l = 0; l < k; ++l)
      for (int64_t j = 0; j < n; ++j)
        out[i * n + j] = wrap_add(out[i * n + j], wrap_mul(x[i * k + l], y[l * n + j]));
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

}  // namespace

RefResults ref_matmul(const RefContext& c) {
  RefTensor out = c.result();
  RefTensor x = c.attrs().get_bool("transpose_x") ? swap_last_axes(c.x(0)) : c.x(0);
  RefTensor y = c.attrs().get_bool("transpose_y") ? swap_last_axes(c.x(1)) : c.x(1);
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
  const RefTensor& x = c.x(0);
  const RefTensor w = c.attrs().get_bool("transpose_w") ? swap_last_axes(c.x(1)) : c.x(1);
  const int64_t k = w.sizes[0], n = w.sizes[1];
  if (x.sizes.back() != k)
    fail_sizes(c, "equal contracted sizes", to_string(x.sizes) + " and " + to_string(w.sizes));
  const int64_t m = n == 0 ? 0 : out.count() / n;
  multiply(x.f.data(), w.f.data(), out.f.data(), m, k, n);
  if (c.has(2))
    for (int64_t at = 0; at < out.count(); ++at)
      out.f[static_cast<size_t>(at)] += c.x(2).f.at(static_cast<size_t>(at % n));
  return one(std::move(out));
}

}  // namespace aicf::reference
