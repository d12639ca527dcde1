// Nodes of an ONNX graph whose results nothing reads.
#pragma once

#include <string>
#include <vector>

#include "import/onnx_wire.h"

namespace aicf::onnx {

// Takes them away; the others keep their order. `outputs`: the names that the graph gives.
void remove_unread_nodes(std::vector<NodeProto>& nodes, const std::vector<std::string>& outputs);

}  // namespace aicf::onnx
