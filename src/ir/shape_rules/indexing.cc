#include <algorithm>

#include "base/error.h"
#include "ir/shape_rules/rules.h"

namespace aicf {
namespace {

void append(Shape& to, const Shape& from, size_t begin, size_t end) {
  to.insert(to.end(), from.begin() + static_cast<int64_t>(begin), from.begin() + static_cast<int64_t>(end));
}

// Indices of x's rank whose sizes off the axis are at most x's; check_range_fit compares what is symbolic.
// They are not broadcast: a size of 1 addresses row 0 only.
void require_element_indices(const ShapeQuery& query, size_t axis) {
  require_rank(query, 1, query.rank(0));
  for (size_t d = 0; d < query.shape(0).size(); ++d) {
    const Dim &size = query.shape(0)[d], &used = query.shape(1)[d];
    if (d != axis && known_greater(used, size))
      fail_shape(query, "at most " + size.to_string() + " indices on axis " + std::to_string(d),
                 used.to_string());
  }
}

void require_reduction(const ShapeQuery& query) {
  require_choice(query, "reduction", {"none", "add", "mul", "max", "min"});
  if (query.operands[0]->dtype == DType::boolean && query.attrs.get_str("reduction") != "none")
    fail_attribute(query, "reduction", "none for bool", query.attrs.get_str("reduction"));
}

// Size of the last axis of `indices`: how many axes of x, after `batch_dims`, one index addresses.
size_t index_depth(const ShapeQuery& query, size_t batch_dims) {
  require_rank_at_least(query, 1, 1);
  const int64_t depth = query.shape(1).back().require_constant("the last size of the indices of " +
                                                               std::string(query.info.name));
  if (depth < 1 || depth > query.rank(0) - static_cast<int64_t>(batch_dims))
    fail_shape(
        query,
        "a last index size of 1 to " + std::to_string(query.rank(0) - static_cast<int64_t>(batch_dims)),
        std::to_string(depth));
  return static_cast<size_t>(depth);
}

}  // namespace

void shape_gather(ShapeQuery& query) {
  const size_t axis = use_axis(query, query.rank(0));
  const Shape& x = query.shape(0);
  Shape& result = query.results[0].shape;
  append(result, x, 0, axis);
  append(result, query.shape(1), 0, query.shape(1).size());
  append(result, x, axis + 1, x.size());
}

void shape_gather_elements(ShapeQuery& query) {
  const size_t axis = use_axis(query, query.rank(0));
  require_element_indices(query, axis);
  query.results[0].shape = query.shape(1);
}

void shape_gather_nd(ShapeQuery& query) {
  const int64_t batch_dims = query.attrs.get_int("batch_dims");
  const int64_t limit = std::min(query.rank(0), query.rank(1)) - 1;
  if (batch_dims < 0 || batch_dims > std::max<int64_t>(limit, 0))
    fail_attribute(query, "batch_dims", "0 to " + std::to_string(limit), std::to_string(batch_dims));
  const size_t batch = static_cast<size_t>(batch_dims);
  const size_t depth = index_depth(query, batch);
  const Shape &x = query.shape(0), &indices = query.shape(1);
  for (size_t i = 0; i < batch; ++i)
    require_equal(query, x[i], indices[i], "batch sizes on axis " + std::to_string(i));
  Shape& result = query.results[0].shape;
  append(result, indices, 0, indices.size() - 1);
  append(result, x, batch + depth, x.size());
}

void shape_scatter_elements(ShapeQuery& query) {
  const size_t axis = use_axis(query, query.rank(0));
  require_reduction(query);
  require_element_indices(query, axis);
  require_shape(query, 2, query.shape(1));
  query.results[0].shape = query.shape(0);
}

void shape_scatter_nd(ShapeQuery& query) {
  require_reduction(query);
  const size_t depth = index_depth(query, 0);
  const Shape &x = query.shape(0), &indices = query.shape(1);
  Shape updates;
  append(updates, indices, 0, indices.size() - 1);
  append(updates, x, depth, x.size());
  require_shape(query, 2, updates);
  query.results[0].shape = x;
}

}  // namespace aicf
