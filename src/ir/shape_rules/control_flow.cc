#include "base/comma_list.h"
#include "base/error.h"
#include "ir/shape_rules/rules.h"

namespace aicf {
namespace {

void require_bodies(const ShapeQuery& query, size_t count) {
  if (query.bodies.size() == count) return;
  throw UserError(ErrorCode::kU_bad_graph,
                  std::string(query.info.name) + " has the wrong number of body graphs")
      .with_expected(std::to_string(count))
      .with_actual(std::to_string(query.bodies.size()));
}

std::vector<TensorType> operand_types(const ShapeQuery& query, size_t begin) {
  std::vector<TensorType> types;
  for (size_t i = begin; i < query.operands.size(); ++i) types.push_back(*query.operands[i]);
  return types;
}

std::vector<TensorType> types_of(const Graph& body, const std::vector<ValueId>& ids) {
  std::vector<TensorType> types;
  for (ValueId id : ids) types.push_back(body.type(id));
  return types;
}

std::vector<TensorType> output_types(const Graph& body) { return types_of(body, body.outputs()); }

std::string to_text(const std::vector<TensorType>& types) {
  return "(" + comma_list(types, [](const TensorType& type) { return to_string(type); }) + ")";
}

void require_types(const Graph& body, const char* what, const std::vector<TensorType>& expected,
                   const std::vector<TensorType>& actual) {
  if (expected == actual) return;
  throw UserError(ErrorCode::kU_bad_graph, "body '" + body.name() + "' has the wrong " + what)
      .with_expected(to_text(expected))
      .with_actual(to_text(actual));
}

void require_inputs(const Graph& body, const std::vector<TensorType>& expected) {
  require_types(body, "inputs", expected, types_of(body, body.inputs()));
}

}  // namespace

void shape_body(ShapeQuery& query) {
  require_bodies(query, 1);
  require_inputs(query.bodies[0], operand_types(query, 0));
  query.results = output_types(query.bodies[0]);
}

void shape_if_else(ShapeQuery& query) {
  require_rank(query, 0, 0);
  require_bodies(query, 2);
  const std::vector<TensorType> captures = operand_types(query, 1);
  for (const Graph& body : query.bodies) require_inputs(body, captures);
  query.results = output_types(query.bodies[0]);
  require_types(query.bodies[1], "outputs", query.results, output_types(query.bodies[1]));
}

void shape_while_loop(ShapeQuery& query) {
  require_bodies(query, 2);
  const std::vector<TensorType> carried = operand_types(query, 0);
  for (const Graph& body : query.bodies) require_inputs(body, carried);
  require_types(query.bodies[0], "outputs", {{DType::boolean, {}}}, output_types(query.bodies[0]));
  require_types(query.bodies[1], "outputs", carried, output_types(query.bodies[1]));
  query.results = carried;
}

// The walked operands fix the number of steps, so there is at least one, and all have one size on axis 0.
void shape_scan(ShapeQuery& query) {
  require_bodies(query, 1);
  const Graph& body = query.bodies[0];
  const int64_t count = static_cast<int64_t>(query.operands.size()), carried = query.attrs.get_int("carried");
  if (carried < 0 || carried >= count)
    fail_attribute(query, "carried",
                   "0 to " + std::to_string(count - 1) + " (one operand at least is walked)",
                   std::to_string(carried));
  const size_t first = static_cast<size_t>(carried);
  std::vector<TensorType> inputs = operand_types(query, 0);
  for (size_t i = first; i < inputs.size(); ++i) {
    require_rank_at_least(query, i, 1);
    require_equal(query, query.shape(first)[0], query.shape(i)[0], "lengths of the walked operands");
    inputs[i].shape.erase(inputs[i].shape.begin());
  }
  require_inputs(body, inputs);
  std::vector<TensorType> results = output_types(body);
  const std::vector<TensorType> state(inputs.begin(), inputs.begin() + carried);
  if (results.size() < first) require_types(body, "outputs", state, results);
  require_types(body, "carried outputs", state, {results.begin(), results.begin() + carried});
  for (size_t i = first; i < results.size(); ++i)
    results[i].shape.insert(results[i].shape.begin(), query.shape(first)[0]);
  query.results = std::move(results);
}

}  // namespace aicf
