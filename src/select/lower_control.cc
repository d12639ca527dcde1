
#include "select/selector.h"

namespace aicf {
namespace {

// The body without the outputs that only return what it carries; `next` gets a param per carried value
// (plan/control_layout.h).
Graph without_kept_values(const Graph& body, size_t carried, std::vector<Dim>& next) {
  Graph reduced(body.name());
  std::vector<ValueId> inputs;
  for (ValueId id : body.inputs()) inputs.push_back(reduced.add_input(body.value(id).name, body.type(id)));
  const std::vector<ValueId> outputs = inline_body(reduced, body, inputs);
  int64_t count = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool kept = i < carried && outputs[i] == inputs[i];
    if (i < carried) next.emplace_back(kept ? -1 : count);
    if (kept) continue;
    reduced.add_output(outputs[i], body.output_names()[i]);
    ++count;
  }
  return eliminate_dead_code(reduced);
}

}  // namespace

void Selector::lower_control(const Node& node) {
  KernelCall call;
  call.origins = {origin_of(node)};
  call.reason = "the runtime runs its bodies";
  for (ValueId id : node.operands)
    call.inputs.push_back(dense_operand(id, call.origins[0], "bodies read dense memory"));
  const bool scans = node.op == Op::scan;
  const size_t carried = scans                       ? static_cast<size_t>(node.attrs.get_int("carried"))
                         : node.op == Op::while_loop ? node.operands.size()
                                                     : 0;
  ControlRun control{.kind = node.op};
  if (scans)
    control.params = {Dim(static_cast<int64_t>(carried)), Dim(node.attrs.get_bool("reverse") ? 1 : 0)};
  for (size_t i = 0; i < node.bodies.size(); ++i) {
    control.bodies.push_back(static_cast<int>(bodies_.size()));
    const bool advances = node.op != Op::if_else && i + 1 == node.bodies.size();
    bodies_.push_back(advances ? without_kept_values(node.bodies[i], carried, control.params)
                               : node.bodies[i]);
  }
  call.what = std::move(control);
  add_dense_call(std::move(call), node, "bodies write dense memory");
}

}  // namespace aicf
