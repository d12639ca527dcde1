#include "kernels/attention/cuda/attention_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace aicf {
namespace {

constexpr int64_t kMaxDepth = 256;
constexpr double kCachedBytes = 32.0 * 1024 * 1024;  // of keys and values that stay in an H100's L2 cache

bool divisible(const Dim& dim, int64_t by) { return divide_exactly(dim, Dim(by)).has_value(); }

std::string number(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

}  // namespace

AttentionSizes sizes_of(const CudaProblem& problem) {
  const Shape &q = problem.inputs[0].sizes, &k = problem.inputs[1].sizes, &v = problem.inputs[2].sizes;
  const auto most = [&](const Dim& dim) {
    return static_cast<double>(std::max<int64_t>(1, bounds(dim, ranges_of(problem)).hi));
  };
  AttentionSizes sizes{q[0],       q[1],       k[1], q[2],       k[2],       Dim(1), 0,     0,
                       most(q[0]), most(q[1]), 1,    most(q[2]), most(k[2]), false,  false, 0};
  sizes.multiprocessors = static_cast<double>(problem.machine.multiprocessors);
  if (!(q[1] == k[1])) {
    const auto exact = divide_exactly(q[1], k[1]);
    sizes.group = exact ? *exact : floordiv(q[1], max(k[1], Dim(1)));
    sizes.most_group = most(sizes.group);
  }
  sizes.depth = q[3].require_constant("head depth");
  sizes.value_depth = v[3].require_constant("value depth");
  sizes.causal = problem.params[0].require_constant("causal") != 0;
  sizes.has_mask = problem.params[1].require_constant("has_mask") != 0;
  if (problem.params.size() > 2) sizes.window = problem.params[2].require_constant("window");
  const double farthest = sizes.causal ? sizes.most_keys : std::max(sizes.most_keys, sizes.most_queries);
  if (static_cast<double>(sizes.window) >= farthest || sizes.window > INT32_MAX) sizes.window = 0;
  return sizes;
}

namespace {

double seen_of(double all, const AttentionSizes& sizes, double own) {
  if (sizes.window == 0) return all;
  const double window = static_cast<double>(sizes.window) * (sizes.causal ? 1 : 2);
  return std::min(all, window + own - 1);
}

}  // namespace

double seen_keys(const AttentionSizes& sizes, double rows) { return seen_of(sizes.most_keys, sizes, rows); }
double seen_queries(const AttentionSizes& sizes, double keys) {
  return seen_of(sizes.most_queries, sizes, keys);
}

bool can_attend_cuda(const Problem& problem, size_t tensors, size_t results) {
  const auto& inputs = problem.inputs;
  const auto& outputs = problem.outputs;
  if (inputs.size() < tensors || inputs.size() > tensors + 1) return false;
  // The logarithms of attention's sums may be a second result.
  if (outputs.size() != results && !(results == 1 && outputs.size() == 2)) return false;
  // Positions have 32 bits: a window beyond hides nothing, one just below could overflow.
  const int64_t window = problem.params.size() > 2 ? problem.params[2].constant().value_or(0) : 0;
  if (window > int64_t{1} << 30 && window <= INT32_MAX) return false;
  const DType dtype = inputs[0].dtype;
  for (size_t i = 0; i < tensors; ++i)
    if (inputs[i].dtype != dtype || inputs[i].sizes.size() != 4) return false;
  for (const Dim& depth : {inputs[0].sizes[3], inputs[2].sizes[3]}) {
    const auto value = depth.constant();
    if (!value || *value < 1 || *value > kMaxDepth) return false;
  }
  for (double value : problem.fparams)
    if (!std::isfinite(value)) return false;
  if (inputs.size() == tensors) return true;
  const DType mask = inputs[tensors].dtype;
  return inputs[tensors].sizes.size() <= 4 && (mask == DType::boolean || mask == DType::f32 || mask == dtype);
}

bool has_vector_rows(const CudaWindow& window, int64_t elements) {
  if (!(window.strides[3] == Dim(1)) || !divisible(window.offset, elements)) return false;
  return divisible(window.strides[0], elements) && divisible(window.strides[1], elements) &&
         divisible(window.strides[2], elements);
}

bool has_tensor_map(const CudaProblem& problem, const CudaWindow& window) {
  if (!has_vector_rows(window, 8)) return false;
  for (size_t axis = 0; axis < 4; ++axis) {
    if (bounds(window.sizes[axis], ranges_of(problem)).lo < 1) return false;
    if (bounds(window.strides[axis], ranges_of(problem)).lo < 1) return false;
  }
  return true;
}

std::vector<Dim> mask_strides(const CudaWindow& mask) {
  std::vector<Dim> strides(4, Dim(0));
  const size_t rank = mask.sizes.size();
  for (size_t i = 0; i < rank; ++i)
    if (!(mask.sizes[i] == Dim(1))) strides[4 - rank + i] = mask.strides[i];
  return strides;
}

int64_t mask_unit(const CudaWindow& mask, const Dim& keys) {
  std::vector<Dim> strides = mask_strides(mask);
  if (!(strides[3] == Dim(1))) return 1;
  strides[3] = keys;
  strides.push_back(mask.offset);
  for (const int64_t unit : {8, 2})
    if (std::all_of(strides.begin(), strides.end(), [&](const Dim& dim) { return divisible(dim, unit); }))
      return unit;
  return 1;
}

int64_t head_group(const CudaProblem& problem, const AttentionSizes& sizes) {
  const double bytes = sizes.most_keys * static_cast<double>(sizes.depth + sizes.value_depth) *
                       static_cast<double>(dtype_bytes(problem.inputs[0].dtype)) / sizes.most_group;
  return static_cast<int64_t>(std::clamp(kCachedBytes / bytes, 1.0, 65536.0));
}

std::string constant(const char* name, int64_t value) {
  return std::string("  static constexpr int ") + name + " = " + std::to_string(value) + ";\n";
}
std::string constant(const char* name, bool value) {
  return std::string("  static constexpr bool ") + name + (value ? " = true;\n" : " = false;\n");
}
std::string constant(const char* name, double value) {
  return std::string("  static constexpr double ") + name + " = " + number(value) + ";\n";
}

std::string all_heads(const AttentionSizes& sizes, CudaParams& params) {
  return "  const int32_t all_heads = int32_t(" + params.expr(sizes.batch * sizes.heads) + ");\n";
}

std::string view(CudaParams& params, const std::vector<Dim>& strides) {
  std::string text = "{";
  for (size_t i = 0; i < 4; ++i) text += (i > 0 ? ", " : "") + params.expr(strides[i]);
  return text + "}";
}

}  // namespace aicf
