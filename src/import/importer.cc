#include "import/importer.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "import/onnx_ops/carried.h"
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

constexpr int kMaxFunctionDepth = 64;
// Functions that call functions, and loops in loops, could otherwise grow without end from a small file.
constexpr int64_t kMaxConvertedNodes = 1 << 20;

std::string op_label(const NodeProto& node) {
  return node.domain.empty() ? node.op_type : node.domain + "." + node.op_type;
}

std::string node_label(const NodeProto& node) {
  if (!node.name.empty()) return node.name;
  const auto named = std::find_if(node.outputs.begin(), node.outputs.end(),
                                  [](const std::string& name) { return !name.empty(); });
  return named == node.outputs.end() ? node.op_type : *named;
}

// The names that anything in the model reads, scopes apart or not.
std::set<std::string> names_read(const ModelProto& model) {
  std::set<std::string> names;
  for (const ValueInfo& output : model.graph.outputs) names.insert(output.name);
  for (const NodeProto& node : model.graph.nodes) collect_reads(node, names);
  for (const FunctionProto& function : model.functions) {
    names.insert(function.outputs.begin(), function.outputs.end());
    for (const NodeProto& node : function.nodes) collect_reads(node, names);
  }
  return names;
}

// For a node that no rule fits: what no version of AICF's plans could hold is said as such.
std::string why_unsupported(const NodeProto& node, int64_t version) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> ops) {
    return node.domain.empty() && std::find(ops.begin(), ops.end(), node.op_type) != ops.end();
  };
  if (is_one_of({"NonMaxSuppression", "Unique"})) return "a result whose size depends on data";
  if (is_one_of({"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
                 "RandomUniformLike"}))
    return "random values: make them an input";
  if (node.domain == "com.microsoft.nchwc")
    return "the layout of the machine that onnxruntime wrote the file on: save it with ORT_ENABLE_EXTENDED";
  return "no converter for opset " + std::to_string(version);
}

}  // namespace

Importer::Importer(const ModelProto& model, const ImportOptions& options, std::string folder,
                   std::optional<Interval> unset)
    : model_(model),
      options_(options),
      folder_(std::move(folder)),
      unset_(unset),
      names_read_(names_read(model)),
      main_(program_, "main") {}

void Importer::run() {
  const auto opset = model_.opsets.find("");
  if (opset != model_.opsets.end() && (opset->second < kMinOpset || opset->second > kMaxOpset))
    throw UserError(ErrorCode::kU_unsupported_opset, "the model's opset version is not supported")
        .with_expected(std::to_string(kMinOpset) + " to " + std::to_string(kMaxOpset))
        .with_actual(std::to_string(opset->second))
        .with_remedy("convert the model with onnx.version_converter or export it again");
  Scope scope;
  scope.opsets = &model_.opsets;
  add_initializers(model_.graph, scope);
  add_inputs(scope);
  check_options();
  std::set<std::tuple<std::string, std::string, std::string>> functions;
  for (const FunctionProto& each : model_.functions)
    if (!functions.emplace(each.domain, each.name, each.overload).second)
      throw UserError(ErrorCode::kU_bad_model_file, "a function is defined twice").with_value(each.name);
  convert_nodes(model_.graph.nodes, scope, main_);
  add_outputs(scope);
}

std::vector<UnsupportedOp> Importer::unsupported() const {
  std::vector<UnsupportedOp> list;
  for (const auto& [key, item] : unsupported_) list.push_back(item);
  return list;
}

Program Importer::take_program() {
  Graph graph = eliminate_dead_code(main_.graph());
  std::set<std::string> used;
  for (ValueId id : graph.leaves()) used.insert(graph.value(id).name);
  std::erase_if(program_.variables, [&](const auto& item) { return !used.count(item.first); });
  program_.entries.push_back(std::move(graph));
  for (const auto& [key, value] : model_.metadata) program_.metadata.emplace(key, value);
  return std::move(program_);
}

void Importer::report(const UnsupportedOp& found) {
  UnsupportedOp& item = unsupported_[{found.op, found.reason}];
  if (item.count++ != 0) return;
  item.op = found.op;
  item.first_node = found.first_node;
  item.reason = found.reason;
}

size_t Importer::add_failure(Failure failure) {
  failures_.push_back(std::move(failure));
  return failures_.size() - 1;
}

size_t Importer::fail(const NodeProto& node, const std::string& reason) {
  return add_failure({{}, UnsupportedOp{op_label(node), 1, node_label(node), reason}, std::nullopt, ""});
}

void Importer::settle(std::vector<size_t> failures) {
  std::set<size_t> found(failures.begin(), failures.end());
  while (!failures.empty()) {
    const Failure& failure = failures_[failures.back()];
    failures.pop_back();
    for (const size_t cause : failure.causes)
      if (found.insert(cause).second) failures.push_back(cause);
  }
  for (const size_t number : found) {
    const Failure& failure = failures_[number];
    if (failure.unsupported) report(*failure.unsupported);
    if (failure.error) errors_.push_back({failure.where, *failure.error});
  }
}

// --- values
// ------------------------------------------------------------------------------------------------------------

void Importer::add_initializers(const GraphProto& graph, Scope& scope) {
  for (const auto& tensor : graph.initializers) {
    auto value = std::make_shared<OnnxValue>();
    value->name = tensor->name;
    try {
      value->array = to_array(*tensor, model_.owner, folder_);
    } catch (const UserError& error) {
      if (error.code != ErrorCode::kU_unsupported_dtype) throw;
      const std::string reason = "data type " + data_type_name(tensor->data_type);
      value->failure =
          add_failure({{}, UnsupportedOp{"initializer", 1, tensor->name, reason}, std::nullopt, ""});
      define(tensor->name, value, scope);
      continue;
    }
    value->type = {value->array->dtype(), to_shape(value->array->sizes())};
    value->carried = carried_type(tensor->data_type);
    value->param = is_float(value->type.dtype) && value->type.rank() >= 1 && scope.parent == nullptr;
    define(tensor->name, value, scope);
  }
}

void Importer::define(const std::string& name, ValueRef value, Scope& scope) {
  if (!scope.values.emplace(name, std::move(value)).second)
    throw UserError(ErrorCode::kU_bad_model_file, "a value name is defined twice").with_value(name);
}

ValueRef Importer::lookup(const std::string& name, Scope& scope, GraphContext& context,
                          const NodeProto& node) {
  for (Scope* at = &scope; at != nullptr; at = at->parent)
    if (auto found = at->values.find(name); found != at->values.end()) {
      if (found->second && !found->second->failure) context.capture_if_outer(found->second);
      return found->second;
    }
  throw UserError(ErrorCode::kU_bad_model_file,
                  "node '" + node_label(node) + "' reads a value that nothing defines before it")
      .with_op(node.op_type)
      .with_value(name);
}

// --- nodes
// -------------------------------------------------------------------------------------------------------------

namespace {

// What the node reads from outside its bodies.
void collect_free_reads(const NodeProto& node, std::set<std::string>& names) {
  names.insert(node.inputs.begin(), node.inputs.end());
  for (const AttributeProto& attribute : node.attributes) {
    if (!attribute.g) continue;
    std::set<std::string> inner;
    for (const NodeProto& each : attribute.g->nodes) collect_free_reads(each, inner);
    for (const ValueInfo& output : attribute.g->outputs) inner.insert(output.name);
    for (const NodeProto& each : attribute.g->nodes)
      for (const std::string& name : each.outputs) inner.erase(name);
    for (const ValueInfo& input : attribute.g->inputs) inner.erase(input.name);
    for (const auto& tensor : attribute.g->initializers) inner.erase(tensor->name);
    names.merge(inner);
  }
}

// Each node behind those it reads from, otherwise as they stand. The format asks for that, not every tool
// obeys. Nodes in a circle come last, for the reader of names to refuse.
std::vector<const NodeProto*> in_reading_order(const std::vector<NodeProto>& nodes) {
  std::map<std::string, size_t> makers;
  for (size_t i = 0; i < nodes.size(); ++i)
    for (const std::string& name : nodes[i].outputs)
      if (!name.empty()) makers.emplace(name, i);
  std::vector<std::vector<size_t>> readers(nodes.size());
  std::vector<size_t> waits_for(nodes.size(), 0);
  for (size_t i = 0; i < nodes.size(); ++i) {
    std::set<std::string> names;
    collect_free_reads(nodes[i], names);
    for (const std::string& name : names)
      if (const auto maker = makers.find(name); maker != makers.end()) {
        readers[maker->second].push_back(i);
        ++waits_for[i];
      }
  }
  std::set<size_t> ready;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (waits_for[i] == 0) ready.insert(i);
  std::vector<const NodeProto*> order;
  while (!ready.empty()) {
    const size_t next = *ready.begin();
    ready.erase(ready.begin());
    order.push_back(&nodes[next]);
    for (const size_t reader : readers[next])
      if (--waits_for[reader] == 0) ready.insert(reader);
  }
  for (size_t i = 0; i < nodes.size(); ++i)
    if (waits_for[i] != 0) order.push_back(&nodes[i]);
  return order;
}

}  // namespace

// An output that nothing reads is as if the node had not been asked for it: it may be one that we cannot
// give.
void Importer::convert_nodes(const std::vector<NodeProto>& nodes, Scope& scope, GraphContext& context) {
  for (const NodeProto* each : in_reading_order(nodes)) {
    const NodeProto& node = *each;
    const auto is_read = [&](const std::string& name) { return names_read_.contains(name); };
    const auto read = std::count_if(node.outputs.begin(), node.outputs.end(), is_read);
    if (read == 0 || read == static_cast<std::ptrdiff_t>(node.outputs.size())) {
      convert_node(node, scope, context);
      continue;
    }
    NodeProto asked = node;
    for (std::string& name : asked.outputs)
      if (!is_read(name)) name.clear();
    convert_node(asked, scope, context);
  }
}

void Importer::mark_failed(const NodeProto& node, Scope& scope, size_t failure) {
  for (const std::string& name : node.outputs) {
    if (name.empty()) continue;
    auto value = std::make_shared<OnnxValue>();
    value->name = name;
    value->failure = failure;
    define(name, std::move(value), scope);
  }
}

void Importer::convert_node(const NodeProto& node, Scope& scope, GraphContext& context) {
  if (++converted_nodes_ > kMaxConvertedNodes)
    throw UserError(ErrorCode::kU_bad_model_file, "the model expands to too many nodes")
        .with_op(op_label(node))
        .with_expected("at most " + std::to_string(kMaxConvertedNodes) +
                       " after expanding functions and loops");
  std::vector<ValueRef> inputs;
  Failure failure;
  for (const std::string& name : node.inputs) {
    inputs.push_back(name.empty() ? nullptr : lookup(name, scope, context, node));
    if (inputs.back() != nullptr && inputs.back()->failure) failure.causes.push_back(*inputs.back()->failure);
  }
  const auto opset = scope.opsets->find(node.domain);
  const int64_t version =
      opset == scope.opsets->end() ? (node.domain.empty() ? kMaxOpset : 1) : opset->second;
  const OpRule* rule = find_rule(node.domain, node.op_type, version);
  if (rule == nullptr) rule = find_custom_rule(node.domain, node.op_type);
  const FunctionProto* function = nullptr;
  for (const FunctionProto& candidate : model_.functions)
    if (candidate.name == node.op_type && candidate.domain == node.domain &&
        candidate.overload == node.overload)
      function = &candidate;
  if (function == nullptr && rule == nullptr) {
    failure.unsupported = UnsupportedOp{op_label(node), 1, node_label(node), why_unsupported(node, version)};
    return mark_failed(node, scope, add_failure(std::move(failure)));
  }
  if (!failure.causes.empty()) return mark_failed(node, scope, add_failure(std::move(failure)));
  // A direct op keeps what the function means whole; its body is only the fallback.
  if (rule != nullptr)
    convert_with(*rule, node, std::move(inputs), scope, context);
  else
    expand_function(*function, node, inputs, scope, context);
}

void Importer::convert_with(const OpRule& rule, const NodeProto& node, std::vector<ValueRef> inputs,
                            Scope& scope, GraphContext& context) {
  const auto opset = scope.opsets->find(node.domain);
  const int64_t version = opset == scope.opsets->end() ? kMaxOpset : opset->second;
  NodeContext n(context, node, resolve_attributes(node, scope), std::move(inputs), version,
                [&](const GraphProto& graph, const std::vector<ValueRef>& values, GraphContext& target) {
                  return convert_body(graph, values, scope, target);
                });
  try {
    upgrade(n);
    const OpRule* current = n.op_type == node.op_type ? &rule : find_rule("", n.op_type, kMaxOpset);
    AICF_CHECK(current != nullptr, n.op_type);
    const bool carried = check_carried(n);
    if (carried || !convert_symbolically(n)) current->convert(n);
    if (carried) finish_carried(n);
    for (const std::string& name : n.unread_attributes())
      n.unsupported("attribute '" + name + "' is not known");
    n.refuse_unknown_inputs();
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (!node.outputs[i].empty() && (i >= n.outputs().size() || !n.outputs()[i]))
        n.unsupported("output " + std::to_string(i) + " is not supported");
  } catch (const Unsupported& reason) {
    return mark_failed(node, scope, fail(node, reason.reason));
  } catch (const FailedBody& body) {
    return mark_failed(node, scope, body.failure);
  } catch (UserError& error) {
    // Op-table errors speak of our op; the user knows the ONNX node.
    if (error.message.find(node_label(node)) == std::string::npos) {
      error.message = "node '" + node_label(node) + "': " + error.message;
      error.refresh();
    }
    if (error.op.empty()) error.with_op(node.op_type);
    if (error.code == ErrorCode::kU_bad_dtype || error.code == ErrorCode::kU_unsupported_dtype)
      return mark_failed(node, scope,
                         fail(node, error.message + (error.actual.empty() ? "" : " (" + error.actual + ")")));
    if (error.code == ErrorCode::kU_size_not_static) name_sizes(error);
    return mark_failed(node, scope, add_failure({{}, std::nullopt, error, node_label(node)}));
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].empty()) continue;
    ValueRef value = n.outputs()[i];
    if (value->name.empty()) value->name = node.outputs[i];
    if (auto at = value->emitted.find(context.serial()); at != value->emitted.end()) {
      const Value& emitted = context.graph().value(at->second);
      if (emitted.role == Role::kTemp && emitted.name.empty())
        context.graph().set_name(at->second, node.outputs[i]);
    }
    define(node.outputs[i], std::move(value), scope);
  }
}

std::vector<AttributeProto> Importer::resolve_attributes(const NodeProto& node, const Scope& scope) const {
  std::vector<AttributeProto> attributes;
  for (const AttributeProto& attribute : node.attributes) {
    if (attribute.ref.empty()) {
      attributes.push_back(attribute);
      continue;
    }
    if (scope.function_attributes == nullptr)
      throw UserError(ErrorCode::kU_bad_model_file,
                      "an attribute refers to a function's attribute outside a function")
          .with_op(node.op_type)
          .with_value(attribute.ref);
    auto at = scope.function_attributes->find(attribute.ref);
    if (at == scope.function_attributes->end()) continue;  // optional and not given: absent here too
    attributes.push_back(at->second);
    attributes.back().name = attribute.name;
  }
  return attributes;
}

void Importer::expand_function(const FunctionProto& function, const NodeProto& node,
                               const std::vector<ValueRef>& inputs, Scope& scope, GraphContext& context) {
  if (scope.depth >= kMaxFunctionDepth)
    throw UserError(ErrorCode::kU_bad_model_file, "functions call each other too deeply")
        .with_op(op_label(node));
  std::map<std::string, AttributeProto> attributes;
  for (const AttributeProto& attribute : function.attribute_defaults) attributes[attribute.name] = attribute;
  for (AttributeProto& attribute : resolve_attributes(node, scope)) {
    if (std::find(function.attributes.begin(), function.attributes.end(), attribute.name) ==
            function.attributes.end() &&
        !attributes.count(attribute.name)) {
      const std::string reason = "attribute '" + attribute.name + "' is not known to the function";
      return mark_failed(node, scope, fail(node, reason));
    }
    attributes[attribute.name] = std::move(attribute);
  }
  Scope inner;
  inner.opsets = &function.opsets;
  inner.function_attributes = &attributes;
  inner.depth = scope.depth + 1;
  for (size_t i = 0; i < function.inputs.size(); ++i)
    define(function.inputs[i], i < inputs.size() ? inputs[i] : nullptr, inner);
  convert_nodes(function.nodes, inner, context);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].empty()) continue;
    auto at = i < function.outputs.size() ? inner.values.find(function.outputs[i]) : inner.values.end();
    if (at == inner.values.end() || !at->second)
      throw UserError(ErrorCode::kU_bad_model_file, "a function does not define one of its outputs")
          .with_op(op_label(node))
          .with_value(node.outputs[i]);
    define(node.outputs[i], at->second, scope);
  }
}

std::vector<ValueRef> Importer::convert_body(const GraphProto& graph, const std::vector<ValueRef>& inputs,
                                             Scope& scope, GraphContext& context) {
  Scope inner;
  inner.parent = &scope;
  inner.opsets = scope.opsets;
  inner.function_attributes = scope.function_attributes;
  inner.depth = scope.depth + 1;
  if (inner.depth >= kMaxFunctionDepth)
    throw UserError(ErrorCode::kU_bad_model_file, "graphs nest too deeply");
  add_initializers(graph, inner);
  for (size_t i = 0; i < graph.inputs.size() && i < inputs.size(); ++i)
    define(graph.inputs[i].name, inputs[i], inner);
  convert_nodes(graph.nodes, inner, context);
  std::vector<ValueRef> outputs;
  NodeProto self;
  self.name = graph.name;
  for (const ValueInfo& output : graph.outputs) outputs.push_back(lookup(output.name, inner, context, self));
  Failure failure;
  for (const ValueRef& output : outputs)
    if (output && output->failure) failure.causes.push_back(*output->failure);
  if (!failure.causes.empty()) throw FailedBody{add_failure(std::move(failure))};
  for (const ValueRef& output : outputs)
    if (!output)
      throw Unsupported{"its body gives a value that is absent"};
    else if (output->carried)
      throw Unsupported{"its body gives " + data_type_name(output->carried->data_type)};
  return outputs;
}

}  // namespace aicf::onnx
