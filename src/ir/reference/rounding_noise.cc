#include "ir/reference/rounding_noise.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/reference/error_rules.h"

namespace aicf::reference {
namespace {

double volume(const Index& sizes) {
  double count = 1;
  for (const int64_t size : sizes) count *= static_cast<double>(size);
  return count;
}

// How many terms or factors an element of the result has, at most.
double length_of(const RefContext& c) {
  const RefTensor& x = c.x(0);
  switch (c.node.op) {
    case Op::matmul:
      return static_cast<double>(x.sizes.end()[c.attrs().get_bool("transpose_x") ? -2 : -1]);
    case Op::conv:
      return volume(c.x(1).sizes) / static_cast<double>(std::max<int64_t>(1, c.x(1).sizes[0])) + 1;
    case Op::conv_transpose:
      return volume(c.x(1).sizes) / static_cast<double>(std::max<int64_t>(1, c.x(1).sizes[1])) + 1;
    case Op::avg_pool:
      return volume(c.attrs().get_ints("kernel"));
    case Op::cumsum:
    case Op::cumprod:
      return static_cast<double>(x.sizes[static_cast<size_t>(c.axis("axis", x.rank()))]);
    case Op::reduce_sum:
    case Op::reduce_prod:
      return volume(x.sizes) / std::max(1.0, volume(c.result_sizes[0]));
    case Op::scatter_elements:
    case Op::scatter_nd:
      return volume(c.x(2).sizes);
    default: {
      double longest = 1;
      for (const RefValue& operand : c.operands)
        if (operand != nullptr) longest = std::max(longest, volume(operand->sizes));
      return longest;
    }
  }
}

// Tensor cores add products into their sums without rounding to nearest, a block of at least this many at a
// time: their errors add up as their count, not as its root.
constexpr double kTruncatedBlock = 16;

// What sums of n terms lose, in units of the sum of their magnitudes.
double sum_factor(const RefContext& c) {
  const double n = length_of(c);
  const bool tensor_cores = (c.node.op == Op::matmul || c.node.op == Op::conv) &&
                            (is_half(c.x(0).dtype) || c.attrs().get_bool("tf32"));
  return std::sqrt(n / 3) + (tensor_cores ? n / kTruncatedBlock : 0);
}

bool rounds(const RefContext& c, DType to) {
  if (c.node.op != Op::cast) return true;
  const RefTensor& x = c.x(0);
  return !x.is_float()
             ? x.dtype != DType::boolean
             : unit_roundoff(x.dtype) < unit_roundoff(to) || largest_finite(x.dtype) > largest_finite(to);
}

bool adds(const RefContext& c) {
  const bool scatters = c.node.op == Op::scatter_elements || c.node.op == Op::scatter_nd;
  return !scatters || c.attrs().get_str("reduction") == "add" || c.attrs().get_str("reduction") == "mul";
}

}  // namespace

RoundingNoise::RoundingNoise(uint64_t seed, double amplitude, NoiseCache& cache)
    : state_((seed + 1) * 0x9E3779B97F4A7C15), amplitude_(amplitude), cache_(cache) {}

// splitmix64
double RoundingNoise::uniform() {
  uint64_t z = (state_ += 0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return static_cast<double>(static_cast<int64_t>(z ^ (z >> 31))) * 0x1p-63;
}

RefResults RoundingNoise::results(const RefContext& context, bool moved,
                                  const std::function<RefResults()>& compute) {
  RefResults results;
  if (moved) {
    results = compute();
  } else {
    const std::lock_guard lock(cache_.mutex);
    const auto [at, fresh] = cache_.exact.try_emplace(&context.node);
    if (fresh) at->second = compute();
    results = at->second;
  }
  for (RefTensor& result : results) {
    if (result.is_float()) perturb(context, result);
    if (context.round_to_dtype()) normalize(result, true);
  }
  return results;
}

const std::vector<double>& RoundingNoise::magnitudes(const RefContext& context) {
  const size_t run = runs_[&context.node]++;
  {
    const std::lock_guard lock(cache_.mutex);
    const auto at = cache_.magnitudes.find({&context.node, run});
    if (at != cache_.magnitudes.end()) return at->second;
  }
  RefContext c = context;
  for (RefValue& operand : c.operands) {
    if (operand == nullptr || !operand->is_float()) continue;
    auto absolute = std::make_shared<RefTensor>(*operand);
    for (double& x : absolute->f) x = std::fabs(x);
    operand = std::move(absolute);
  }
  std::vector<double> sums = call_reference(c)[0].f;
  const std::lock_guard lock(cache_.mutex);
  return cache_.magnitudes.try_emplace({&context.node, run}, std::move(sums)).first->second;
}

void RoundingNoise::perturb(const RefContext& c, RefTensor& result) {
  const ErrorRule rule = error_rule(c.node.op);
  if (rule == ErrorRule::kNone || !rounds(c, result.dtype) || !adds(c)) return;
  const double v = accumulation_roundoff(result.dtype);
  const double u = c.round_to_dtype() ? v : unit_roundoff(result.dtype);
  double relative = u, absolute = 0;
  const std::vector<double>* sums = nullptr;
  switch (rule) {
    case ErrorRule::kFunction:
      relative = 4 * u;
      break;
    case ErrorRule::kAngle:
      relative = 16 * u, absolute = u;
      break;
    case ErrorRule::kProduct:
      relative = u + v * std::sqrt(length_of(c));
      break;
    case ErrorRule::kSum:
      sums = &magnitudes(c);
      if (sums->size() != result.f.size()) sums = &result.f;  // a loop that other runs left sooner
      break;
    case ErrorRule::kUnknown:
      for (const double x : result.f)
        if (std::isfinite(x)) absolute = std::max(absolute, std::fabs(x));
      absolute *= u * std::sqrt(length_of(c));
      break;
    default:
      break;
  }
  const double lost = sums != nullptr ? v * sum_factor(c) : 0;
  const double largest = largest_finite(result.dtype), normal = smallest_normal(result.dtype);
  for (size_t i = 0; i < result.f.size(); ++i) {
    double& x = result.f[i];
    if (!std::isfinite(x)) continue;
    double error = relative * std::fabs(x) + (x == 0 ? 0 : absolute);
    if (sums != nullptr && std::isfinite((*sums)[i])) error += lost * std::fabs((*sums)[i]);
    // Below the normal numbers: f16 has a fixed spacing, others may become 0.
    if (x != 0 && std::fabs(x) < normal) error += result.dtype == DType::f16 ? u * normal : std::fabs(x);
    const double random = uniform();
    // The sign of a zero that is computed is not promised.
    if (x == 0 && random < 0) x = -x;
    if (error != 0) x += amplitude_ * error * random;
    if (std::fabs(x) > largest) x = std::copysign(std::numeric_limits<double>::infinity(), x);
  }
}

}  // namespace aicf::reference
