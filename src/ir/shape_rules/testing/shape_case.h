// Shape rules as tables: op, operand types, attributes, and the result types or the error. `n`, `m`, `k` are
// symbolic. Each test file of the folder above has one table; shape_rules_test.cc demands a row for every op.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace aicf::testing {

struct ShapeCase {
  Op op;
  const char* operands;  // "f32[2, n]; -; i64[3]"; '-' is an absent operand
  Attrs attrs;
  const char* expected;  // "f32[n]; i64[n]" or the name of an error
  std::vector<Graph> bodies = {};
};

void check(const std::vector<ShapeCase>& cases);

// The parts of a text between separators, without spaces.
std::vector<std::string> split(const std::string& text, char separator);
TensorType parse_type(const std::string& text);

inline Attr i(int64_t value) { return value; }
inline Attr s(const char* text) { return std::string(text); }
inline Shape dims(std::initializer_list<const char*> texts) {
  Shape shape;
  for (const char* text : texts) shape.push_back(Dim::parse(text));
  return shape;
}

std::vector<ShapeCase> pointwise_shapes();
std::vector<ShapeCase> view_shapes();
std::vector<ShapeCase> indexing_shapes();
std::vector<ShapeCase> reduction_shapes();
std::vector<ShapeCase> contraction_shapes();
std::vector<ShapeCase> window_shapes();
std::vector<ShapeCase> composite_shapes();
std::vector<ShapeCase> control_flow_shapes();

}  // namespace aicf::testing
