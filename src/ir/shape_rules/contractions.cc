#include <utility>

#include "base/error.h"
#include "ir/shape_rules/rules.h"

namespace aicf {

void shape_matmul(ShapeQuery& query) {
  check_tf32(query);
  require_rank_at_least(query, 0, 2);
  require_rank_at_least(query, 1, 2);
  Shape x = query.shape(0), y = query.shape(1);
  if (query.attrs.get_bool("transpose_x")) std::swap(x[x.size() - 1], x[x.size() - 2]);
  if (query.attrs.get_bool("transpose_y")) std::swap(y[y.size() - 1], y[y.size() - 2]);
  const Dim rows = x[x.size() - 2], columns = y.back();
  require_equal(query, x.back(), y[y.size() - 2], "the contracted sizes K of x and y");
  x.resize(x.size() - 2);
  y.resize(y.size() - 2);
  Shape result = broadcast_shapes(query, {&x, &y});
  result.push_back(rows);
  result.push_back(columns);
  query.results[0].shape = std::move(result);
}

void shape_linear(ShapeQuery& query) {
  check_tf32(query);
  require_rank_at_least(query, 0, 1);
  require_rank(query, 1, 2);
  const bool transposed = query.attrs.get_bool("transpose_w");
  const Dim &depth = query.shape(1)[transposed ? 1 : 0], &columns = query.shape(1)[transposed ? 0 : 1];
  require_equal(query, query.shape(0).back(), depth, "the contracted sizes K of x and w");
  require_shape(query, 2, {columns});
  Shape result = query.shape(0);
  result.back() = columns;
  query.results[0].shape = std::move(result);
}

namespace {

// A mask is bool or of q's dtype, f32 also for halves, and broadcasts to the scores.
void require_mask(const ShapeQuery& query, size_t operand) {
  if (!query.operands[operand]) return;
  const DType mask = query.operands[operand]->dtype, dtype = query.operands[0]->dtype;
  const bool wide = mask == DType::f32 && is_half(dtype);
  if (mask != DType::boolean && mask != dtype && !wide)
    throw UserError(ErrorCode::kU_bad_dtype,
                    std::string(query.info.name) + " does not take this dtype for operand 'mask'")
        .with_value(describe_operand(query, operand))
        .with_expected("bool or " + std::string(dtype_name(dtype)) + (is_half(dtype) ? " or f32" : ""))
        .with_actual(std::string(dtype_name(mask)));
  const Shape &q = query.shape(0), &k = query.shape(1);
  require_broadcastable(query, operand, {q[0], q[1], q[2], k[2]});
}

// Grouped heads: every Hq / Hk query heads share one key head. The shape of attention's result.
Shape attended_shape(const ShapeQuery& query) {
  check_tf32(query);
  for (size_t i = 0; i < 3; ++i) require_rank(query, i, 4);
  const Shape &q = query.shape(0), &k = query.shape(1), &v = query.shape(2);
  require_equal(query, q[0], k[0], "batch sizes of q and k");
  require_equal(query, q[0], v[0], "batch sizes of q and v");
  require_equal(query, k[1], v[1], "head counts of k and v");
  require_equal(query, k[2], v[2], "lengths of k and v");
  require_equal(query, q[3], k[3], "head sizes of q and k");
  if (q[1].is_constant() && k[1].is_constant()) {
    const int64_t query_heads = q[1].constant_part(), key_heads = k[1].constant_part();
    if (key_heads == 0 ? query_heads != 0 : query_heads % key_heads != 0)
      fail_shape(query, "as many query heads as a multiple of the key heads",
                 std::to_string(query_heads) + " and " + std::to_string(key_heads));
  }
  if (!(query.attrs.get_float("softcap") >= 0))
    fail_attribute(query, "softcap", "0 or more", "a negative number");
  if (const int64_t window = query.attrs.get_int("window"); window < 0)
    fail_attribute(query, "window", "0 (none) or a positive number of keys", std::to_string(window));
  return {q[0], q[1], q[2], v[3]};
}

}  // namespace

void shape_attention(ShapeQuery& query) {
  query.results[0].shape = attended_shape(query);
  require_mask(query, 3);
}

void shape_attention_lse(ShapeQuery& query) {
  const Shape out = attended_shape(query);
  query.results[0].shape = out;
  query.results[1].shape = {out[0], out[1], out[2]};
  require_mask(query, 3);
}

void shape_attention_backward(ShapeQuery& query) {
  const Shape out = attended_shape(query);
  require_shape(query, 3, out);
  require_shape(query, 4, out);
  require_mask(query, 5);
  for (size_t i = 0; i < 3; ++i) query.results[i].shape = query.shape(i);
}

}  // namespace aicf
