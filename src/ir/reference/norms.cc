// Softmax and norms, each from its own formula and never through its decomposition.
#include <cmath>

#include "ir/reference/ref_op.h"

namespace aicf::reference {
namespace {

struct Moments {
  double mean = 0, variance = 0;
};

Moments moments_of(const double* x, int64_t count) {
  Moments moments;
  for (int64_t k = 0; k < count; ++k) moments.mean += x[k];
  moments.mean /= static_cast<double>(count);
  for (int64_t k = 0; k < count; ++k) moments.variance += (x[k] - moments.mean) * (x[k] - moments.mean);
  moments.variance /= static_cast<double>(count);
  return moments;
}

// Operand `which` at `at`, or `otherwise` if it is absent.
double at_or(const RefContext& c, size_t which, int64_t at, double otherwise) {
  return c.has(which) ? c.x(which).f.at(static_cast<size_t>(at)) : otherwise;
}
}  // namespace

RefResults ref_softmax(const RefContext& c) {
  RefTensor out = c.result();
  const Lines lines = lines_along(out.sizes, c.axis("axis", out.rank()));
  for_each_line(lines, [&](int64_t o, int64_t n) {
    const double top = line_max(c.x(0).f, lines, o, n);
    double sum = 0;
    for (int64_t k = 0; k < lines.length; ++k)
      sum += out.f[lines.at(o, k, n)] = std::exp(c.x(0).f[lines.at(o, k, n)] - top);
    for (int64_t k = 0; k < lines.length; ++k) out.f[lines.at(o, k, n)] /= sum;
  });
  return one(std::move(out));
}

RefResults ref_log_softmax(const RefContext& c) {
  RefTensor out = c.result();
  const Lines lines = lines_along(out.sizes, c.axis("axis", out.rank()));
  for_each_line(lines, [&](int64_t o, int64_t n) {
    const double top = line_max(c.x(0).f, lines, o, n);
    double sum = 0;
    for (int64_t k = 0; k < lines.length; ++k) sum += std::exp(c.x(0).f[lines.at(o, k, n)] - top);
    for (int64_t k = 0; k < lines.length; ++k)
      out.f[lines.at(o, k, n)] = c.x(0).f[lines.at(o, k, n)] - top - std::log(sum);
  });
  return one(std::move(out));
}

RefResults ref_layer_norm(const RefContext& c) {
  RefTensor out = c.result();
  const Lines lines = lines_from(out.sizes, c.axis("axis", out.rank()));
  const double epsilon = c.attrs().get_float("epsilon");
  for (int64_t o = 0; o < lines.outer; ++o) {
    const double* x = c.x(0).f.data() + o * lines.length;
    const Moments moments = moments_of(x, lines.length);
    for (int64_t k = 0; k < lines.length; ++k)
      out.f[lines.at(o, k, 0)] =
          (x[k] - moments.mean) / std::sqrt(moments.variance + epsilon) * at_or(c, 1, k, 1) +
          at_or(c, 2, k, 0);
  }
  return one(std::move(out));
}

RefResults ref_rms_norm(const RefContext& c) {
  RefTensor out = c.result();
  const Lines lines = lines_from(out.sizes, c.axis("axis", out.rank()));
  const double epsilon = c.attrs().get_float("epsilon");
  for (int64_t o = 0; o < lines.outer; ++o) {
    const double* x = c.x(0).f.data() + o * lines.length;
    double squares = 0;
    for (int64_t k = 0; k < lines.length; ++k) squares += x[k] * x[k];
    const double rms = std::sqrt(squares / static_cast<double>(lines.length) + epsilon);
    for (int64_t k = 0; k < lines.length; ++k) out.f[lines.at(o, k, 0)] = x[k] / rms * at_or(c, 1, k, 1);
  }
  return one(std::move(out));
}

RefResults ref_batch_norm(const RefContext& c) {
  RefTensor out = c.result();
  const Lines lines = lines_along(out.sizes, 1);
  const double epsilon = c.attrs().get_float("epsilon");
  for (int64_t o = 0; o < lines.outer; ++o)
    for (int64_t channel = 0; channel < lines.length; ++channel) {
      const double scale = at_or(c, 1, channel, 1), bias = at_or(c, 2, channel, 0),
                   mean = at_or(c, 3, channel, 0);
      const double deviation = std::sqrt(at_or(c, 4, channel, 1) + epsilon);
      for (int64_t n = 0; n < lines.inner; ++n)
        out.f[lines.at(o, channel, n)] =
            (c.x(0).f[lines.at(o, channel, n)] - mean) / deviation * scale + bias;
    }
  return one(std::move(out));
}

RefResults ref_batch_norm_train(const RefContext& c) {
  RefTensor out = c.result(0), means = c.result(1), variances = c.result(2);
  const Lines lines = lines_along(out.sizes, 1);
  const double epsilon = c.attrs().get_float("epsilon");
  for (int64_t channel = 0; channel < lines.length; ++channel) {
    std::vector<double> x;
    for_each_line(lines, [&](int64_t o, int64_t n) { x.push_back(c.x(0).f[lines.at(o, channel, n)]); });
    const Moments moments = moments_of(x.data(), static_cast<int64_t>(x.size()));
    means.f[static_cast<size_t>(channel)] = moments.mean;
    variances.f[static_cast<size_t>(channel)] = moments.variance;
    for_each_line(lines, [&](int64_t o, int64_t n) {
      const size_t at = lines.at(o, channel, n);
      out.f[at] = (c.x(0).f[at] - moments.mean) / std::sqrt(moments.variance + epsilon) *
                      c.x(1).f[static_cast<size_t>(channel)] +
                  c.x(2).f[static_cast<size_t>(channel)];
    });
  }
  RefResults results;
  for (RefTensor* tensor : {&out, &means, &variances}) results.push_back(std::move(*tensor));
  return results;
}

RefResults ref_group_norm(const RefContext& c) {
  RefTensor out = c.result();
  const Lines lines = lines_along(out.sizes, 1);  // length: channels
  const int64_t groups = c.attrs().get_int("groups"), group_channels = lines.length / groups;
  const int64_t group_count = group_channels * lines.inner;
  const double epsilon = c.attrs().get_float("epsilon");
  for (int64_t group = 0; group < lines.outer * groups; ++group) {
    const double* x = c.x(0).f.data() + group * group_count;
    const Moments moments = moments_of(x, group_count);
    for (int64_t k = 0; k < group_count; ++k) {
      const int64_t channel = group % groups * group_channels + k / lines.inner;
      out.f[static_cast<size_t>(group * group_count + k)] =
          (x[k] - moments.mean) / std::sqrt(moments.variance + epsilon) * at_or(c, 1, channel, 1) +
          at_or(c, 2, channel, 0);
    }
  }
  return one(std::move(out));
}

}  // namespace aicf::reference
