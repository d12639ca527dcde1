#include "base/error.h"
#include "ir/shape_rules/rules.h"

namespace aicf {

void shape_broadcast(ShapeQuery& query) {
  if (query.info.op == Op::gelu) require_choice(query, "approximate", {"none", "tanh"});
  std::vector<const Shape*> shapes;
  shapes.reserve(query.operands.size());
  for (const TensorType* operand : query.operands) shapes.push_back(&operand->shape);
  query.results[0].shape = broadcast_shapes(query, shapes);
}

// Every result has the shape of operand 0; axis attributes are checked against its rank.
void shape_same(ShapeQuery& query) {
  if (query.info.attribute("axis")) use_axis(query, query.rank(0));
  if (query.info.attribute("axes")) use_axes(query, query.rank(0));
  for (TensorType& result : query.results) result.shape = query.shape(0);
}

}  // namespace aicf
