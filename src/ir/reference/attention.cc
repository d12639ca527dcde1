// Attention and rotary embedding, each from its own formula and never through its decomposition.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/reference/contractions.h"
#include "ir/reference/ref_op.h"

namespace aicf::reference {
namespace {

constexpr double kInfiniteScore = std::numeric_limits<double>::infinity();

// Whether attention keeps score [b, h, i, j], and what the mask adds to it.
struct Mask {
  bool present = false, boolean = false;
  RefTensor full;  // expanded to [B, H, Tq, Tk]

  double apply(double score, size_t at) const {
    if (!present) return score;
    if (boolean) return full.i[at] != 0 ? score : -kInfiniteScore;
    return score + full.f[at];
  }
};

// Operand `k` as it is multiplied.
RefTensor multiplied(const RefContext& c, size_t k) {
  RefTensor x = c.x(k);
  if (c.attrs().get_bool("tf32"))
    for (double& element : x.f) element = round_tf32(element, x.dtype);
  return x;
}

// Turns a row of scores into probabilities; a fully masked row becomes zeros. Gives the logarithm of the sum
// of the scores' exponentials. `rounds`: those to tf32.
double softmax_row(double* row, int64_t count, bool rounds) {
  double top = -kInfiniteScore, sum = 0;
  for (int64_t j = 0; j < count; ++j) top = max_of(top, row[j]);
  for (int64_t j = 0; j < count; ++j) sum += row[j] = top == -kInfiniteScore ? 0 : std::exp(row[j] - top);
  if (rounds && top != -kInfiniteScore) {
    const double factor =
        std::exp(top - std::ceil(top / std::log(2.0)) * std::log(2.0));  // e^top over a power of two
    for (int64_t j = 0; j < count; ++j) row[j] = round_tf32(row[j] * factor, DType::f32) / factor;
  }
  for (int64_t j = 0; j < count; ++j) row[j] = top == -kInfiniteScore ? 0 : row[j] / sum;
  return top == -kInfiniteScore ? top : top + std::log(sum);
}

// One attention over [B, Hq, Tq, D] and what its heads share.
struct Heads {
  const RefContext& c;
  int64_t heads, queries, depth, kv_heads, keys, v_depth, window;
  double scale, softcap;
  bool causal, tf32;
  RefTensor x, k, v, k_transposed;  // x: q
  Mask mask;

  Heads(const RefContext& context, size_t mask_operand)
      : c(context),
        x(multiplied(c, 0)),
        k(multiplied(c, 1)),
        v(multiplied(c, 2)),
        k_transposed(swap_last_axes(k)) {
    const Index &q = x.sizes, &values = v.sizes;
    heads = q[1], queries = q[2], depth = q[3], kv_heads = values[1], keys = values[2], v_depth = values[3];
    tf32 = c.attrs().get_bool("tf32");
    scale = c.attrs().get_float("scale"), softcap = c.attrs().get_float("softcap");
    causal = c.attrs().get_bool("causal"), window = c.attrs().get_int("window");
    if (!(mask.present = c.has(mask_operand))) return;
    mask.full = expand(c.x(mask_operand), {q[0], heads, queries, keys});
    mask.boolean = !mask.full.is_float();
  }
  int64_t count() const { return x.sizes[0] * heads; }
  int64_t kv(int64_t head) const { return head / heads * kv_heads + head % heads / (heads / kv_heads); }

  // Scores after scale and softcap, [Tq, Tk].
  std::vector<double> scores(int64_t head) const {
    std::vector<double> scores(static_cast<size_t>(queries * keys), 0.0);
    multiply(x.f.data() + head * queries * depth, k_transposed.f.data() + kv(head) * depth * keys,
             scores.data(), queries, depth, keys);
    for (double& score : scores) {
      score *= scale;
      if (softcap > 0) score = softcap * std::tanh(score / softcap);
    }
    return scores;
  }
  // Whether row i sees key j but for the mask.
  bool sees(int64_t i, int64_t j) const {
    const int64_t ahead = j - (i + keys - queries);
    return !(causal && ahead > 0) && (window == 0 || std::abs(ahead) < window);
  }
  // Scores turned into probabilities; gives the logarithms of the rows' sums.
  std::vector<double> weigh(int64_t head, std::vector<double>& scores, bool rounds) const {
    std::vector<double> sums;
    for (int64_t i = 0; i < queries; ++i) {
      double* row = scores.data() + i * keys;
      for (int64_t j = 0; j < keys; ++j) {
        row[j] = mask.apply(row[j], static_cast<size_t>((head * queries + i) * keys + j));
        if (!sees(i, j)) row[j] = -kInfiniteScore;
      }
      sums.push_back(softmax_row(row, keys, rounds));
    }
    return sums;
  }
};

// Of all heads; the logarithms of the rows' sums go to `sums` if there is one.
void attend(const RefContext& c, RefTensor& out, RefTensor* sums) {
  const Heads a(c, 3);
  for (int64_t head = 0; head < a.count(); ++head) {
    std::vector<double> weights = a.scores(head);
    const std::vector<double> own = a.weigh(head, weights, a.tf32);
    if (sums != nullptr) std::copy(own.begin(), own.end(), sums->f.begin() + head * a.queries);
    multiply(weights.data(), a.v.f.data() + a.kv(head) * a.keys * a.v_depth,
             out.f.data() + head * a.queries * a.v_depth, a.queries, a.keys, a.v_depth);
  }
}

}  // namespace

RefResults ref_attention(const RefContext& c) {
  RefTensor out = c.result();
  attend(c, out, nullptr);
  return one(std::move(out));
}

RefResults ref_attention_lse(const RefContext& c) {
  RefTensor out = c.result(0), sums = c.result(1);
  attend(c, out, &sums);
  RefResults results = one(std::move(out));
  results.push_back(std::move(sums));
  return results;
}

// Element by element from the chain rule: score [i, j] has gradient weight (dout_i . v_j - dout_i . out_i).
RefResults ref_attention_backward(const RefContext& c) {
  const Heads a(c, 5);
  const RefTensor dout = multiplied(c, 4);
  const auto multiplied_factor = [&](double x) { return a.tf32 ? round_tf32(x, DType::f32) : x; };
  RefTensor dq = c.result(0), dk = c.result(1), dv = c.result(2);
  for (int64_t head = 0; head < a.count(); ++head) {
    const std::vector<double> scores = a.scores(head);
    std::vector<double> weights = scores;
    a.weigh(head, weights, false);
    const int64_t kv = a.kv(head);
    for (int64_t i = 0; i < a.queries; ++i) {
      const int64_t query = head * a.queries + i;
      const double* slopes = dout.f.data() + query * a.v_depth;
      double along = 0;
      for (int64_t d = 0; d < a.v_depth; ++d) {
        const auto at = static_cast<size_t>(query * a.v_depth + d);
        along += c.x(4).f[at] * c.x(3).f[at];
      }
      for (int64_t j = 0; j < a.keys; ++j) {
        const auto at = static_cast<size_t>(i * a.keys + j);
        const int64_t key = kv * a.keys + j;
        double slope = 0;
        for (int64_t d = 0; d < a.v_depth; ++d) {
          slope += slopes[d] * a.v.f[static_cast<size_t>(key * a.v_depth + d)];
          dv.f[static_cast<size_t>(key * a.v_depth + d)] += multiplied_factor(weights[at]) * slopes[d];
        }
        slope = weights[at] * (slope - along);
        if (a.softcap > 0) slope *= 1 - scores[at] * scores[at] / (a.softcap * a.softcap);
        slope = multiplied_factor(slope) * a.scale;
        for (int64_t d = 0; d < a.depth; ++d) {
          const auto q_at = static_cast<size_t>(query * a.depth + d);
          const auto k_at = static_cast<size_t>(key * a.depth + d);
          dq.f[q_at] += slope * a.k.f[k_at];
          dk.f[k_at] += slope * a.x.f[q_at];
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

}  // namespace aicf::reference
