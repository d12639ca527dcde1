#include "base/error.h"
#include "ir/shape_rules/rules.h"

namespace aicf {
namespace {

void require_epsilon(const ShapeQuery& query) {
  if (!(query.attrs.get_float("epsilon") >= 0))
    fail_attribute(query, "epsilon", "0 or more", "a negative number");
}

}  // namespace

void shape_norm(ShapeQuery& query) {
  const Shape& x = query.shape(0);
  const size_t axis = use_axis(query, query.rank(0));
  require_epsilon(query);
  const Shape normalized(x.begin() + static_cast<int64_t>(axis), x.end());
  for (size_t i = 1; i < query.operands.size(); ++i) require_shape(query, i, normalized);
  query.results[0].shape = x;
}

// batch_norm, batch_norm_train and group_norm: vectors over the channels, axis 1.
void shape_batch_norm(ShapeQuery& query) {
  require_rank_at_least(query, 0, 2);
  require_epsilon(query);
  const Shape& x = query.shape(0);
  for (size_t i = 1; i < query.operands.size(); ++i) require_shape(query, i, {x[1]});
  if (query.info.attribute("groups")) {
    const int64_t groups = query.attrs.get_int("groups");
    if (groups < 1) fail_attribute(query, "groups", "at least 1", std::to_string(groups));
    if (x[1].is_constant() && x[1].constant_part() % groups != 0)
      fail_shape(query, "channels divisible by groups " + std::to_string(groups), x[1].to_string());
  }
  query.results[0].shape = x;
  for (size_t i = 1; i < query.results.size(); ++i) query.results[i].shape = {x[1]};
}

// cos and sin hold one angle for each of the R/2 rotated pairs; the remaining D - R elements pass unchanged.
void shape_rope(ShapeQuery& query) {
  require_rank_at_least(query, 0, 2);
  require_rank_at_least(query, 1, 1);
  require_shape(query, 2, query.shape(1));
  Shape target = query.shape(0);
  const Dim pairs = query.shape(1).back();
  if (known_greater(pairs * Dim(2), target.back()))
    fail_shape(query, "at most " + target.back().to_string() + " rotated elements",
               (pairs * Dim(2)).to_string());
  target.back() = pairs;
  require_broadcastable(query, 1, target);
  query.results[0].shape = query.shape(0);
}

void shape_rope_append(ShapeQuery& query) {
  for (size_t i : {0, 1, 2, 5, 6}) require_rank(query, i, 4);
  const Shape &q = query.shape(0), &k = query.shape(1), &v = query.shape(2);
  require_shape(query, 1, {q[0], k[1], q[2], q[3]});
  require_shape(query, 2, {q[0], k[1], q[2], v[3]});
  require_shape(query, 4, query.shape(3));
  require_rank_at_least(query, 3, 1);
  const Dim pairs = query.shape(3).back();
  if (known_greater(pairs * Dim(2), q[3]))
    fail_shape(query, "at most " + q[3].to_string() + " rotated elements", (pairs * Dim(2)).to_string());
  for (const Shape& rotated : {q, k})
    require_broadcastable(query, 3, {rotated[0], rotated[1], rotated[2], pairs});
  const Dim rows = query.shape(5)[2];
  require_shape(query, 5, {q[0], k[1], rows, q[3]});
  require_shape(query, 6, {q[0], k[1], rows, v[3]});
  require_rank(query, 7, 1);
  if (!(query.shape(7)[0] == Dim(1))) require_shape(query, 7, {q[0]});
  query.results[0].shape = q;
  query.results[1].shape = query.shape(5);
  query.results[2].shape = query.shape(6);
}

void shape_one_hot(ShapeQuery& query) {
  require_rank(query, 1, 0);
  require_rank(query, 2, 0);
  const Dim depth = require_dims(query, "depth", 1)[0];
  const size_t axis = use_axis(query, query.rank(0) + 1);
  Shape result = query.shape(0);
  result.insert(result.begin() + static_cast<int64_t>(axis), depth);
  query.results[0].shape = std::move(result);
}

void shape_cross_entropy(ShapeQuery& query) {
  require_rank(query, 0, 2);
  require_shape(query, 1, {query.shape(0)[0]});
  query.results[0].shape = {};
}

// x [N, K], w and labels [N]; the loss is a scalar.
void shape_linear_cross_entropy(ShapeQuery& query) {
  require_rank(query, 0, 2);
  require_rank(query, 1, 2);
  const Dim width = query.shape(1)[query.attrs.get_bool("transpose_w") ? 1 : 0];
  require_shape(query, 0, {query.shape(0)[0], width});
  require_shape(query, 2, {query.shape(0)[0]});
  if (!is_float(query.attrs.get_dtype("dtype")))
    fail_attribute(query, "dtype", "a float type", "another type");
  if (query.attrs.get_int("chunk") < 0) fail_attribute(query, "chunk", "0 or more", "a negative number");
  query.results[0].shape = {};
}

void shape_linear_cross_entropy_backward(ShapeQuery& query) {
  shape_linear_cross_entropy(query);
  require_rank(query, 3, 0);
  query.results[1].shape = query.shape(0);
  query.results[2].shape = query.shape(1);
}

void shape_adamw_step(ShapeQuery& query) {
  for (size_t i = 1; i < 4; ++i) require_shape(query, i, query.shape(0));
  require_rank(query, 4, 0);
  require_rank(query, 5, 0);
  for (TensorType& result : query.results) result.shape = query.shape(0);
}

}  // namespace aicf
