// If, Loop and Scan. A constant condition or a small trip count is resolved here; an If on data becomes
// if_else with both branches as bodies, other loops stay loops.
#include "import/onnx_ops/registry.h"
#include "import/onnx_ops/rolled_loops.h"

namespace aicf::onnx {
namespace {

// Unrolling a longer loop would make a graph nobody wants.
constexpr int64_t kMaxUnrolledTrips = 256;

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

// Runs the body here as often as constants say. False if that cannot be known, or would be too often.
bool unroll_loop(NodeContext& n, const GraphProto& body, size_t carried) {
  int64_t trips = kMaxUnrolledTrips + 1;
  if (const auto known = n.has(0) ? n.constant(0) : std::nullopt; known && known->count() == 1)
    trips = known->get_i64(0);
  else if (n.has(0))
    return false;
  ValueRef condition = n.has(1) ? n.ref(1) : known(Array::scalar_i64(DType::boolean, 1));
  std::vector<ValueRef> values;
  for (size_t i = 0; i < carried; ++i) values.push_back(n.any(2 + i));
  std::vector<std::vector<ValueRef>> steps;
  const Ints number = counts_in_one_axis(body) ? Ints{1} : Ints{};
  for (int64_t trip = 0; trip < trips; ++trip) {
    const auto go = n.context().constant(*condition);
    if (!go || trip == kMaxUnrolledTrips) return false;
    if (go->count() != 1) n.bad("condition", "one element", std::to_string(go->count()));
    if (go->get_i64(0) == 0) break;
    std::vector<ValueRef> inputs = {known(Array::from<int64_t>(DType::i64, number, {trip})), condition};
    inputs.insert(inputs.end(), values.begin(), values.end());
    const auto outputs = n.convert_body(body, inputs, n.context());
    if (outputs.size() < 1 + carried)
      n.bad("body", std::to_string(1 + carried) + " outputs", std::to_string(outputs.size()));
    condition = outputs[0];
    for (size_t i = 0; i < carried; ++i) values[i] = outputs[1 + i];
    steps.resize(outputs.size() - 1 - carried);
    for (size_t i = 0; i < steps.size(); ++i) steps[i].push_back(outputs[1 + carried + i]);
  }
  for (size_t i = carried + steps.size(); i < n.output_count(); ++i)
    if (n.wants(i)) return false;  // stacks of nothing, whose shapes only the body tells
  for (size_t i = 0; i < carried; ++i) n.out(i, values[i]);
  for (size_t i = 0; i < steps.size(); ++i)
    if (n.wants(carried + i)) n.out(carried + i, stack(n, steps[i], 0));
  return true;
}

// Inputs M, condition, carried...; the body maps (i, condition, carried...) to (condition, carried...,
// per-step...).
void loop(NodeContext& n) {
  const GraphProto& body = body_of(n, "body");
  const size_t carried = n.input_count() >= 2 ? n.input_count() - 2 : 0;
  if (n.has(0) && n.type(0).shape.size() > 1) n.require_rank(0, 1);
  // With results of every step the trip count decides a shape.
  bool stacks = false;
  for (size_t i = carried; i < n.output_count(); ++i) stacks = stacks || n.wants(i);
  if (n.has(0) && stacks && !n.sizes(0)) n.require_int(0, "trip count");
  if (!unroll_loop(n, body, carried)) rolled_loop(n, body, carried);
}

std::vector<ScanAxis> scan_axes(NodeContext& n, const std::string& axes, const std::string& directions,
                                size_t count) {
  const Ints at = n.attr_ints(axes, Ints(count, 0)), reverse = n.attr_ints(directions, Ints(count, 0));
  if (at.size() != count || reverse.size() != count) n.bad(axes, "one per scanned value", "others");
  std::vector<ScanAxis> list;
  for (size_t i = 0; i < count; ++i) list.push_back({at[i], reverse[i] != 0});
  return list;
}

void unroll_scan(NodeContext& n, const GraphProto& body, size_t carried, int64_t length,
                 const std::vector<ScanAxis>& in, const std::vector<ScanAxis>& out) {
  std::vector<ValueRef> values;
  for (size_t i = 0; i < carried; ++i) values.push_back(n.ref(i));
  std::vector<std::vector<ValueRef>> steps(out.size());
  for (int64_t step = 0; step < length; ++step) {
    std::vector<ValueRef> inputs = values;
    for (size_t i = 0; i < in.size(); ++i) {
      const int64_t at = in[i].reverse ? length - 1 - step : step;
      Shape shape = n.shape(carried + i);
      shape.erase(shape.begin() + in[i].axis);
      inputs.push_back(n.wrap(n.reshape(n.slice_axis(n.in(carried + i), in[i].axis, at, at + 1), shape)));
    }
    const auto outputs = n.convert_body(body, inputs, n.context());
    if (outputs.size() < carried + out.size())
      n.bad("body", "as many outputs as the node", std::to_string(outputs.size()));
    for (size_t i = 0; i < carried; ++i) values[i] = outputs[i];
    for (size_t i = 0; i < out.size(); ++i)
      steps[i].insert(out[i].reverse ? steps[i].begin() : steps[i].end(), outputs[carried + i]);
  }
  for (size_t i = 0; i < carried; ++i) n.out(i, values[i]);
  for (size_t i = 0; i < out.size(); ++i)
    if (n.wants(carried + i)) n.out(carried + i, stack(n, steps[i], out[i].axis));
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
  std::vector<ScanAxis> in = scan_axes(n, "scan_input_axes", "scan_input_directions", scanned);
  const std::vector<ScanAxis> out = scan_axes(n, "scan_output_axes", "scan_output_directions", stacked);
  std::optional<Dim> length;
  for (size_t i = 0; i < scanned; ++i) {
    in[i].axis = n.axis(in[i].axis, n.rank(carried + i));
    const Dim& size = n.shape(carried + i)[static_cast<size_t>(in[i].axis)];
    if (length && !(*length == size)) n.bad("scanned values", length->to_string(), size.to_string());
    length = size;
  }
  const auto steps = length->constant();
  const bool unrolls = steps && *steps <= kMaxUnrolledTrips && (*steps > 0 || stacked == 0);
  if (unrolls) return unroll_scan(n, body, carried, *steps, in, out);
  rolled_scan(n, body, carried, in, out);
}

}  // namespace

std::vector<OpRule> control_rules() { return {{"If", if_op}, {"Loop", loop}, {"Scan", scan}}; }

}  // namespace aicf::onnx
