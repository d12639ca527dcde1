// Composites, each from its own formula and never through its decomposition, so that the two can be compared.
#include <cmath>
#include <limits>

#include "ir/reference/contractions.h"
#include "ir/reference/ref_op.h"

namespace aicf::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double line_max(const std::vector<double>& x, const Lines& lines, int64_t o, int64_t n) {
  double top = -kInfinity;
  for (int64_t k = 0; k < lines.length; ++k) top = max_of(top, x[lines.at(o, k, n)]);
  return top;
}

template <typename Body>
void for_each_line(const Lines& lines, Body body) {
  for (int64_t o = 0; o < lines.outer; ++o)
    for (int64_t n = 0; n < lines.inner; ++n) body(o, n);
}

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

// Whether attention keeps score [b, h, i, j], and what the mask adds to it.
struct Mask {
  bool present = false, boolean = false;
  RefTensor full;  // expanded to [B, H, Tq, Tk]

  double apply(double score, size_t at) const {
    if (!present) return score;
    if (boolean) return full.i[at] != 0 ? score : -kInfinity;
    return score + full.f[at];
  }
};

// Turns a row of scores into probabilities; a fully masked row becomes zeros.
void softmax_row(double* row, int64_t count) {
  double top = -kInfinity, sum = 0;
  for (int64_t j = 0; j < count; ++j) top = max_of(top, row[j]);
  for (int64_t j = 0; j < count; ++j) sum += row[j] = top == -kInfinity ? 0 : std::exp(row[j] - top);
  for (int64_t j = 0; j < count; ++j) row[j] = top == -kInfinity ? 0 : row[j] / sum;
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

namespace {

// One attention over [B, Hq, Tq, D] and what its heads share.
struct Heads {
  const RefContext& c;
  int64_t heads, queries, depth, kv_heads, keys, v_depth;
  double scale, softcap;
  bool causal;
  RefTensor k_transposed;
  Mask mask;

  Heads(const RefContext& context, size_t mask_operand) : c(context), k_transposed(swap_last_axes(c.x(1))) {
    const Index &q = c.x(0).sizes, &v = c.x(2).sizes;
    heads = q[1], queries = q[2], depth = q[3], kv_heads = v[1], keys = v[2], v_depth = v[3];
    scale = c.attrs().get_float("scale"), softcap = c.attrs().get_float("softcap");
    causal = c.attrs().get_bool("causal");
    if (!(mask.present = c.has(mask_operand))) return;
    mask.full = expand(c.x(mask_operand), {q[0], heads, queries, keys});
    mask.boolean = !mask.full.is_float();
  }
  int64_t count() const { return c.x(0).sizes[0] * heads; }
  int64_t kv(int64_t head) const { return head / heads * kv_heads + head % heads / (heads / kv_heads); }

  // Scores after scale and softcap, [Tq, Tk].
  std::vector<double> scores(int64_t head) const {
    std::vector<double> scores(static_cast<size_t>(queries * keys), 0.0);
    multiply(c.x(0).f.data() + head * queries * depth, k_transposed.f.data() + kv(head) * depth * keys,
             scores.data(), queries, depth, keys);
    for (double& score : scores) {
      score *= scale;
      if (softcap > 0) score = softcap * std::tanh(score / softcap);
    }
    return scores;
  }
  // Scores turned into probabilities.
  void weigh(int64_t head, std::vector<double>& scores) const {
    for (int64_t i = 0; i < queries; ++i) {
      double* row = scores.data() + i * keys;
      for (int64_t j = 0; j < keys; ++j) {
        row[j] = mask.apply(row[j], static_cast<size_t>((head * queries + i) * keys + j));
        if (causal && j > i + keys - queries) row[j] = -kInfinity;
      }
      softmax_row(row, keys);
    }
  }
};

}  // namespace

RefResults ref_attention(const RefContext& c) {
  const Heads a(c, 3);
  RefTensor out = c.result();
  for (int64_t head = 0; head < a.count(); ++head) {
    std::vector<double> weights = a.scores(head);
    a.weigh(head, weights);
    multiply(weights.data(), c.x(2).f.data() + a.kv(head) * a.keys * a.v_depth,
             out.f.data() + head * a.queries * a.v_depth, a.queries, a.keys, a.v_depth);
  }
  return one(std::move(out));
}

// Element by element from the chain rule: score [i, j] has gradient weight (dout_i . v_j - dout_i . out_i).
RefResults ref_attention_backward(const RefContext& c) {
  const Heads a(c, 5);
  RefTensor dq = c.result(0), dk = c.result(1), dv = c.result(2);
  for (int64_t head = 0; head < a.count(); ++head) {
    const std::vector<double> scores = a.scores(head);
    std::vector<double> weights = scores;
    a.weigh(head, weights);
    const int64_t kv = a.kv(head);
    for (int64_t i = 0; i < a.queries; ++i) {
      const int64_t query = head * a.queries + i;
      const double *out = c.x(3).f.data() + query * a.v_depth, *dout = c.x(4).f.data() + query * a.v_depth;
      for (int64_t j = 0; j < a.keys; ++j) {
        const auto at = static_cast<size_t>(i * a.keys + j);
        const int64_t key = kv * a.keys + j;
        double slope = 0;
        for (int64_t d = 0; d < a.v_depth; ++d) {
          slope += dout[d] * (c.x(2).f[static_cast<size_t>(key * a.v_depth + d)] - out[d]);
          dv.f[static_cast<size_t>(key * a.v_depth + d)] += weights[at] * dout[d];
        }
        slope *= weights[at] * a.scale;
        if (a.softcap > 0) slope *= 1 - scores[at] * scores[at] / (a.softcap * a.softcap);
        for (int64_t d = 0; d < a.depth; ++d) {
          const auto q_at = static_cast<size_t>(query * a.depth + d);
          const auto k_at = static_cast<size_t>(key * a.depth + d);
          dq.f[q_at] += slope * c.x(1).f[k_at];
          dk.f[k_at] += slope * c.x(0).f[q_at];
        }
      }
    }
  }
  RefResults results;
  for (RefTensor* tensor : {&dq, &dk, &dv}) results.push_back(std::move(*tensor));
  return results;
}

namespace {

RefTensor rotated(const RefTensor& x, const RefTensor& cos, const RefTensor& sin, bool interleaved) {
  RefTensor out = x;
  Index table = x.sizes;
  const int64_t depth = x.sizes.back(), half = cos.sizes.back();
  table.back() = half;
  const RefTensor cosines = expand(cos, table), sines = expand(sin, table);
  for (int64_t at = 0; at < cosines.count(); ++at) {
    const int64_t row = at / half * depth, pair = at % half;
    const auto first = static_cast<size_t>(row + (interleaved ? 2 * pair : pair));
    const auto second = static_cast<size_t>(row + (interleaved ? 2 * pair + 1 : pair + half));
    const double cosine = cosines.f[static_cast<size_t>(at)], sine = sines.f[static_cast<size_t>(at)];
    out.f.at(first) = x.f.at(first) * cosine - x.f.at(second) * sine;
    out.f.at(second) = x.f.at(second) * cosine + x.f.at(first) * sine;
  }
  return out;
}

// The cache [B, H, L, D] with x [B, H, T, D] at rows position + t.
RefTensor appended(const RefContext& c, RefTensor cache, const RefTensor& x, const RefTensor& position) {
  for_each_index(x.sizes, [&](const Index& index, int64_t flat) {
    Index target = index;
    const int64_t start = position.i.at(position.i.size() == 1 ? 0 : static_cast<size_t>(index[0]));
    target[2] = checked_index(c, start + index[2], cache.sizes[2]);
    cache.f.at(static_cast<size_t>(flat_index(cache.sizes, target))) = x.f.at(static_cast<size_t>(flat));
  });
  return cache;
}

}  // namespace

RefResults ref_rope(const RefContext& c) {
  return one(rotated(c.x(0), c.x(1), c.x(2), c.attrs().get_bool("interleaved")));
}

RefResults ref_rope_append(const RefContext& c) {
  const bool interleaved = c.attrs().get_bool("interleaved");
  RefResults results = one(rotated(c.x(0), c.x(3), c.x(4), interleaved));
  results.push_back(appended(c, c.x(5), rotated(c.x(1), c.x(3), c.x(4), interleaved), c.x(7)));
  results.push_back(appended(c, c.x(6), c.x(2), c.x(7)));
  return results;
}

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
