#include "import/onnx_cut.h"

#include <algorithm>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

#include "base/error.h"
#include "import/onnx_wire.h"

namespace aicf {
namespace {

using protozero::pbf_reader;
using protozero::pbf_writer;

// Field numbers of onnx.proto.
enum ModelField { kModelGraph = 7 };
enum GraphField {
  kGraphNode = 1,
  kGraphName = 2,
  kGraphInitializer = 5,
  kGraphInput = 11,
  kGraphOutput = 12
};

std::string tensor_message(const std::string& name, const Array& array) {
  std::string text;
  pbf_writer writer(text);
  for (int64_t size : array.sizes()) writer.add_int64(1, size);
  writer.add_int32(2, dtype_info(array.dtype()).onnx);
  writer.add_string(8, name);
  writer.add_bytes(9, static_cast<const char*>(array.data()), static_cast<size_t>(array.bytes()));
  return text;
}

// A value without known contents has a name only.
std::string value_message(const std::string& name, const Array* array) {
  std::string text;
  pbf_writer value(text);
  value.add_string(1, name);
  if (array == nullptr) return text;
  pbf_writer type(value, 2);
  pbf_writer tensor(type, 1);
  tensor.add_int32(1, dtype_info(array->dtype()).onnx);
  pbf_writer shape(tensor, 2);
  for (int64_t size : array->sizes()) pbf_writer(shape, 1).add_int64(1, size);
  return text;
}

}  // namespace

struct OnnxCut::Parts {
  std::string bytes, folder;
  onnx::ModelProto model;
  std::vector<std::string_view> nodes;       // messages, in the order of model.graph.nodes
  std::vector<std::set<std::string>> reads;  // per node, bodies included
  std::map<std::string, const onnx::TensorProto*> initializers;

  std::vector<std::string> names_made(size_t node) const {
    std::vector<std::string> names;
    for (const std::string& name : model.graph.nodes[node].outputs)
      if (!name.empty()) names.push_back(name);
    return names;
  }
};

OnnxCut::OnnxCut(std::string model, std::string folder) {
  auto parts = std::make_unique<Parts>();
  parts->bytes = std::move(model);
  parts->folder = std::move(folder);
  parts->model = onnx::parse_model(parts->bytes, nullptr, "the model to cut");
  for (const onnx::NodeProto& node : parts->model.graph.nodes)
    collect_reads(node, parts->reads.emplace_back());
  for (const auto& tensor : parts->model.graph.initializers)
    parts->initializers.emplace(tensor->name, tensor.get());
  for (pbf_reader reader(parts->bytes); reader.next();) {
    if (reader.tag() != kModelGraph) {
      reader.skip();
      continue;
    }
    for (pbf_reader graph = reader.get_message(); graph.next();) {
      if (graph.tag() != kGraphNode) {
        graph.skip();
        continue;
      }
      const protozero::data_view view = graph.get_view();
      parts->nodes.emplace_back(view.data(), view.size());
    }
  }
  if (parts->nodes.size() != parts->model.graph.nodes.size())
    throw UserError(ErrorCode::kU_bad_model_file, "the model holds more than one graph");
  parts_ = std::move(parts);
}

OnnxCut::~OnnxCut() = default;

size_t OnnxCut::node_count() const { return parts_->nodes.size(); }

std::vector<std::string> OnnxCut::input_names() const {
  std::vector<std::string> names;
  for (const onnx::ValueInfo& input : parts_->model.graph.inputs)
    if (!parts_->initializers.contains(input.name)) names.push_back(input.name);
  return names;
}

std::vector<std::string> OnnxCut::made_by(const std::vector<size_t>& nodes) const {
  std::vector<std::string> names;
  for (size_t node : nodes)
    for (std::string& name : parts_->names_made(node)) names.push_back(std::move(name));
  return names;
}

std::vector<std::string> OnnxCut::sinks(const std::vector<size_t>& nodes) const {
  std::set<std::string> read, outputs;
  for (size_t node : nodes) read.insert(parts_->reads[node].begin(), parts_->reads[node].end());
  for (const onnx::ValueInfo& output : parts_->model.graph.outputs) outputs.insert(output.name);
  std::vector<std::string> names;
  for (std::string& name : made_by(nodes))
    if (!read.contains(name) || outputs.contains(name)) names.push_back(std::move(name));
  return names;
}

std::string OnnxCut::make(const std::vector<size_t>& nodes, const std::vector<std::string>& outputs,
                          const std::map<std::string, Array>& values,
                          std::vector<std::string>* inputs) const {
  std::string graph;
  pbf_writer writer(graph);
  std::set<std::string> read;
  for (size_t node : nodes) {
    writer.add_message(kGraphNode, parts_->nodes[node].data(), parts_->nodes[node].size());
    read.insert(parts_->reads[node].begin(), parts_->reads[node].end());
  }
  writer.add_string(kGraphName, parts_->model.graph.name);
  for (const std::string& name : made_by(nodes)) read.erase(name);
  const auto array_of = [&](const std::string& name) {
    const auto at = values.find(name);
    return at == values.end() ? nullptr : &at->second;
  };
  for (const std::string& name : read) {
    if (const auto at = parts_->initializers.find(name); at != parts_->initializers.end()) {
      writer.add_message(kGraphInitializer,
                         tensor_message(name, onnx::to_array(*at->second, nullptr, parts_->folder)));
    } else if (const Array* array = array_of(name); array != nullptr) {
      if (!is_float(array->dtype())) {
        writer.add_message(kGraphInitializer, tensor_message(name, *array));
        continue;
      }
      writer.add_message(kGraphInput, value_message(name, array));
      if (inputs != nullptr) inputs->push_back(name);
    }
  }
  for (const std::string& name : outputs)
    writer.add_message(kGraphOutput, value_message(name, array_of(name)));

  std::string model;
  pbf_writer whole(model);
  for (pbf_reader reader(parts_->bytes); reader.next();) {
    const auto tag = reader.tag();
    if (tag == kModelGraph) {
      reader.skip();
    } else if (reader.wire_type() == protozero::pbf_wire_type::length_delimited) {
      const protozero::data_view view = reader.get_view();
      whole.add_bytes(tag, view.data(), view.size());
    } else {
      whole.add_int64(tag, reader.get_int64());
    }
  }
  whole.add_message(kModelGraph, graph);
  return model;
}

}  // namespace aicf
