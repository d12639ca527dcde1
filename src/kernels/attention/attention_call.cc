#include "kernels/attention/attention_call.h"

#include <algorithm>

#include "kernels/common/step_check.h"

namespace aicf {

View4 view_of(const TensorArg& tensor) {
  return {tensor.strides[0], tensor.strides[1], tensor.strides[2], tensor.strides[3]};
}

View4 mask_view(const BoundCall& call, size_t mask, const char* kernel) {
  const TensorArg &q = call.inputs[0], &k = call.inputs[1];
  const int64_t scores[] = {q.sizes[0], q.sizes[1], q.sizes[2], k.sizes[2]};
  int64_t strides[kMaxRank];
  broadcast_strides(call.inputs[mask], scores, 4, kernel, strides);
  return {strides[0], strides[1], strides[2], strides[3]};
}

bool can_attend(const Problem& problem, size_t mask) {
  if (problem.inputs.size() < mask || problem.inputs.size() > mask + 1 || problem.params.size() > 3)
    return false;
  for (size_t i = 0; i < mask; ++i)
    if (problem.inputs[i].dtype != DType::f32 || problem.inputs[i].sizes.size() != 4) return false;
  return problem.inputs.size() == mask || problem.inputs[mask].dtype == DType::f32 ||
         problem.inputs[mask].dtype == DType::boolean;
}

namespace {

void check_operands(const BoundCall& call, const char* kernel) {
  const TensorArg &q = call.inputs[0], &k = call.inputs[1], &v = call.inputs[2];
  const char* names[] = {"q", "k", "v"};
  for (int i = 0; i < 3; ++i) {
    check_dtype(call.inputs[static_cast<size_t>(i)], DType::f32, kernel, names[i]);
    check_rank(call.inputs[static_cast<size_t>(i)], 4, kernel, names[i]);
  }
  const auto same = [&](const char* what, int64_t expected, int64_t actual) {
    check_step(expected == actual, kernel, what, std::to_string(expected), actual);
  };
  same("batch of k", q.sizes[0], k.sizes[0]);
  same("batch of v", q.sizes[0], v.sizes[0]);
  same("depth of k", q.sizes[3], k.sizes[3]);
  same("heads of v", k.sizes[1], v.sizes[1]);
  same("keys of v", k.sizes[2], v.sizes[2]);
  const bool grouped = k.sizes[1] > 0 ? q.sizes[1] % k.sizes[1] == 0 : q.sizes[1] == 0;
  check_step(grouped, kernel, "query heads", "a multiple of the key heads", q.sizes[1]);
  // Scratch holds a key block and a row block of the depths; beyond this no model goes.
  constexpr int64_t kMaxDepth = 1 << 16;
  check_step(q.sizes[3] <= kMaxDepth && v.sizes[3] <= kMaxDepth, kernel, "depth", "<= 65536",
             std::max(q.sizes[3], v.sizes[3]));
}

}  // namespace

bool check_attention_call(const BoundCall& call, size_t mask, size_t outputs, const char* kernel) {
  const bool has_window = call.params.size() > 2;
  check_counts(call, kernel, mask, mask + 1, has_window ? 3 : 2, 2);
  if (has_window) check_step(call.params[2] > 0, kernel, "window", "> 0", call.params[2]);
  check_step(call.program == nullptr, kernel, "epilogue", "none", 1);
  check_step(call.outputs.size() == outputs, kernel, "outputs", std::to_string(outputs),
             static_cast<int64_t>(call.outputs.size()));
  const bool has_mask = call.params[1] != 0;
  const size_t inputs = mask + (has_mask ? 1 : 0);
  check_step(call.inputs.size() == inputs, kernel, "inputs", std::to_string(inputs),
             static_cast<int64_t>(call.inputs.size()));
  check_operands(call, kernel);
  if (has_mask && call.inputs[mask].dtype != DType::boolean)
    check_dtype(call.inputs[mask], DType::f32, kernel, "mask");
  return has_mask;
}

SeenKeys seen_keys(const BoundCall& call) {
  const int64_t queries = call.inputs[0].sizes[2], keys = call.inputs[1].sizes[2];
  const int64_t all = queries + keys + 1;  // farther than any key is from any query
  const int64_t window = call.params.size() > 2 ? std::min(call.params[2], all) : all;
  return {keys, keys - queries, window, call.params[0] != 0 ? 1 : window};
}

void check_attention_result(const BoundCall& call, const TensorArg& tensor, const char* what,
                            const char* kernel) {
  check_dtype(tensor, DType::f32, kernel, what);
  check_rank(tensor, 4, kernel, what);
  for (int i = 0; i < 4; ++i) {
    const int64_t expected = i < 3 ? call.inputs[0].sizes[i] : call.inputs[2].sizes[3];
    check_step(tensor.sizes[i] == expected, kernel, what, std::to_string(expected), tensor.sizes[i]);
  }
}

}  // namespace aicf
