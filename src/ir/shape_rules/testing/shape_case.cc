#include "ir/shape_rules/testing/shape_case.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace aicf::testing {
namespace {

std::string join_types(const Graph& graph, const std::vector<ValueId>& ids) {
  std::string text;
  for (ValueId id : ids) text += (text.empty() ? "" : "; ") + to_string(graph.type(id));
  return text;
}

std::string run(const ShapeCase& c) {
  Graph graph;
  std::vector<ValueId> operands;
  if (*c.operands)
    for (const std::string& text : split(c.operands, ';'))
      operands.push_back(
          text == "-" ? kNoValue : graph.add_input("i" + std::to_string(operands.size()), parse_type(text)));
  try {
    const NodeId id = graph.add_node(c.op, operands, c.attrs, c.bodies);
    return join_types(graph, graph.node(id).results);
  } catch (const UserError& error) {
    EXPECT_FALSE(error.op.empty()) << error.what();
    EXPECT_FALSE(error.expected.empty() && error.actual.empty()) << error.what();
    return std::string(error_info(error.code).name);
  }
}

}  // namespace

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::string part;
  for (char c : text + separator) {
    if (c == separator) {
      parts.push_back(part);
      part.clear();
    } else if (c != ' ') {
      part += c;
    }
  }
  return parts;
}

TensorType parse_type(const std::string& text) {
  const size_t bracket = text.find('[');
  TensorType type;
  type.dtype = dtype_from_name(text.substr(0, bracket)).value();
  const std::string sizes = text.substr(bracket + 1, text.size() - bracket - 2);
  std::string item;
  int depth = 0;  // commas inside floordiv(a, b) do not separate sizes
  for (char c : sizes.empty() ? sizes : sizes + ",") {
    depth += (c == '(') - (c == ')');
    if (c != ',' || depth != 0) {
      item += c;
      continue;
    }
    type.shape.push_back(Dim::parse(item));
    item.clear();
  }
  return type;
}

void check(const std::vector<ShapeCase>& cases) {
  for (const ShapeCase& c : cases) {
    EXPECT_EQ(run(c), c.expected) << op_info(c.op).name << " " << c.operands;
  }
}

}  // namespace aicf::testing
