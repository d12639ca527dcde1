#include "ir/decompose.h"

#include "base/error.h"
#include "ir/decompose/emitter.h"

namespace aicf {
namespace {

Values dispatch(Emitter& emitter, const Node& node, const Values& operands) {
  switch (node.op) {
#define AICF_OP(...)
#define AICF_POINTWISE(...)
#define AICF_COMPOSITE(name, operand_list, types, attributes, results, traits, shape_rule, meaning) \
  case Op::name:                                                                                    \
    return decompose_##name(emitter, node, operands);
#include "ir/ops.def"
#undef AICF_OP
    default:
      break;
  }
  AICF_CHECK(false, std::string(op_info(node.op).name) + " is a primitive: there is nothing to decompose");
}

}  // namespace

std::vector<ValueId> decompose(Graph& graph, const Node& composite, const std::vector<ValueId>& operands) {
  AICF_CHECK(operands.size() == composite.operands.size(), "decompose needs the operands of the node");
  Emitter emitter(graph, composite.origin);
  return dispatch(emitter, composite, operands);
}

}  // namespace aicf
