// Graph::add_node: what the op table demands of a node, checked in the order operands, dtypes, attributes,
// bodies, sizes.
#include <optional>

#include "base/comma_list.h"
#include "base/error.h"
#include "ir/graph.h"
#include "ir/shape_rule.h"
#include "ir/type_node.h"

namespace aicf {
namespace {

constexpr std::string_view kAttrTypeNames[] = {"int",  "float",  "bool",  "str",
                                               "ints", "floats", "dtype", "dims"};

std::string operand_count_text(const OpInfo& info) {
  size_t required = 0;
  bool variadic = false;
  for (const OperandInfo& operand : info.operands) {
    required += !operand.optional && !operand.variadic;
    variadic |= operand.variadic;
  }
  if (variadic) return std::to_string(required + (info.has(kHasBody) ? 0 : 1)) + " or more";
  if (required == info.operands.size()) return std::to_string(required);
  return std::to_string(required) + " to " + std::to_string(info.operands.size());
}

[[noreturn]] void fail_count(const OpInfo& info, std::string actual) {
  throw UserError(ErrorCode::kU_bad_operand_count, std::string(info.name) + " has the wrong operands")
      .with_expected(operand_count_text(info) + " operands")
      .with_actual(std::move(actual));
}

// The row that describes operand i.
const OperandInfo& operand_info(const OpInfo& info, size_t i) {
  return i < info.operands.size() ? info.operands[i] : info.operands.back();
}

// Fills absent optional operands with kNoValue and checks that the rest exist.
void check_operands(const OpInfo& info, std::vector<ValueId>& operands, int value_count) {
  const bool variadic = !info.operands.empty() && info.operands.back().variadic;
  const size_t given = operands.size();
  if (given > info.operands.size() && !variadic) fail_count(info, std::to_string(given) + " operands");
  const size_t least = info.operands.size() - (variadic && info.has(kHasBody) ? 1 : 0);
  for (size_t i = given; i < least; ++i) {
    if (!info.operands[i].optional) fail_count(info, std::to_string(given) + " operands");
    operands.push_back(kNoValue);
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    const ValueId id = operands[i];
    const OperandInfo& row = operand_info(info, i);
    if (id == kNoValue && row.optional) continue;
    if (id == kNoValue) fail_count(info, "operand '" + row.name + "' is absent");
    if (id < 0 || id >= value_count)
      throw UserError(ErrorCode::kU_bad_graph, "an operand names a value that is not defined before its use")
          .with_value("operand '" + row.name + "'")
          .with_expected("0 to " + std::to_string(value_count - 1))
          .with_actual(std::to_string(id));
  }
}

struct TypeBinding {
  const OperandInfo* first = nullptr;  // the operand that fixed the variable
  DType dtype = DType::f32;
};

[[noreturn]] void fail_dtype(const OpInfo& info, const OperandInfo& operand, std::string expected,
                             DType actual) {
  throw UserError(ErrorCode::kU_bad_dtype,
                  std::string(info.name) + " does not take this dtype for operand '" + operand.name + "'")
      .with_value("operand '" + operand.name + "'")
      .with_expected(std::move(expected))
      .with_actual(std::string(dtype_name(actual)))
      .with_remedy("insert a cast");
}

// What each type variable of the row stands for, in the order of info.types.
std::vector<TypeBinding> unify(const OpInfo& info, const std::vector<const TensorType*>& operands) {
  std::vector<TypeBinding> bindings(info.types.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i]) continue;
    const OperandInfo& row = operand_info(info, i);
    const DType dtype = operands[i]->dtype;
    size_t variable = 0;
    while (variable < info.types.size() && info.types[variable].first != row.type) ++variable;
    const bool is_variable = variable < info.types.size();
    const std::string& cls = is_variable ? info.types[variable].second : row.type;
    if (!dtype_in_class(dtype, cls)) fail_dtype(info, row, cls, dtype);
    if (!is_variable) continue;
    TypeBinding& binding = bindings[variable];
    if (!binding.first) {
      binding = {&row, dtype};
    } else if (binding.dtype != dtype) {
      fail_dtype(info, row,
                 std::string(dtype_name(binding.dtype)) + ", as operand '" + binding.first->name + "'",
                 dtype);
    }
  }
  return bindings;
}

// A list of numbers has one spelling in most sources, so ints widen to the declared floats or dims; nothing
// else does.
void widen(AttrType type, Attr& attr) {
  if (type == AttrType::kFloat) {
    if (const int64_t* value = std::get_if<int64_t>(&attr)) attr = static_cast<double>(*value);
  } else if (const Ints* values = std::get_if<Ints>(&attr)) {
    if (type == AttrType::kFloats)
      attr = Floats(Floats(values->begin(), values->end()));
    else if (type == AttrType::kDims)
      attr = to_shape(Ints(*values));
  }
}

[[noreturn]] void fail_attr(const OpInfo& info, std::string_view name, std::string expected,
                            std::string actual) {
  throw UserError(ErrorCode::kU_bad_attribute,
                  std::string(info.name) + " has a wrong attribute '" + std::string(name) + "'")
      .with_value("attribute '" + std::string(name) + "'")
      .with_expected(std::move(expected))
      .with_actual(std::move(actual));
}

// The attributes with defaults filled in and numbers widened.
Attrs check_attributes(const OpInfo& info, const Attrs& attrs) {
  std::optional<Attrs::Items> changed;
  const auto set = [&](const std::string& name, Attr value) {
    if (!changed) changed = attrs.items();
    changed->insert_or_assign(name, std::move(value));
  };
  for (const auto& [name, value] : attrs.items()) {
    if (info.attribute(name)) continue;
    const std::string names = comma_list(info.attributes, &AttrInfo::name);
    fail_attr(info, name, names.empty() ? "no attributes" : "one of " + names, "an unknown attribute");
  }
  for (const AttrInfo& row : info.attributes) {
    const Attr* given = attrs.find(row.name);
    if (!given) {
      if (!row.default_value) fail_attr(info, row.name, "a value: it has no default", "absent");
      set(row.name, *row.default_value);
      continue;
    }
    if (given->index() == static_cast<size_t>(row.type)) continue;
    Attr value = *given;
    widen(row.type, value);
    if (value.index() != static_cast<size_t>(row.type))
      fail_attr(info, row.name, std::string(kAttrTypeNames[static_cast<size_t>(row.type)]),
                std::string(kAttrTypeNames[given->index()]));
    set(row.name, std::move(value));
  }
  return changed ? Attrs(std::move(*changed)) : attrs;
}

void check_bodies(const OpInfo& info, const std::vector<Graph>& bodies) {
  if (!info.has(kHasBody) && !bodies.empty())
    throw UserError(ErrorCode::kU_bad_graph, std::string(info.name) + " has no body graphs")
        .with_actual(std::to_string(bodies.size()) + " bodies");
  for (const Graph& body : bodies) {
    if (!body.updates().empty())
      throw UserError(ErrorCode::kU_bad_graph, "a body graph updates a variable")
          .with_value("body '" + body.name() + "'")
          .with_remedy("give the new value as a result and update in the entry");
    for (ValueId leaf : body.leaves()) {
      const Value& value = body.value(leaf);
      if (value.role != Role::kParam && value.role != Role::kState) continue;
      throw UserError(ErrorCode::kU_bad_graph, "a body graph reads a variable")
          .with_value(std::string(role_name(value.role)) + " '" + value.name + "' in body '" + body.name() +
                      "'")
          .with_remedy("pass it as an operand");
    }
  }
}

std::vector<TensorType> result_types(const OpInfo& info, const std::vector<TypeBinding>& bindings,
                                     const Attrs& attrs) {
  std::vector<TensorType> results;
  for (const std::string& text : info.results) {
    if (text == "*") continue;
    TensorType type;
    if (text.starts_with('@')) {
      type.dtype = attrs.get_dtype(std::string_view(text).substr(1));
    } else {
      size_t variable = 0;
      while (variable < info.types.size() && info.types[variable].first != text) ++variable;
      type.dtype = variable < info.types.size() ? bindings[variable].dtype : *dtype_from_name(text);
    }
    results.push_back(std::move(type));
  }
  return results;
}

std::vector<TensorType> check_node(const Graph& graph, const OpInfo& info, Node& node,
                                   const std::vector<Graph>& bodies, ValueId defined) {
  check_operands(info, node.operands, defined);
  std::vector<const TensorType*> types;
  types.reserve(node.operands.size());
  for (ValueId id : node.operands) types.push_back(id == kNoValue ? nullptr : &graph.type(id));
  const std::vector<TypeBinding> bindings = unify(info, types);
  node.attrs = check_attributes(info, node.attrs);
  check_bodies(info, bodies);
  ShapeQuery query{info, std::move(types), node.attrs, bodies, result_types(info, bindings, node.attrs)};
  infer_shapes(query);
  for (const TensorType& type : query.results) check_type(type);
  return std::move(query.results);
}

}  // namespace

std::vector<TensorType> type_node(const Graph& graph, Node& node, const std::vector<Graph>& bodies,
                                  ValueId defined) {
  const OpInfo& info = op_info(node.op);
  try {
    return check_node(graph, info, node, bodies, defined);
  } catch (Error& error) {
    if (error.op.empty()) {
      error.op = std::string(info.name) + (node.origin.empty() ? "" : " (" + node.origin + ")");
      error.refresh();
    }
    throw;
  }
}

NodeId Graph::add_node(Op op, std::vector<ValueId> operands, Attrs attrs, std::vector<Graph> bodies,
                       std::string origin) {
  Node node{op, std::move(operands), {}, std::move(attrs), {}, std::move(origin)};
  std::vector<TensorType> types = type_node(*this, node, bodies, value_count());
  node.bodies = std::move(bodies);
  const NodeId id = static_cast<NodeId>(nodes_.size());
  for (TensorType& type : types) {
    Value value;
    value.type = std::move(type);
    value.producer = id;
    value.result = static_cast<int>(node.results.size());
    node.results.push_back(static_cast<ValueId>(values_.size()));
    values_.push_back(std::move(value));
  }
  nodes_.push_back(std::move(node));
  return id;
}

}  // namespace aicf
