// Walks an ONNX model and converts it node by node into a Program: scopes of value names, function bodies
// expanded in place, unsupported ops collected instead of stopping at the first.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "import/onnx.h"
#include "import/onnx_ops/node_context.h"
#include "import/onnx_wire.h"

namespace aicf::onnx {

// Of a --dim option.
UserError not_a_size(const std::string& text);

class Importer {
 public:
  // With `lenient_sizes`, a dynamic size without an option becomes a symbol instead of an error.
  Importer(const ModelProto& model, const ImportOptions& options, std::string folder, bool lenient_sizes);

  // Converts the model; unsupported() tells what could not be.
  void run();
  std::vector<UnsupportedOp> unsupported() const;
  // The program; call after run() with nothing unsupported.
  Program take_program();

 private:
  // Value names visible to nodes: a graph's own and, through parent, those around it.
  struct Scope {
    Scope* parent = nullptr;
    const OpsetImports* opsets = nullptr;
    const std::map<std::string, AttributeProto>* function_attributes = nullptr;
    std::map<std::string, ValueRef> values;
    int depth = 0;
  };

  void check_options() const;
  Shape input_shape(const ValueInfo& info);
  void require_reference(const std::string& text) const;
  Dim resolve_dim(const std::string& name, int depth);
  Dim declare_symbol(const std::string& name, Interval range);
  ValueRef known_input(const ValueInfo& info, const TensorType& type);
  void add_initializers(const GraphProto& graph, Scope& scope);
  void add_inputs(Scope& scope);
  void add_input(const ValueInfo& info, Scope& scope);
  void add_outputs(Scope& scope);
  void convert_nodes(const std::vector<NodeProto>& nodes, Scope& scope, GraphContext& context);
  void convert_node(const NodeProto& node, Scope& scope, GraphContext& context);
  void convert_with(const struct OpRule& rule, const NodeProto& node, std::vector<ValueRef> inputs,
                    Scope& scope, GraphContext& context);
  void expand_function(const FunctionProto& function, const NodeProto& node,
                       const std::vector<ValueRef>& inputs, Scope& scope, GraphContext& context);
  std::vector<ValueRef> convert_body(const GraphProto& graph, const std::vector<ValueRef>& inputs,
                                     Scope& scope, GraphContext& context);
  ValueRef lookup(const std::string& name, Scope& scope, GraphContext& context, const NodeProto& node);
  void define(const std::string& name, ValueRef value, Scope& scope);
  std::vector<AttributeProto> resolve_attributes(const NodeProto& node, const Scope& scope) const;
  void report(const NodeProto& node, const std::string& reason);
  void report(const std::string& op, const std::string& where, const std::string& reason);
  void mark_unsupported(const NodeProto& node, Scope& scope);

  const ModelProto& model_;
  const ImportOptions& options_;
  std::string folder_;
  bool lenient_sizes_;
  std::set<std::string> names_read_;
  Program program_;
  GraphContext main_;
  std::map<std::string, Dim, std::less<>> dims_;  // resolved dynamic sizes
  std::vector<std::string> unset_sizes_;
  int64_t converted_nodes_ = 0;
  std::map<std::pair<std::string, std::string>, UnsupportedOp> unsupported_;  // by op and reason
};

}  // namespace aicf::onnx
