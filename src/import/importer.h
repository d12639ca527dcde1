// Walks an ONNX model and converts it node by node into a Program: scopes of value names, function bodies
// expanded in place. A node that cannot be converted does not stop the walk: what it would give is marked,
// and only what the model's outputs need of that counts. So a branch that a constant condition rules out may
// hold anything.
#pragma once

#include <map>
#include <optional>
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
  // `unset`: what a dynamic size without an option may be; without it such a size is an error.
  Importer(const ModelProto& model, const ImportOptions& options, std::string folder,
           std::optional<Interval> unset = std::nullopt);

  // Converts the model; unsupported() and errors() tell what of it could not be.
  void run();
  std::vector<UnsupportedOp> unsupported() const;
  struct NodeError {
    std::string node;
    UserError error;
  };
  // In the order of the nodes.
  const std::vector<NodeError>& errors() const { return errors_; }
  // The program; call after run() with nothing unsupported and no errors.
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

  // Why a value could not be made: its own reason, or those of what it is made from, by their numbers.
  struct Failure {
    std::vector<size_t> causes;
    std::optional<UnsupportedOp> unsupported;
    std::optional<UserError> error;
    std::string where;  // the node of the error
  };

  void check_options() const;
  Shape input_shape(const ValueInfo& info);
  void require_reference(const std::string& text) const;
  Dim resolve_dim(const std::string& name, int depth);
  // An error whose value lists symbols says by which options they get one value each.
  void name_sizes(UserError& error) const;
  Dim declare_symbol(const std::string& name, Interval range);
  void check_default(const ValueInfo& info, const OnnxValue& value) const;
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
  void report(const UnsupportedOp& found);
  size_t add_failure(Failure failure);
  size_t fail(const NodeProto& node, const std::string& reason);
  void mark_failed(const NodeProto& node, Scope& scope, size_t failure);
  // Reports these failures and their causes.
  void settle(std::vector<size_t> failures);

  const ModelProto& model_;
  const ImportOptions& options_;
  std::string folder_;
  std::optional<Interval> unset_;
  std::set<std::string> names_read_;
  Program program_;
  GraphContext main_;
  std::map<std::string, Dim, std::less<>> dims_;  // resolved dynamic sizes
  std::vector<std::string> unset_sizes_;
  int64_t converted_nodes_ = 0;
  std::vector<Failure> failures_;
  std::map<std::pair<std::string, std::string>, UnsupportedOp> unsupported_;  // by op and reason
  std::vector<NodeError> errors_;
};

}  // namespace aicf::onnx
