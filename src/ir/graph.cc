#include "ir/graph.h"

#include "base/error.h"
#include "ir/type_node.h"

namespace aicf {
namespace {

std::string describe(Role role, const std::string& name) {
  return std::string(role_name(role)) + " '" + name + "'";
}

}  // namespace

// Symbolic sizes are checked when bound.
void check_type(const TensorType& type) {
  int64_t bytes = dtype_bytes(type.dtype);
  bool is_empty = false;
  for (const Dim& dim : type.shape) {
    if (!dim.is_constant()) continue;
    const int64_t size = dim.constant_part();
    if (size < 0) throw UserError(ErrorCode::kU_bad_shape, "a size is negative").with_actual(to_string(type));
    is_empty |= size == 0;
  }
  if (is_empty) return;
  for (const Dim& dim : type.shape)
    if (dim.is_constant() && __builtin_mul_overflow(bytes, dim.constant_part(), &bytes))
      throw UserError(ErrorCode::kU_size_overflow, "a tensor's byte count does not fit in 63 bits")
          .with_actual(to_string(type));
}

std::string to_string(const TensorType& type) {
  return std::string(dtype_name(type.dtype)) + to_string(type.shape);
}

std::string_view role_name(Role role) {
  static constexpr std::string_view kNames[] = {"input", "param", "state", "constant", "temp"};
  return kNames[static_cast<size_t>(role)];
}

ValueId Graph::add_value(Value value) {
  check_type(value.type);
  values_.push_back(std::move(value));
  return static_cast<ValueId>(values_.size() - 1);
}

ValueId Graph::add_named(std::string name, TensorType type, Role role) {
  const auto known = named_.find(name);
  if (known != named_.end()) {
    const Value& old = value(known->second);
    if (role != Role::kInput && old.role == role && old.type == type) return known->second;
    throw UserError(ErrorCode::kU_bad_graph, "graph '" + name_ + "' declares a name twice")
        .with_value(describe(role, name))
        .with_expected(describe(old.role, name) + " " + to_string(old.type) + ", as declared first")
        .with_actual(describe(role, name) + " " + to_string(type));
  }
  Value value;
  value.type = std::move(type);
  value.role = role;
  value.name = name;
  const ValueId id = add_value(std::move(value));
  named_.emplace(std::move(name), id);
  leaves_.push_back(id);
  return id;
}

ValueId Graph::add_input(std::string name, TensorType type, Array only_value) {
  if (only_value.data() != nullptr && !(TensorType{only_value.dtype(), to_shape(only_value.sizes())} == type))
    throw UserError(ErrorCode::kU_bad_graph, "the fixed value of input '" + name + "' does not have its type")
        .with_expected(to_string(type))
        .with_actual(std::string(dtype_name(only_value.dtype())) + to_string(only_value.sizes()));
  const ValueId id = add_named(std::move(name), std::move(type), Role::kInput);
  values_[static_cast<size_t>(id)].constant = std::move(only_value);
  inputs_.push_back(id);
  return id;
}

ValueId Graph::add_param(std::string name, TensorType type) {
  return add_named(std::move(name), std::move(type), Role::kParam);
}

ValueId Graph::add_state(std::string name, TensorType type) {
  return add_named(std::move(name), std::move(type), Role::kState);
}

ValueId Graph::add_constant(Array array, std::string name) {
  Value value;
  value.type = {array.dtype(), to_shape(array.sizes())};
  value.role = Role::kConstant;
  value.name = std::move(name);
  value.constant = std::move(array);
  const ValueId id = add_value(std::move(value));
  leaves_.push_back(id);
  return id;
}

void Graph::add_output(ValueId value, std::string name) {
  if (value < 0 || value >= value_count())
    throw UserError(ErrorCode::kU_bad_graph, "an output names a value that does not exist")
        .with_value(name)
        .with_actual(std::to_string(value));
  if (!name.empty() && !taken_output_names_.insert(name).second)
    throw UserError(ErrorCode::kU_bad_graph, "graph '" + name_ + "' has two outputs of one name")
        .with_value(name);
  outputs_.push_back(value);
  output_names_.push_back(std::move(name));
}

void Graph::add_update(ValueId variable, ValueId value) {
  const auto fail = [&](const char* why) {
    return UserError(ErrorCode::kU_bad_graph, std::string("an update is not legal: ") + why)
        .with_value("update(" + std::to_string(variable) + ", " + std::to_string(value) + ")");
  };
  if (variable < 0 || variable >= value_count() || value < 0 || value >= value_count())
    throw fail("it names a value that does not exist");
  const Value& target = this->value(variable);
  if (target.role != Role::kParam && target.role != Role::kState)
    throw fail("only a param or a state can be updated")
        .with_expected("param or state")
        .with_actual(describe(target.role, target.name));
  if (target.type != type(value))
    throw fail("the new value has another type")
        .with_value(describe(target.role, target.name))
        .with_expected(to_string(target.type))
        .with_actual(to_string(type(value)));
  if (!updated_.insert(variable).second)
    throw fail("the variable is updated twice").with_value(describe(target.role, target.name));
  updates_.push_back({variable, value});
}

NodeId Graph::add_copy(const Graph& from, const Node& node, std::vector<ValueId> operands) {
  const NodeId id = static_cast<NodeId>(nodes_.size());
  std::vector<ValueId> results;
  results.reserve(node.results.size());
  for (ValueId result : node.results) {
    Value value = from.value(result);
    value.producer = id;
    results.push_back(static_cast<ValueId>(values_.size()));
    values_.push_back(std::move(value));
  }
  nodes_.push_back({node.op, std::move(operands), std::move(results), node.attrs, {}, node.origin});
  return id;
}

ValueId Graph::add(Op op, std::vector<ValueId> operands, Attrs attrs, std::string origin) {
  const NodeId id = add_node(op, std::move(operands), std::move(attrs), {}, std::move(origin));
  AICF_CHECK(node(id).results.size() == 1, "Graph::add is for ops with one result");
  return node(id).results[0];
}

const Node* Graph::producer(ValueId id) const {
  const NodeId producer = value(id).producer;
  return producer < 0 ? nullptr : &node(producer);
}

std::vector<int> Graph::use_counts() const {
  std::vector<int> counts(values_.size(), 0);
  const auto use = [&](ValueId id) {
    if (id != kNoValue) ++counts[static_cast<size_t>(id)];
  };
  for (const Node& node : nodes_)
    for (ValueId operand : node.operands) use(operand);
  for (ValueId output : outputs_) use(output);
  for (const Update& update : updates_) use(update.value);
  return counts;
}

const Graph* Program::entry(std::string_view name) const {
  for (const Graph& graph : entries)
    if (graph.name() == name) return &graph;
  return nullptr;
}

}  // namespace aicf
