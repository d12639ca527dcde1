#include "import/onnx_wire.h"

#include <protozero/pbf_reader.hpp>

#include "base/error.h"

namespace aicf::onnx {
namespace {

using protozero::pbf_reader;
using protozero::pbf_wire_type;

// Graphs nest through If, Loop and Scan attributes; real models use two or three levels.
constexpr int kMaxGraphDepth = 32;

[[noreturn]] void fail(const std::string& what) {
  throw UserError(ErrorCode::kU_bad_model_file, "not a valid ONNX model: " + what)
      .with_remedy("check that the file is a complete ONNX model");
}

std::string_view view_of(pbf_reader& reader) {
  const protozero::data_view view = reader.get_view();
  return {view.data(), view.size()};
}

// Calls `field` for every field; one that it does not take is skipped. protozero throws on malformed input
// but only asserts that a field has the wire type it is read as: `field` takes none of another wire type.
template <typename Field>
void for_each_field(pbf_reader reader, Field field) {
  while (reader.next())
    if (!field(reader)) reader.skip();
}

bool is_bytes(const pbf_reader& r) { return r.wire_type() == pbf_wire_type::length_delimited; }
bool is_varint(const pbf_reader& r) { return r.wire_type() == pbf_wire_type::varint; }

bool take_string(pbf_reader& reader, std::string& to) {
  if (!is_bytes(reader)) return false;
  to = std::string(view_of(reader));
  return true;
}
bool take_int(pbf_reader& reader, int64_t& to) {
  if (!is_varint(reader)) return false;
  to = reader.get_int64();
  return true;
}

template <typename T>
bool take_enum(pbf_reader& reader, T& to) {
  if (!is_varint(reader)) return false;
  to = static_cast<T>(reader.get_int32());
  return true;
}
bool append_string(pbf_reader& reader, std::vector<std::string>& to) {
  return is_bytes(reader) && take_string(reader, to.emplace_back());
}

// Repeated numbers may come packed or one by one, even mixed.
template <typename T, typename Range>
bool append_numbers(pbf_reader& reader, pbf_wire_type single, T (pbf_reader::*get)(),
                    Range (pbf_reader::*get_packed)(), std::vector<T>& to) {
  if (is_bytes(reader))
    for (T value : (reader.*get_packed)()) to.push_back(value);
  else if (reader.wire_type() == single)
    to.push_back((reader.*get)());
  else
    return false;
  return true;
}
bool append_ints(pbf_reader& reader, std::vector<int64_t>& to) {
  return append_numbers(reader, pbf_wire_type::varint, &pbf_reader::get_int64, &pbf_reader::get_packed_int64,
                        to);
}
bool append_floats(pbf_reader& reader, std::vector<float>& to) {
  return append_numbers(reader, pbf_wire_type::fixed32, &pbf_reader::get_float, &pbf_reader::get_packed_float,
                        to);
}

std::pair<std::string, std::string> parse_entry(pbf_reader reader) {
  std::pair<std::string, std::string> entry;
  for_each_field(reader, [&](pbf_reader& r) {
    switch (r.tag()) {
      case 1:
        return take_string(r, entry.first);
      case 2:
        return take_string(r, entry.second);
      default:
        return false;
    }
  });
  return entry;
}

TensorProto parse_tensor_message(pbf_reader reader) {
  TensorProto tensor;
  for_each_field(reader, [&](pbf_reader& r) {
    switch (r.tag()) {
      case 1:
        return append_ints(r, tensor.dims);
      case 2:
        return take_enum(r, tensor.data_type);
      case 3:
        fail("a tensor comes in segments");
      case 4:
        return append_floats(r, tensor.floats);
      case 5:
        return append_numbers(r, pbf_wire_type::varint, &pbf_reader::get_int32, &pbf_reader::get_packed_int32,
                              tensor.int32s);
      case 6:
        return append_string(r, tensor.strings);
      case 7:
        return append_ints(r, tensor.int64s);
      case 8:
        return take_string(r, tensor.name);
      case 9:
        if (!is_bytes(r)) return false;
        tensor.raw = view_of(r);
        tensor.has_raw = true;
        return true;
      case 10:
        return append_numbers(r, pbf_wire_type::fixed64, &pbf_reader::get_double,
                              &pbf_reader::get_packed_double, tensor.doubles);
      case 11:
        return append_numbers(r, pbf_wire_type::varint, &pbf_reader::get_uint64,
                              &pbf_reader::get_packed_uint64, tensor.uint64s);
      case 13:
        return is_bytes(r) ? (tensor.external_data.insert(parse_entry(r.get_message())), true) : false;
      case 14:
        return is_varint(r) ? (tensor.external = r.get_int32() == 1, true) : false;
      default:
        return false;
    }
  });
  return tensor;
}

TensorProto parse_sparse_tensor(pbf_reader reader) {
  TensorProto tensor;
  auto values = std::make_shared<TensorProto>(), indices = std::make_shared<TensorProto>();
  for_each_field(reader, [&](pbf_reader& r) {
    if (r.tag() == 3) return append_ints(r, tensor.dims);
    if ((r.tag() != 1 && r.tag() != 2) || !is_bytes(r)) return false;
    *(r.tag() == 1 ? values : indices) = parse_tensor_message(r.get_message());
    return true;
  });
  tensor.name = values->name;
  tensor.data_type = values->data_type;
  tensor.sparse_values = std::move(values);
  tensor.sparse_indices = std::move(indices);
  return tensor;
}

void parse_shape(pbf_reader reader, ValueInfo& info) {
  info.has_shape = true;
  for_each_field(reader, [&](pbf_reader& r) {
    if (r.tag() != 1 || !is_bytes(r)) return false;
    Dimension& dimension = info.shape.emplace_back();
    for_each_field(r.get_message(), [&](pbf_reader& d) {
      switch (d.tag()) {
        case 1:
          return is_varint(d) ? (dimension.has_value = true, dimension.value = d.get_int64(), true) : false;
        case 2:
          return take_string(d, dimension.param);
        default:
          return false;
      }
    });
    return true;
  });
}

void parse_type(pbf_reader reader, ValueInfo& info) {
  for_each_field(reader, [&](pbf_reader& r) {
    if (!is_bytes(r)) return false;
    switch (r.tag()) {
      case 1:
        info.kind = "tensor";
        for_each_field(r.get_message(), [&](pbf_reader& t) {
          if (t.tag() == 1) return take_enum(t, info.elem_type);
          if (t.tag() == 2 && is_bytes(t)) return parse_shape(t.get_message(), info), true;
          return false;
        });
        return true;
      case 4:
        info.kind = "sequence";
        return false;
      case 5:
        info.kind = "map";
        return false;
      case 7:
        info.kind = "opaque";
        return false;
      case 8:
        info.kind = "sparse_tensor";
        return false;
      case 9:
        info.kind = "optional";
        return false;
      default:
        return false;
    }
  });
}

ValueInfo parse_value_info(pbf_reader reader) {
  ValueInfo info;
  for_each_field(reader, [&](pbf_reader& r) {
    if (r.tag() == 1) return take_string(r, info.name);
    if (r.tag() == 2 && is_bytes(r)) return parse_type(r.get_message(), info), true;
    return false;
  });
  return info;
}

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
        return take_string(r, a.s) && (has_s = true);
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
        return append_string(r, a.strings);
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
    fail("attribute '" + a.name + "' lacks the value of its type");
  return a;
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
  return node;
}

GraphProto parse_graph(pbf_reader reader, int depth) {
  if (depth > kMaxGraphDepth) fail("graphs nest too deeply");
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
  opsets[domain == "ai.onnx" ? "" : domain] = version;
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
    if (!has_graph) fail("it holds no graph");
    if (model.opsets.empty()) fail("it names no opset");
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
