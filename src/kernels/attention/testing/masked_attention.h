// For tests of attention and of its gradients: a problem with its mask, and its probabilities in f64.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/testing/step.h"

namespace aicf::step_testing {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kScale = 0.3f;

struct AttentionCase {
  int64_t batch, heads, kv_heads, queries, keys, depth, value_depth;
  bool causal = false;
  int mask = 0;  // 1 added [B, 1, 1, Tk], 2 bool [Tq, Tk], 3 added [B, H, Tq, Tk]
  double softcap = 0;
  int64_t window = 0;

  std::vector<int64_t> params() const {
    std::vector<int64_t> list = {causal, mask != 0};
    if (window > 0) list.push_back(window);
    return list;
  }
  std::vector<int64_t> q_sizes() const { return {batch, heads, queries, depth}; }
  std::vector<int64_t> k_sizes() const { return {batch, kv_heads, keys, depth}; }
  std::vector<int64_t> v_sizes() const { return {batch, kv_heads, keys, value_depth}; }
  std::vector<int64_t> out_sizes() const { return {batch, heads, queries, value_depth}; }
  std::vector<int64_t> mask_sizes() const {
    if (mask == 1) return {batch, 1, 1, keys};
    if (mask == 2) return {queries, keys};
    return {batch, heads, queries, keys};
  }
};

// A row of queries: of a batch row and a head.
struct AttentionRow {
  int64_t batch, head, query;
  int64_t query_row, first_key;  // rows of q, k and v, counted from their first

  AttentionRow(const AttentionCase& c, int64_t row)
      : batch(row / (c.heads * c.queries)),
        head(row / c.queries % c.heads),
        query(row % c.queries),
        query_row(row),
        first_key((batch * c.kv_heads + head / (c.heads / c.kv_heads)) * c.keys) {}
};

inline TestTensor make_mask(const AttentionCase& c) {
  TestTensor mask(c.mask == 2 ? DType::boolean : DType::f32, c.mask_sizes());
  if (c.mask == 2)
    mask.fill([](int64_t i) { return i % 3 != 0; });
  else
    mask.fill([](int64_t i) { return i % 5 == 0 ? -kInf : 0.1 * static_cast<double>(i % 7); });
  return mask;
}

// Before the mask.
inline double score(const AttentionCase& c, const TestTensor& q, const TestTensor& k, const AttentionRow& row,
                    int64_t key) {
  double sum = 0;
  for (int64_t d = 0; d < c.depth; ++d)
    sum += q.get(row.query_row * c.depth + d) * k.get((row.first_key + key) * c.depth + d);
  sum *= kScale;
  return c.softcap > 0 ? c.softcap * std::tanh(sum / c.softcap) : sum;
}

// What the mask adds to a score; -inf: the key is left out.
inline double masked(const AttentionCase& c, const TestTensor& mask, const AttentionRow& row, int64_t key) {
  const int64_t ahead = key - (row.query + c.keys - c.queries);
  if ((c.causal && ahead > 0) || (c.window > 0 && std::abs(ahead) >= c.window)) return -kInf;
  if (c.mask == 1) return mask.get(row.batch * c.keys + key);
  if (c.mask == 2) return mask.get(row.query * c.keys + key) == 0 ? -kInf : 0;
  return c.mask == 3 ? mask.get(row.query_row * c.keys + key) : 0;
}

// Of every key; zeros if all are left out. `lse`, if it is given, takes the logarithm of the sum of e^score.
inline std::vector<double> probabilities(const AttentionCase& c, const TestTensor& q, const TestTensor& k,
                                         const TestTensor& mask, const AttentionRow& row,
                                         double* lse = nullptr) {
  std::vector<double> p;
  double top = -kInf, sum = 0;
  for (int64_t key = 0; key < c.keys; ++key) {
    const double added = masked(c, mask, row, key);
    p.push_back(added == -kInf ? -kInf : score(c, q, k, row, key) + added);
    top = std::max(top, p.back());
  }
  for (double& x : p) sum += x = top == -kInf ? 0 : std::exp(x - top);
  if (lse != nullptr) *lse = top + std::log(sum);
  for (double& x : p)
    if (sum > 0) x /= sum;
  return p;
}

}  // namespace aicf::step_testing
