// One-hot, cross entropy and the AdamW step, each from its own formula and never through its decomposition,
// so that the two can be compared; softmax and norms stand in norms.cc, attention in attention.cc.
#include <cmath>

#include "ir/reference/ref_op.h"

namespace aicf::reference {

RefResults ref_one_hot(const RefContext& c) {
  const RefTensor& indices = c.x(0);
  RefTensor out = c.result();
  const auto axis = static_cast<size_t>(c.axis("axis", out.rank()));
  const int64_t depth = c.dims("depth").at(0);
  const auto fill = [&](auto& to, const auto& on, const auto& off) {
    for_each_index(out.sizes, [&](const Index& index, int64_t flat) {
      Index where = index;
      where.erase(where.begin() + static_cast<int64_t>(axis));
      const int64_t given = indices.i[static_cast<size_t>(flat_index(indices.sizes, where))];
      to[static_cast<size_t>(flat)] =
          index[axis] == (given < 0 ? given + depth : given) ? on.at(0) : off.at(0);
    });
  };
  if (out.is_float())
    fill(out.f, c.x(1).f, c.x(2).f);
  else
    fill(out.i, c.x(1).i, c.x(2).i);
  return one(std::move(out));
}

RefResults ref_cross_entropy(const RefContext& c) {
  const RefTensor &logits = c.x(0), &labels = c.x(1);
  const int64_t classes = logits.sizes[1], ignored = c.attrs().get_int("ignore_index");
  const Lines lines = lines_along(logits.sizes, 1);
  double total = 0;
  int64_t kept = 0;
  for (int64_t row = 0; row < lines.outer; ++row) {
    const int64_t label = labels.i.at(static_cast<size_t>(row));
    if (label == ignored) continue;
    if (label < 0 || label >= classes)
      throw UserError(ErrorCode::kU_index_out_of_range, "a label lies outside the classes")
          .with_op(c.op())
          .with_value(c.node.origin)
          .with_expected("0 <= label < " + std::to_string(classes) + ", or " + std::to_string(ignored) +
                         " to ignore the row")
          .with_actual(std::to_string(label))
          .with_remedy("check the labels");
    const double top = line_max(logits.f, lines, row, 0);
    double sum = 0;
    for (int64_t k = 0; k < classes; ++k) sum += std::exp(logits.f[lines.at(row, k, 0)] - top);
    total += top + std::log(sum) - logits.f[lines.at(row, label, 0)];
    ++kept;
  }
  RefTensor out = c.result();
  out.f.at(0) = kept == 0 ? 0 : total / static_cast<double>(kept);
  return one(std::move(out));
}

// Algorithm 2 of "Decoupled weight decay regularization" (Loshchilov & Hutter 2019) with schedule multiplier
// 1 and the decay scaled by the learning rate, as PyTorch does.
RefResults ref_adamw_step(const RefContext& c) {
  const double beta1 = c.attrs().get_float("beta1"), beta2 = c.attrs().get_float("beta2");
  const double epsilon = c.attrs().get_float("epsilon"), decay = c.attrs().get_float("weight_decay");
  const double step = static_cast<double>(c.x(4).i.at(0)), lr = c.x(5).f.at(0);
  RefTensor param = c.x(0), m = c.x(2), v = c.x(3);
  for (size_t k = 0; k < param.f.size(); ++k) {
    const double grad = c.x(1).f.at(k);
    m.f[k] = beta1 * m.f[k] + (1 - beta1) * grad;
    v.f[k] = beta2 * v.f[k] + (1 - beta2) * grad * grad;
    const double m_hat = m.f[k] / (1 - std::pow(beta1, step)), v_hat = v.f[k] / (1 - std::pow(beta2, step));
    param.f[k] -= lr * (m_hat / (std::sqrt(v_hat) + epsilon) + decay * param.f[k]);
  }
  RefResults results;
  for (RefTensor* tensor : {&param, &m, &v}) results.push_back(std::move(*tensor));
  return results;
}

}  // namespace aicf::reference
