// Nodes of a domain of the user's own.
#include "import/custom_ops.h"
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

void convert_custom(NodeContext& n) {
  const OnnxCustomOp& op = *find_onnx_op(n.proto().domain, n.op_type);
  std::vector<ValueId> operands;
  std::vector<TensorType> types;
  for (size_t i = 0; i < n.input_count(); ++i) {
    if (!n.has(i)) n.unsupported("a custom op's inputs must all be given");
    operands.push_back(n.in(i));
    types.push_back(n.type(i));
  }
  std::vector<double> values;
  for (const OnnxCustomOp::Attribute& attribute : op.attributes)
    values.push_back(attribute.whole ? static_cast<double>(
                                           n.attr_int(attribute.name, static_cast<int64_t>(attribute.absent)))
                                     : n.attr_float(attribute.name, attribute.absent));
  const NodeId node =
      n.graph().add_node(Op::custom, std::move(operands), op.convert(types, values), {}, n.origin());
  const std::vector<ValueId> results = n.graph().node(node).results;
  for (size_t i = 0; i < results.size(); ++i) n.out(i, results[i]);
}

}  // namespace

const OpRule* find_custom_rule(std::string_view domain, std::string_view op) {
  static const OpRule rule{"", convert_custom};
  return find_onnx_op(domain, op) != nullptr ? &rule : nullptr;
}

}  // namespace aicf::onnx
