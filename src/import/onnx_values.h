// The messages of values: tensors, types and shapes, entries of maps. onnx_wire.h has their structs and says
// what is thrown.
#pragma once

#include <string>
#include <utility>

#include "import/onnx_fields.h"
#include "import/onnx_wire.h"

namespace aicf::onnx {

[[noreturn]] void fail_model(const std::string& what);

std::pair<std::string, std::string> parse_entry(pbf_reader reader);
TensorProto parse_tensor_message(pbf_reader reader);
// Its values and indices are tensors of their own.
TensorProto parse_sparse_tensor(pbf_reader reader);
ValueInfo parse_value_info(pbf_reader reader);

}  // namespace aicf::onnx
