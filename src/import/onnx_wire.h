// The ONNX protobuf messages as plain structs. Strings and raw tensor bytes view the file's bytes, which the
// model keeps alive. The bytes are untrusted: truncated or foreign input, impossible sizes and deep nesting
// give bad_model_file.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/array.h"
#include "base/dim.h"

namespace aicf::onnx {

struct TensorProto {
  std::string name;
  std::vector<int64_t> dims;
  int data_type = 0;  // TensorProto.DataType
  bool has_raw = false, external = false;
  std::string_view raw;
  // At most one is filled, by data_type; int32s also carries the 8- and 16-bit types.
  std::vector<float> floats;
  std::vector<int32_t> int32s;
  std::vector<int64_t> int64s;
  std::vector<double> doubles;
  std::vector<uint64_t> uint64s;
  std::vector<std::string> strings;
  std::map<std::string, std::string> external_data;  // location, offset, length
  // Of a sparse tensor: the values that are not zero and where in `dims` they stand, by one index each or by
  // one per axis.
  std::shared_ptr<const TensorProto> sparse_values, sparse_indices;
};

struct Dimension {
  bool has_value = false;
  int64_t value = 0;
  std::string param;  // "" if unnamed
};

struct ValueInfo {
  std::string name;
  std::string kind = "unknown";  // tensor, sequence, optional, map, sparse_tensor, opaque
  int elem_type = 0;
  bool has_shape = false;
  std::vector<Dimension> shape;
};

struct GraphProto;

enum class AttributeType {
  kUndefined = 0,
  kFloat = 1,
  kInt = 2,
  kString = 3,
  kTensor = 4,
  kGraph = 5,
  kFloats = 6,
  kInts = 7,
  kStrings = 8,
  kTensors = 9,
  kGraphs = 10,
  kSparseTensor = 11,
  kSparseTensors = 12,
  kTypeProto = 13,
  kTypeProtos = 14
};

struct AttributeProto {
  std::string name, ref;  // ref: the function attribute whose value this takes
  AttributeType type = AttributeType::kUndefined;
  float f = 0;
  int64_t i = 0;
  std::string s;
  std::shared_ptr<const TensorProto> t;
  std::shared_ptr<const GraphProto> g;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<std::string> strings;
};

struct NodeProto {
  std::vector<std::string> inputs, outputs;  // "" is an absent optional value
  std::string name, op_type, domain, overload;
  std::vector<AttributeProto> attributes;
};

struct GraphProto {
  std::string name;
  std::vector<NodeProto> nodes;
  std::vector<std::shared_ptr<const TensorProto>> initializers;  // dense and sparse
  std::vector<ValueInfo> inputs, outputs;
};

using OpsetImports = std::map<std::string, int64_t>;  // domain ("" is ai.onnx) to version

struct FunctionProto {
  std::string name, domain, overload;
  std::vector<std::string> inputs, outputs, attributes;
  std::vector<AttributeProto> attribute_defaults;
  std::vector<NodeProto> nodes;
  OpsetImports opsets;
};

struct ModelProto {
  std::shared_ptr<const void> owner;  // of the bytes that raw views look at
  int64_t ir_version = 0;
  std::string producer;
  OpsetImports opsets;
  GraphProto graph;
  std::vector<FunctionProto> functions;
  std::map<std::string, std::string> metadata;
};

// `source` names the file in messages.
ModelProto parse_model(std::string_view bytes, std::shared_ptr<const void> owner, const std::string& source);
// Adds the names that the node reads, the graphs inside it included.
void collect_reads(const NodeProto& node, std::set<std::string>& names);
// A TensorProto file on its own, as the ONNX test data has them.
TensorProto parse_tensor(std::string_view bytes, const std::string& source);

// The tensor's values, in the type that carries them if the IR lacks theirs (onnx_types.h); a view of the
// file's bytes where they are aligned. `folder` is where external data may lie (a path that leaves it is
// path_escape); empty refuses external data. unsupported_dtype names the type.
Array to_array(const TensorProto& tensor, const std::shared_ptr<const void>& owner,
               const std::string& folder);
// "UINT64" for a value of TensorProto.DataType.
std::string data_type_name(int data_type);

}  // namespace aicf::onnx
