// If, Loop and Scan. A constant condition or trip count is resolved here; an If on data becomes if_else with
// both branches as bodies; loops whose trip count is data are not supported.
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

// Unrolling a longer loop would make a graph nobody wants.
constexpr int64_t kMaxUnrolled = 256;

const GraphProto& body_of(NodeContext& n, std::string_view name) {
  const AttributeProto* a = n.attr(name);
  if (a == nullptr || !a->g) n.bad("attribute '" + std::string(name) + "' is missing", "a graph", "nothing");
  return *a->g;
}

// Both branches over the same captures: what either reads from outside becomes an input of both.
void if_on_data(NodeContext& n, const GraphProto& then_graph, const GraphProto& else_graph) {
  GraphContext first(n.context().program(), "then", &n.context()),
      second(n.context().program(), "else", &n.context());
  auto convert = [&](const GraphProto& graph, GraphContext& target) {
    const std::vector<ValueRef> outputs = n.convert_body(graph, {}, target);
    for (size_t i = 0; i < outputs.size(); ++i)
      target.graph().add_output(target.capture(outputs[i]), "result_" + std::to_string(i));
  };
  convert(then_graph, first);
  for (const ValueRef& value : first.captures()) second.capture(value);
  convert(else_graph, second);
  for (size_t i = first.captures().size(); i < second.captures().size(); ++i)
    first.capture(second.captures()[i]);
  std::vector<ValueId> operands = {n.reshape(n.in(0), {})};
  for (const ValueRef& value : second.captures()) operands.push_back(n.context().capture(value));
  const NodeId node =
      n.graph().add_node(Op::if_else, operands, {}, {first.graph(), second.graph()}, n.origin());
  const std::vector<ValueId> results = n.graph().node(node).results;
  for (size_t i = 0; i < results.size(); ++i) n.out(i, results[i]);
}

void if_op(NodeContext& n) {
  const GraphProto &then_graph = body_of(n, "then_branch"), &else_graph = body_of(n, "else_branch");
  const auto condition = n.constant(0);
  if (!condition) return if_on_data(n, then_graph, else_graph);
  if (condition->count() != 1) n.bad("condition", "one element", std::to_string(condition->count()));
  const auto outputs = n.convert_body(condition->get_i64(0) != 0 ? then_graph : else_graph, {}, n.context());
  for (size_t i = 0; i < outputs.size(); ++i) n.out(i, outputs[i]);
}

ValueRef known(Array array) {
  auto value = std::make_shared<OnnxValue>();
  value->type = {array.dtype(), to_shape(array.sizes())};
  value->array = std::move(array);
  return value;
}

// Per-step results [..] stacked along `axis`.
ValueId stack(NodeContext& n, const std::vector<ValueRef>& steps, int64_t axis) {
  std::vector<ValueId> parts;
  for (const ValueRef& step : steps) {
    Shape shape = step->type.shape;
    shape.insert(shape.begin() + n.axis(axis, static_cast<int64_t>(shape.size()) + 1), Dim(1));
    parts.push_back(n.reshape(n.context().materialize(*step), shape));
  }
  return n.add(Op::concat, parts, {{"axis", axis}});
}

// Inputs M, condition, carried...; the body maps (i, condition, carried...) to (condition, carried...,
// per-step...).
void loop(NodeContext& n) {
  const GraphProto& body = body_of(n, "body");
  const size_t carried = n.input_count() >= 2 ? n.input_count() - 2 : 0;
  int64_t trips = kMaxUnrolled + 1;
  if (n.has(0)) trips = n.require_int(0, "trip count");
  ValueRef condition = n.has(1) ? n.ref(1) : known(Array::scalar_i64(DType::boolean, 1));
  std::vector<ValueRef> values;
  for (size_t i = 0; i < carried; ++i) values.push_back(n.ref(2 + i));
  std::vector<std::vector<ValueRef>> steps;
  for (int64_t trip = 0; trip < trips; ++trip) {
    const auto go = n.context().constant(*condition);
    if (!go) n.unsupported("a condition that depends on data");
    if (go->count() != 1) n.bad("condition", "one element", std::to_string(go->count()));
    if (go->get_i64(0) == 0) break;
    if (trip == kMaxUnrolled) n.unsupported("more than " + std::to_string(kMaxUnrolled) + " iterations");
    std::vector<ValueRef> inputs = {known(Array::scalar_i64(DType::i64, trip)), condition};
    inputs.insert(inputs.end(), values.begin(), values.end());
    const auto outputs = n.convert_body(body, inputs, n.context());
    if (outputs.size() < 1 + carried)
      n.bad("body", std::to_string(1 + carried) + " outputs", std::to_string(outputs.size()));
    condition = outputs[0];
    for (size_t i = 0; i < carried; ++i) values[i] = outputs[1 + i];
    steps.resize(outputs.size() - 1 - carried);
    for (size_t i = 0; i < steps.size(); ++i) steps[i].push_back(outputs[1 + carried + i]);
  }
  for (size_t i = 0; i < carried; ++i) n.out(i, values[i]);
  for (size_t i = 0; i < steps.size(); ++i)
    if (n.wants(carried + i)) n.out(carried + i, stack(n, steps[i], 0));
  for (size_t i = carried + steps.size(); i < n.output_count(); ++i)
    if (n.wants(i)) n.unsupported("per-step outputs of a loop that runs no iteration");
}

// Inputs carried..., scanned...; the body maps (carried..., slices...) to (carried..., per-step...).
void scan(NodeContext& n) {
  if (n.opset() < 9) n.unsupported("the batched form of opset 8");
  const GraphProto& body = body_of(n, "body");
  const size_t scanned = static_cast<size_t>(n.attr_int("num_scan_inputs"));
  if (scanned < 1 || scanned > n.input_count())
    n.bad("num_scan_inputs", "1 to the number of inputs", std::to_string(scanned));
  const size_t carried = n.input_count() - scanned,
               stacked = n.output_count() - std::min(carried, n.output_count());
  const Ints in_axes = n.attr_ints("scan_input_axes", Ints(scanned, 0)),
             out_axes = n.attr_ints("scan_output_axes", Ints(stacked, 0)),
             in_reverse = n.attr_ints("scan_input_directions", Ints(scanned, 0)),
             out_reverse = n.attr_ints("scan_output_directions", Ints(stacked, 0));
  if (in_axes.size() != scanned || in_reverse.size() != scanned || out_axes.size() != stacked ||
      out_reverse.size() != stacked)
    n.bad("scan axes and directions", "one per scanned value", "others");
  std::vector<ValueRef> values;
  for (size_t i = 0; i < carried; ++i) values.push_back(n.ref(i));
  const int64_t first_axis = n.axis(in_axes[0], n.rank(carried));
  const int64_t length = n.shape(carried)[static_cast<size_t>(first_axis)].require_constant("length of Scan");
  if (length > kMaxUnrolled) n.unsupported("more than " + std::to_string(kMaxUnrolled) + " steps");
  if (length == 0 && stacked > 0) n.unsupported("per-step outputs of a scan of length 0");
  std::vector<std::vector<ValueRef>> steps(stacked);
  for (int64_t step = 0; step < length; ++step) {
    std::vector<ValueRef> inputs = values;
    for (size_t i = 0; i < scanned; ++i) {
      const int64_t axis = n.axis(in_axes[i], n.rank(carried + i)),
                    at = in_reverse[i] ? length - 1 - step : step;
      Shape shape = n.shape(carried + i);
      if (shape[static_cast<size_t>(axis)] != Dim(length))
        n.bad("scanned values", "equal lengths", to_string(shape));
      shape.erase(shape.begin() + axis);
      inputs.push_back(n.wrap(n.reshape(n.slice_axis(n.in(carried + i), axis, at, at + 1), shape)));
    }
    const auto outputs = n.convert_body(body, inputs, n.context());
    if (outputs.size() < carried + stacked)
      n.bad("body", "as many outputs as the node", std::to_string(outputs.size()));
    for (size_t i = 0; i < carried; ++i) values[i] = outputs[i];
    for (size_t i = 0; i < stacked; ++i)
      steps[i].insert(out_reverse[i] ? steps[i].begin() : steps[i].end(), outputs[carried + i]);
  }
  for (size_t i = 0; i < carried; ++i) n.out(i, values[i]);
  for (size_t i = 0; i < stacked; ++i)
    if (n.wants(carried + i)) n.out(carried + i, stack(n, steps[i], out_axes[i]));
}

}  // namespace

std::vector<OpRule> control_rules() { return {{"If", if_op}, {"Loop", loop}, {"Scan", scan}}; }

}  // namespace aicf::onnx
