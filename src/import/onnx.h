// ONNX models into Programs. Takes a model file or its bytes and what the model leaves open: values or ranges
// of its dynamic sizes, which outputs feed back as state, values of inputs that decide shapes. Gives a
// Program with the entry "main": floating-point initialisers of rank >= 1 are params under their ONNX names,
// the rest are constants.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace aicf {

// What the user says about one dynamic size: exactly one of the three.
struct DimOption {
  // One: the size is that. Several: buckets, a symbol from the first to the last.
  std::vector<int64_t> values;
  std::optional<Interval> range;  // a symbol with this range
  std::string same_as;            // another name, or arithmetic on names: "2*half"
};
// "8", "1,8", "16..512", another size's name or an expression; bad_option.
DimOption parse_dim_option(std::string_view text);

struct ImportOptions {
  // By dim_param name; for an unnamed axis "INPUT:AXIS".
  std::map<std::string, DimOption, std::less<>> dims;
  // (past, present): input `past` becomes a state that starts at zero and output `present` its update.
  std::vector<std::pair<std::string, std::string>> states;
  // Inputs whose values are known when compiling, because they decide shapes. They stay in the signature
  // and accept exactly these values.
  std::map<std::string, Array, std::less<>> input_values;
  // If any: results of nodes of the main graph that the Program gives instead of the model's outputs. What
  // they do not need is left out, inputs too.
  std::vector<std::string> results;
};

// Errors: file_not_found, bad_model_file, path_escape, unsupported_opset, unset_size (lists all unset names),
// unsupported_op (lists every unsupported op at once), size_not_static (its `value` is the name of the input
// that decides a shape).
Program import_onnx(const std::string& path, const ImportOptions& options = {});
// `folder`: where external data may lie; "" refuses it. The bytes are copied unless `owner` keeps them alive.
Program import_onnx_bytes(std::string_view bytes, const ImportOptions& options = {},
                          const std::string& folder = "", std::shared_ptr<const void> owner = nullptr);

struct UnsupportedOp {
  std::string op;  // "domain.Op" outside the standard domain
  int count = 0;
  std::string first_node;  // its name, or the name of its first output
  std::string reason;
  bool operator==(const UnsupportedOp&) const = default;
};
struct OnnxSupport {
  // Every op that cannot be imported, sorted by name, and what else is wrong of nodes, in their order.
  std::vector<UnsupportedOp> unsupported;
  // Nodes that can be imported if their sizes have one value each, like those in `fixed_sizes`.
  std::vector<UnsupportedOp> of_fixed_sizes;
  std::map<std::string, int64_t> fixed_sizes;
};
// What of a model can be imported. Sizes without an option are ranges, or one number where that is not
// enough.
OnnxSupport support_onnx(const std::string& path, const ImportOptions& options = {});

struct OnnxDim {
  std::string input;  // first input that has it
  int axis;
  std::string name;  // the key for ImportOptions::dims
};
// The dynamic sizes of a model's inputs, each name once.
std::vector<OnnxDim> dynamic_dims_onnx(const std::string& path);

}  // namespace aicf
