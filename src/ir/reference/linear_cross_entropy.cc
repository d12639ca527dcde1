// linear_cross_entropy and its gradients: the logits as matmul gives them, then cross_entropy.
#include <algorithm>
#include <cmath>

#include "ir/reference/contractions.h"
#include "ir/reference/ref_op.h"

namespace aicf::reference {
namespace {

// w as [K, C].
RefTensor weights(const RefContext& c) {
  return c.attrs().get_bool("transpose_w") ? swap_last_axes(c.x(1)) : c.x(1);
}

RefTensor product(const RefContext& c, const RefTensor& x, const RefTensor& y) {
  const int64_t m = x.sizes[0], k = x.sizes[1], n = y.sizes[1];
  RefTensor out = make_tensor(c.x(0).dtype, {m, n});
  multiply(x.f.data(), y.f.data(), out.f.data(), m, k, n);
  normalize(out, c.round_to_dtype());
  return out;
}

RefTensor loss_of(const RefContext& c, const RefTensor& logits) {
  const RefContext inner{c.node,          {std::make_shared<const RefTensor>(logits), c.operands[2]},
                         c.result_dtypes, c.result_sizes,
                         c.sizes,         c.options};
  return std::move(ref_cross_entropy(inner)[0]);
}

// Of one row; `share`: of the loss's gradient that the row has.
void logit_gradients(double* row, int64_t classes, int64_t label, double share) {
  const double top = *std::max_element(row, row + classes);
  double sum = 0;
  for (int64_t k = 0; k < classes; ++k) sum += row[k] = std::exp(row[k] - top);
  for (int64_t k = 0; k < classes; ++k) row[k] = (row[k] / sum - (k == label ? 1 : 0)) * share;
}

RefTensor rows_of(const RefTensor& x, int64_t first, int64_t limit) {
  RefTensor rows = make_tensor(x.dtype, {limit - first, x.sizes[1]});
  std::copy(x.f.begin() + first * x.sizes[1], x.f.begin() + limit * x.sizes[1], rows.f.begin());
  return rows;
}

// x^T slopes; the part of each chunk is of their type.
RefTensor weight_gradient(const RefContext& c, const RefTensor& slopes) {
  const int64_t rows = slopes.sizes[0], given = c.attrs().get_int("chunk"), chunk = given > 0 ? given : rows;
  RefTensor sum = make_tensor(slopes.dtype, {c.x(0).sizes[1], slopes.sizes[1]});
  for (int64_t first = 0; first < rows; first += chunk) {
    const int64_t limit = std::min(first + chunk, rows);
    const RefTensor part =
        product(c, swap_last_axes(rows_of(c.x(0), first, limit)), rows_of(slopes, first, limit));
    for (size_t i = 0; i < sum.f.size(); ++i) sum.f[i] += part.f[i];
  }
  return sum;
}

}  // namespace

RefResults ref_linear_cross_entropy(const RefContext& c) {
  return one(loss_of(c, product(c, c.x(0), weights(c))));
}

RefResults ref_linear_cross_entropy_backward(const RefContext& c) {
  const RefTensor w = weights(c);
  RefTensor slopes = product(c, c.x(0), w);
  RefResults results = one(loss_of(c, slopes));
  const std::vector<int64_t>& labels = c.x(2).i;
  const int64_t ignored = c.attrs().get_int("ignore_index"), classes = w.sizes[1];
  const auto kept = static_cast<double>(labels.size()) -
                    static_cast<double>(std::count(labels.begin(), labels.end(), ignored));
  for (size_t row = 0; row < labels.size(); ++row) {
    double* at = slopes.f.data() + static_cast<int64_t>(row) * classes;
    if (labels[row] == ignored)
      std::fill(at, at + classes, 0.0);
    else
      logit_gradients(at, classes, labels[row], c.x(3).f.at(0) / kept);
  }
  normalize(slopes, c.round_to_dtype());
  results.push_back(product(c, slopes, swap_last_axes(w)));
  RefTensor dw = weight_gradient(c, slopes);
  results.push_back(c.attrs().get_bool("transpose_w") ? swap_last_axes(dw) : std::move(dw));
  return results;
}

}  // namespace aicf::reference
