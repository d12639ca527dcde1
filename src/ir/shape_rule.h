// Shape rules: what each op of ops.def gives for its operands' types. Called by Graph::add_node after operand
// count, dtypes and attributes have been checked; a rule checks sizes and may normalise attributes (negative
// axes become positive).
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace aicf {

struct ShapeQuery {
  const OpInfo& info;
  std::vector<const TensorType*> operands;  // null for an absent optional operand
  Attrs& attrs;
  const std::vector<Graph>& bodies;
  std::vector<TensorType> results;  // dtypes are filled in except for "*"; a rule fills the shapes

  const Shape& shape(size_t operand) const { return operands[operand]->shape; }
  int rank(size_t operand) const { return operands[operand]->rank(); }
};

// bad_shape naming op, what was expected and what was found.
[[noreturn]] void fail_shape(const ShapeQuery& query, std::string expected, std::string actual);
// Runs the rule named in the op's row.
void infer_shapes(ShapeQuery& query);

// numpy broadcasting of symbolic shapes. Sizes agree if equal or one is the constant 1; else bad_shape.
Shape broadcast_shapes(const ShapeQuery& query, const std::vector<const Shape*>& shapes);
// axis in [-rank, rank) as a non-negative number; bad_attribute otherwise.
int64_t normalize_axis(const ShapeQuery& query, int64_t axis, int64_t rank);

}  // namespace aicf
