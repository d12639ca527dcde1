#include "select/measured_order.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/parse_number.h"
#include "kernels/common/kernel.h"
#include "select/measured_order_weights.inc"

namespace aicf {
namespace {

// As many were measured of each problem, the best estimated and the best of each row.
constexpr size_t kLookedAt = 22;
// The row's own first choice stays unless another is expected to be faster by this (of the logarithm).
constexpr double kMargin = 0.05;
// The largest problems that were drawn: elements, of repeated axes too, and work of halves, tf32, f32,
// convolutions, attention.
constexpr double kMostElements = 13e6;
constexpr double kMostHalfFlops = 40e9, kMostTf32Flops = 5e9, kMostFloatFlops = 1.5e9, kMostConvFlops = 25e9,
                 kMostAttentionFlops = 30e9;

using Features = std::vector<double>;

template <class... X>
void append(Features& features, X... x) {
  (features.push_back(static_cast<double>(x)), ...);
}

double log_of(double x) { return std::log2(std::max(x, 1e-9)); }
double rounds(double x) { return x > 1 ? std::ceil(x) / x : 1; }

// That of a product or of a convolution's product.
std::optional<MatmulWay> product_way(const Way& way) {
  if (const auto* product = std::get_if<MatmulWay>(&way)) return *product;
  if (const auto* conv = std::get_if<ConvWay>(&way)) return conv->product;
  return std::nullopt;
}

double size(const KeyOperand& operand, size_t axis) { return static_cast<double>(operand.sizes[axis].hi); }
double last(const KeyOperand& operand, size_t from_end) {
  return size(operand, operand.sizes.size() - from_end);
}
double elements(const KeyOperand& operand) {
  double count = 1;
  for (const Interval& interval : operand.sizes) count *= static_cast<double>(interval.hi);
  return count;
}
double stride(const KeyOperand& operand, size_t from_end) {
  return static_cast<double>(operand.strides[operand.strides.size() - from_end].hi);
}
// Bytes from one row to the next of a matrix, whichever of its axes is innermost.
double pitch(const KeyOperand& operand) {
  return std::max(stride(operand, 1), stride(operand, 2)) * dtype_bytes(operand.dtype);
}
bool is_transposed(const KeyOperand& operand) { return stride(operand, 1) != 1 && stride(operand, 2) == 1; }
// The largest power of two, up to 16, of which every row starts at a multiple, in bytes.
double row_alignment(const KeyOperand& operand) {
  const auto bytes = static_cast<int64_t>(pitch(operand));
  return bytes == 0 ? 16 : static_cast<double>(std::min<int64_t>(bytes & -bytes, 16));
}
bool comes_by_elements(const KeyOperand& operand) {
  return std::min<double>(row_alignment(operand), operand.alignment) < 16;
}
double param(const ProblemKey& key, size_t index) {
  const std::vector<std::string_view> words = split(key.params, ' ');
  int value = 0;
  if (index < words.size()) parse_number(words[index], value);
  return value;
}

bool is_measured_as(const Candidate& candidate, MeasuredForm form) {
  return facts_of(candidate.kernel).measured_form == form;
}

struct Product {
  double batch, m, n, k;
  bool half, tf32;
};

Product product_of(const ProblemKey& key) {
  const KeyOperand &x = key.inputs[0], &y = key.inputs[1], &out = key.outputs[0];
  const bool half = is_half(x.dtype);
  if (key.op == "conv") {
    const double groups = param(key, 1), maps = size(y, 0);
    return {groups, elements(out) / maps, maps / groups, elements(y) / maps, half, false};
  }
  const double m = last(x, 2), k = last(x, 1);
  return {elements(out) / (m * last(y, 1)), m, last(y, 1), k, half, !half && key.params != "-"};
}

// Of rows with one way.
constexpr MatmulWay kPlain{.block_m = kSingleSide, .block_n = kSingleSide, .stages = 1};

void add_product_features(const Product& p, const Candidate& candidate, const std::optional<MatmulWay>& way,
                          double units, Features& features) {
  const MatmulWay& c = way ? *way : kPlain;
  const double rows = c.block_m, columns = c.block_n, splits = split_parts(c), stages = c.stages;
  const double row_tiles = std::ceil(p.m / rows), column_tiles = std::ceil(p.n / columns);
  const bool wgmma = is_wgmma(c), mma = family_of(c) == MatmulFamily::mma, sliced = is_sliced(c);
  const bool simt = way && family_of(c) == MatmulFamily::simt;
  const double steps = std::ceil(std::ceil(p.k * (p.tf32 ? 2 : 1) / 64) / splits);
  const double occupancy = wgmma ? c.occupancy : mma ? 2 : std::floor(256 / std::max(rows, 32.0));
  const double blocks = p.batch * row_tiles * column_tiles * splits / units, waves = blocks / occupancy;
  const auto is_tile = [&](double m, double n) { return rows == m && columns == n; };
  append(features, log_of(p.m), log_of(p.n), log_of(p.k), log_of(p.batch), log_of(rows), log_of(columns),
         log_of(stages), log_of(splits), log_of(sliced ? c.slices : 1), log_of(blocks), std::min(blocks, 1.0),
         rounds(waves), rounds(blocks), log_of(steps), p.m / (row_tiles * rows),
         p.n / (column_tiles * columns), std::min(stages / steps, 2.0), log_of(steps * std::ceil(blocks)),
         log_of(steps * std::ceil(waves)));
  append(features, sliced, c.occupancy > 1, is_ping_pong(c), has_epilogue_warps(c), keeps_x_stationary(c),
         splits_in_cluster(c), p.half, p.tf32, simt || is_measured_as(candidate, MeasuredForm::kConvSimt),
         wgmma, mma, is_tile(16, 16), is_tile(64, 32), is_tile(64, 64), is_tile(128, 64), is_tile(128, 128),
         is_tile(128, 96) || is_tile(128, 192), rows == 256 || columns == 256);
}

void add_matmul_features(const ProblemKey& key, const MatmulWay& c, Features& features) {
  const KeyOperand &x = key.inputs[0], &y = key.inputs[1];
  const double fetched_x = comes_by_elements(x), fetched_y = comes_by_elements(y);
  constexpr int64_t kLine = 128;
  append(features, is_transposed(x), is_transposed(y), fetched_x, fetched_y,
         log_of(row_alignment(key.outputs[0])), std::fmod(pitch(x), kLine) == 0,
         std::fmod(pitch(y), kLine) == 0, (fetched_x + fetched_y) * log_of(c.stages),
         (fetched_x * c.block_m + fetched_y * c.block_n) / 64);
}

void add_conv_features(const ProblemKey& key, const Candidate& candidate, Features& features) {
  const KeyOperand &x = key.inputs[0], &y = key.inputs[1];
  const double groups = param(key, 1), channels = size(x, 1);
  const auto* conv = std::get_if<ConvWay>(&candidate.way);
  append(features, log_of(last(y, 1)), param(key, 3) > 1, std::fmod(channels / groups, 8) == 0, groups > 1,
         size(y, 1) == 1, log_of(last(key.outputs[0], 2)), log_of(channels),
         conv != nullptr && conv->loads == ConvLoads::tma,
         is_measured_as(candidate, MeasuredForm::kConvDepthwise));
}

void add_attention_features(const ProblemKey& key, const Candidate& candidate, Features& features) {
  const KeyOperand &q = key.inputs[0], &k = key.inputs[1];
  const double heads = size(q, 0) * size(q, 1), queries = last(q, 2), depth = last(q, 1), keys = last(k, 2);
  const auto* known = std::get_if<AttentionWay>(&candidate.way);
  const AttentionWay c = known != nullptr ? *known : AttentionWay();
  const auto is_by = [&](AttentionUnit unit) { return known != nullptr && c.unit == unit; };
  const double rows = c.rows, columns = c.keys;
  const double blocks = heads * std::ceil(queries / rows) / key.units, tiles = std::ceil(keys / columns);
  append(features, log_of(heads), log_of(queries), log_of(keys), log_of(depth),
         log_of(size(q, 1) / size(k, 1)), log_of(rows), log_of(columns), log_of(blocks), rounds(blocks),
         std::min(blocks, 1.0), log_of(tiles), keys / (tiles * columns),
         queries / (std::ceil(queries / rows) * rows), log_of(std::max(c.cluster, 1)),
         log_of(tiles * std::ceil(blocks)));
  append(features, depth > 128, std::fmod(depth, 64) == 0, param(key, 0) > 0, is_by(AttentionUnit::kWgmma),
         is_by(AttentionUnit::kMma), is_by(AttentionUnit::kSplit), is_by(AttentionUnit::kShort),
         is_measured_as(candidate, MeasuredForm::kAttentionMma),
         is_measured_as(candidate, MeasuredForm::kAttentionSimt));
}

// One hidden layer of rectifiers: a row of weights for each feature, the units' biases, those of their
// results.
template <size_t kRows, size_t kUnits>
double result_of(const float (&weights)[kRows][kUnits], double bias, const std::vector<double>& features) {
  AICF_CHECK(features.size() + 2 == kRows, "weights of other features: bench/fit_order.py");
  std::array<double, kUnits> units;
  std::copy_n(weights[kRows - 2], kUnits, units.begin());
  for (size_t i = 0; i < features.size(); ++i)
    for (size_t u = 0; u < kUnits; ++u) units[u] += weights[i][u] * features[i];
  double sum = bias;
  for (size_t u = 0; u < kUnits; ++u) sum += weights[kRows - 1][u] * std::max(units[u], 0.0);
  return sum;
}

double result_of(const ProblemKey& key, const std::vector<double>& features) {
  if (key.op == "matmul") return result_of(kMatmulOrder, kMatmulBias, features);
  if (key.op == "conv") return result_of(kConvOrder, kConvBias, features);
  return result_of(kAttentionOrder, kAttentionBias, features);
}

// What is gained by more than the call alone, no time of it alone shows: products of sliced.cuh may share a
// launch with others, and attention of one query makes its own inputs (join_inputs) in some ways only.
bool gains_in_company(const ProblemKey& key, const Candidate& first) {
  const std::optional<MatmulWay> product = product_way(first.way);
  return (product && is_sliced(*product)) || (key.op == "attention" && last(key.inputs[0], 2) == 1);
}

std::vector<size_t> best_estimated(const ProblemKey& key, const std::vector<Candidate>& candidates) {
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return candidates[a].estimate_us < candidates[b].estimate_us; });
  std::vector<size_t> list;
  std::set<std::string_view> rows;
  for (const size_t i : order)
    if (is_like_measured(key, candidates[i]) &&
        (rows.insert(candidates[i].kernel).second || list.size() < kLookedAt))
      list.push_back(i);
  return list;
}

// The best estimated of the candidates that no measurement is like.
std::optional<size_t> best_younger(const ProblemKey& key, const std::vector<Candidate>& candidates) {
  std::optional<size_t> best;
  for (size_t i = 0; i < candidates.size(); ++i)
    if (!is_like_measured(key, candidates[i]) &&
        (!best || candidates[i].estimate_us < candidates[*best].estimate_us))
      best = i;
  return best;
}

}  // namespace

bool is_like_measured(const ProblemKey& key, const Candidate& candidate) {
  const std::optional<MatmulWay> way = product_way(candidate.way);
  const bool is_younger_way =
      way && (multicast_blocks(*way) > 1 || sums_workspace(*way) || way->unit == MatmulUnit::simt ||
              is_for_small_products(*way) || is_direct(*way) ||
              (is_wgmma(*way) && key.inputs[0].dtype == DType::f32));
  const bool is_younger_tile =
      std::holds_alternative<WindowWay>(candidate.way) || std::holds_alternative<HaloTmaWay>(candidate.way);
  const auto* attention = std::get_if<AttentionWay>(&candidate.way);
  // Clusters were measured with other copies and no stages.
  const bool is_younger_split = attention != nullptr && attention->cluster != 0;
  return !is_measured_as(candidate, MeasuredForm::kNone) && !is_younger_way && !is_younger_tile &&
         !is_younger_split;
}

bool is_like_measured(const ProblemKey& key) {
  if (key.target != "sm_90" || key.units <= 0 || key.inputs.size() < 2 || key.outputs.empty()) return false;
  const KeyOperand &x = key.inputs[0], &y = key.inputs[1], &out = key.outputs[0];
  const size_t rank = x.sizes.size();
  if (y.sizes.size() != rank || out.sizes.size() != rank) return false;
  double count = 0;
  for (const auto* list : {&key.inputs, &key.outputs})
    for (const KeyOperand& operand : *list) {
      if (elements(operand) == 0) return false;
      count += elements(operand);
    }
  if (count > kMostElements) return false;
  const bool half = is_half(x.dtype);
  if (key.op == "attention") {
    constexpr size_t kWindow = 2;
    const double flops = 4 * elements(x) * last(y, 2);
    return half && rank == 4 && param(key, kWindow) == 0 && flops <= kMostAttentionFlops;
  }
  if (key.op == "conv") {
    constexpr size_t kDilations = 9;
    const bool is_plane = half && rank == 4 && param(key, 0) == 2;
    if (!is_plane || param(key, kDilations) != 1 || param(key, kDilations + 1) != 1) return false;
  } else if (key.op != "matmul" || rank < 2 || !(half || x.dtype == DType::f32)) {
    return false;
  }
  const Product p = product_of(key);
  const double most = key.op == "conv" ? kMostConvFlops
                      : p.half         ? kMostHalfFlops
                      : p.tf32         ? kMostTf32Flops
                                       : kMostFloatFlops;
  return 2 * p.batch * p.m * p.n * p.k <= most;
}

std::vector<double> order_features(const ProblemKey& key, const Candidate& candidate,
                                   const Candidate& first) {
  const std::optional<MatmulWay> product = product_way(candidate.way);
  Features features;
  if (key.op == "attention") {
    add_attention_features(key, candidate, features);
  } else {
    add_product_features(product_of(key), candidate, product, key.units, features);
    if (key.op == "conv") add_conv_features(key, candidate, features);
    if (key.op == "matmul") add_matmul_features(key, product.value_or(kPlain), features);
  }
  append(features, log_of(candidate.estimate_us),
         std::min(log_of(candidate.estimate_us / first.estimate_us), 4.0));
  return features;
}

bool order_by_measurements(const ProblemKey& key, std::vector<Candidate>& candidates) {
  if (!is_like_measured(key)) return false;
  // Products over the taps of one channel each do not compete with the row that is made for these.
  if (std::any_of(candidates.begin(), candidates.end(),
                  [](const Candidate& c) { return is_measured_as(c, MeasuredForm::kConvDepthwise); }))
    return false;
  const auto measured = std::find_if(candidates.begin(), candidates.end(),
                                     [&](const Candidate& c) { return is_like_measured(key, c); });
  if (measured == candidates.end() || gains_in_company(key, *measured)) return false;
  const Candidate& first = *measured;
  const auto score = [&](const Candidate& c) {
    return std::log(c.estimate_us) + result_of(key, order_features(key, c, first));
  };
  auto best = static_cast<size_t>(measured - candidates.begin());
  double least_score = score(first), margin = kMargin;
  for (const size_t i : best_estimated(key, candidates))
    if (const double s = score(candidates[i]); i != best && s < least_score - margin)
      best = i, least_score = s, margin = 0;
  // A score is the logarithm of an expected time: of a younger way that is its estimate.
  if (const auto younger = best_younger(key, candidates);
      younger && std::log(candidates[*younger].estimate_us) < least_score)
    best = *younger;
  candidates[best].price_us = std::min(candidates[best].price_us, candidates[0].price_us);
  const auto chosen = candidates.begin() + static_cast<std::ptrdiff_t>(best);
  std::rotate(candidates.begin(), chosen, chosen + 1);
  return best > 0;
}

}  // namespace aicf
