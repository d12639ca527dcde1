// A model that ends at values of its graph instead of its outputs: a detector at its boxes and scores, before
// the ops that list them by data.
#pragma once

#include <string>
#include <vector>

#include "import/onnx_wire.h"

namespace aicf::onnx {

// Makes the named values the outputs, and takes away nodes and inputs that were read for others alone.
// Changes nothing without names. bad_option for a name that no node of the main graph gives.
void choose_results(ModelProto& model, const std::vector<std::string>& names);

}  // namespace aicf::onnx
