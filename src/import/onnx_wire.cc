#include "import/onnx_wire.h"

#include <set>
#include <string_view>

#include "base/error.h"
#include "import/onnx_fields.h"
#include "import/onnx_values.h"

namespace aicf::onnx {
namespace {

// Graphs nest through If, Loop and Scan attributes; real models use two or three levels.
constexpr int kMaxGraphDepth = 32;

GraphProto parse_graph(pbf_reader reader, int depth);

// Models written before IR version 3 may leave the type out: what is filled tells.
AttributeType guess_type(const AttributeProto& a, bool has_f, bool has_i, bool has_s) {
  if (has_f) return AttributeType::kFloat;
  if (has_i) return AttributeType::kInt;
  if (has_s) return AttributeType::kString;
  if (a.t) return AttributeType::kTensor;
  if (a.g) return AttributeType::kGraph;
  if (!a.floats.empty()) return AttributeType::kFloats;
  if (!a.ints.empty()) return AttributeType::kInts;
  if (!a.strings.empty()) return AttributeType::kStrings;
  return AttributeType::kUndefined;
}

AttributeProto parse_attribute(pbf_reader reader, int depth) {
  AttributeProto a;
  bool has_f = false, has_i = false, has_s = false;
  for_each_field(reader, [&](pbf_reader& r) {
    switch (r.tag()) {
      case 1:
        return take_string(r, a.name);
      case 2:
        if (r.wire_type() != pbf_wire_type::fixed32) return false;
        a.f = r.get_float();
        return has_f = true;
      case 3:
        return take_int(r, a.i) && (has_i = true);
      case 4:
        return take_bytes(r, a.s) && (has_s = true);
      case 5:
        if (!is_bytes(r)) return false;
        a.t = std::make_shared<TensorProto>(parse_tensor_message(r.get_message()));
        return true;
      case 6:
        if (!is_bytes(r)) return false;
        a.g = std::make_shared<GraphProto>(parse_graph(r.get_message(), depth + 1));
        return true;
      case 7:
        return append_floats(r, a.floats);
      case 8:
        return append_ints(r, a.ints);
      case 9:
        return append_bytes(r, a.strings);
      case 20:
        return take_enum(r, a.type);
      case 21:
        return take_string(r, a.ref);
      case 22:
        if (!is_bytes(r)) return false;
        a.t = std::make_shared<TensorProto>(parse_sparse_tensor(r.get_message()));
        return true;
      default:
        return false;
    }
  });
  if (a.type == AttributeType::kUndefined && a.ref.empty()) a.type = guess_type(a, has_f, has_i, has_s);
  if ((a.type == AttributeType::kTensor && !a.t && a.ref.empty()) ||
      (a.type == AttributeType::kGraph && !a.g && a.ref.empty()))
    fail_model("attribute '" + a.name + "' lacks the value of its type");
  return a;
}

// Which of two would count is nobody's to say.
void refuse_same_names(const std::vector<AttributeProto>& attributes, const std::string& owner) {
  std::set<std::string_view> names;
  for (const AttributeProto& attribute : attributes)
    if (!names.insert(attribute.name).second)
      fail_model("'" + owner + "' has two attributes '" + attribute.name + "'");
}

NodeProto parse_node(pbf_reader reader, int depth) {
  NodeProto node;
  for_each_field(reader, [&](pbf_reader& r) {
    if (!is_bytes(r)) return false;
    switch (r.tag()) {
      case 1:
        return append_string(r, node.inputs);
      case 2:
        return append_string(r, node.outputs);
      case 3:
        return take_string(r, node.name);
      case 4:
        return take_string(r, node.op_type);
      case 5:
        return node.attributes.push_back(parse_attribute(r.get_message(), depth)), true;
      case 7:
        return take_string(r, node.domain);
      case 8:
        return take_string(r, node.overload);
      default:
        return false;
    }
  });
  if (node.domain == "ai.onnx") node.domain.clear();
  refuse_same_names(node.attributes, node.name.empty() ? node.op_type : node.name);
  return node;
}

GraphProto parse_graph(pbf_reader reader, int depth) {
  if (depth > kMaxGraphDepth) fail_model("graphs nest too deeply");
  GraphProto graph;
  for_each_field(reader, [&](pbf_reader& r) {
    if (!is_bytes(r)) return false;
    switch (r.tag()) {
      case 1:
        return graph.nodes.push_back(parse_node(r.get_message(), depth)), true;
      case 2:
        return take_string(r, graph.name);
      case 5:
        graph.initializers.push_back(std::make_shared<TensorProto>(parse_tensor_message(r.get_message())));
        return true;
      case 11:
        return graph.inputs.push_back(parse_value_info(r.get_message())), true;
      case 12:
        return graph.outputs.push_back(parse_value_info(r.get_message())), true;
      case 15:
        graph.initializers.push_back(std::make_shared<TensorProto>(parse_sparse_tensor(r.get_message())));
        return true;
      default:
        return false;
    }
  });
  return graph;
}

void parse_opset(pbf_reader reader, OpsetImports& opsets) {
  std::string domain;
  int64_t version = 0;
  for_each_field(reader, [&](pbf_reader& r) {
    switch (r.tag()) {
      case 1:
        return take_string(r, domain);
      case 2:
        return take_int(r, version);
      default:
        return false;
    }
  });
  if (domain == "ai.onnx") domain.clear();
  const auto known = opsets.emplace(domain, version).first;
  if (known->second != version)
    fail_model("the opset of domain '" + domain + "' is both " + std::to_string(known->second) + " and " +
               std::to_string(version));
}

FunctionProto parse_function(pbf_reader reader) {
  FunctionProto function;
  for_each_field(reader, [&](pbf_reader& r) {
    if (!is_bytes(r)) return false;
    switch (r.tag()) {
      case 1:
        return take_string(r, function.name);
      case 4:
        return append_string(r, function.inputs);
      case 5:
        return append_string(r, function.outputs);
      case 6:
        return append_string(r, function.attributes);
      case 7:
        return function.nodes.push_back(parse_node(r.get_message(), 0)), true;
      case 9:
        return parse_opset(r.get_message(), function.opsets), true;
      case 10:
        return take_string(r, function.domain);
      case 11:
        return function.attribute_defaults.push_back(parse_attribute(r.get_message(), 0)), true;
      case 13:
        return take_string(r, function.overload);
      default:
        return false;
    }
  });
  if (function.domain == "ai.onnx") function.domain.clear();
  refuse_same_names(function.attribute_defaults, function.name);
  return function;
}

template <typename Parse>
auto guarded(const std::string& source, Parse parse) {
  try {
    return parse();
  } catch (const protozero::exception& error) {
    throw UserError(ErrorCode::kU_bad_model_file, "not a valid ONNX file: truncated or not protobuf")
        .with_value(source)
        .with_actual(error.what())
        .with_remedy("check that the file is a complete ONNX model");
  } catch (UserError& error) {
    if (error.value.empty()) error.with_value(source);
    throw;
  }
}

}  // namespace

ModelProto parse_model(std::string_view bytes, std::shared_ptr<const void> owner, const std::string& source) {
  return guarded(source, [&] {
    ModelProto model;
    model.owner = std::move(owner);
    bool has_graph = false;
    for_each_field(pbf_reader(bytes.data(), bytes.size()), [&](pbf_reader& r) {
      if (r.tag() == 1) return take_int(r, model.ir_version);
      if (!is_bytes(r)) return false;
      switch (r.tag()) {
        case 2:
          return take_string(r, model.producer);
        case 7:
          return model.graph = parse_graph(r.get_message(), 0), has_graph = true;
        case 8:
          return parse_opset(r.get_message(), model.opsets), true;
        case 14:
          return model.metadata.insert(parse_entry(r.get_message())), true;
        case 25:
          return model.functions.push_back(parse_function(r.get_message())), true;
        default:
          return false;
      }
    });
    if (!has_graph) fail_model("it holds no graph");
    if (model.opsets.empty()) fail_model("it names no opset");
    return model;
  });
}

void collect_reads(const NodeProto& node, std::set<std::string>& names) {
  names.insert(node.inputs.begin(), node.inputs.end());
  for (const AttributeProto& attribute : node.attributes) {
    if (!attribute.g) continue;
    for (const NodeProto& inner : attribute.g->nodes) collect_reads(inner, names);
    for (const ValueInfo& output : attribute.g->outputs) names.insert(output.name);
  }
}

TensorProto parse_tensor(std::string_view bytes, const std::string& source) {
  return guarded(source, [&] { return parse_tensor_message(pbf_reader(bytes.data(), bytes.size())); });
}

}  // namespace aicf::onnx
