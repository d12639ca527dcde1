#include "base/error.h"
#include "ir/shape_rules/rules.h"

namespace aicf {
namespace {

// x without the (sorted) axes, or with size 1 there.
Shape without_axes(const Shape& x, const Ints& axes, bool keepdims) {
  Shape result;
  size_t next = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const bool reduced = next < axes.size() && axes[next] == static_cast<int64_t>(i);
    next += reduced;
    if (!reduced)
      result.push_back(x[i]);
    else if (keepdims)
      result.push_back(Dim(1));
  }
  return result;
}

}  // namespace

// No axes reduce nothing: the result is x.
void shape_reduce(ShapeQuery& query) {
  const Ints axes = use_axes(query, query.rank(0));
  query.results[0].shape = without_axes(query.shape(0), axes, query.attrs.get_bool("keepdims"));
}

void shape_arg_reduce(ShapeQuery& query) {
  const size_t axis = use_axis(query, query.rank(0));
  if (query.shape(0)[axis] == Dim(0))
    fail_shape(query, "a size of at least 1 on axis " + std::to_string(axis), "0");
  query.results[0].shape =
      without_axes(query.shape(0), {static_cast<int64_t>(axis)}, query.attrs.get_bool("keepdims"));
}

void shape_top_k(ShapeQuery& query) {
  const size_t axis = use_axis(query, query.rank(0));
  const Dim k = require_dims(query, "k", 1)[0];
  Shape result = query.shape(0);
  if (known_greater(k, result[axis]))
    fail_attribute(query, "k", "at most " + result[axis].to_string(), k.to_string());
  result[axis] = k;
  query.results[0].shape = result;
  query.results[1].shape = std::move(result);
}

}  // namespace aicf
