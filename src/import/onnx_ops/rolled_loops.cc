#include "import/onnx_ops/rolled_loops.h"

#include <numeric>

#include "import/onnx_ops/counted_loops.h"

namespace aicf::onnx {
namespace {

// A body under construction. Its graph has the inputs in the order of add_input, then what it captures.
struct LoopBody {
  GraphContext context;
  std::vector<ValueRef> inputs;

  explicit LoopBody(NodeContext& n) : context(n.context().program(), "body", &n.context()) {}

  ValueRef add_input(const std::string& name, const TensorType& type) {
    auto value = std::make_shared<OnnxValue>();
    value->type = type;
    value->emitted.emplace(context.serial(), context.graph().add_input(name, type));
    inputs.push_back(value);
    return value;
  }
  // A scalar input as [1].
  ValueRef with_axis(const ValueRef& input) {
    auto value = std::make_shared<OnnxValue>();
    value->type = {input->type.dtype, {Dim(1)}};
    const ValueId id = input->emitted.at(context.serial());
    value->emitted.emplace(context.serial(),
                           context.graph().add(Op::reshape, {id}, {{"shape", value->type.shape}}));
    return value;
  }
  // An output of the body as an IR value of the type that it must have.
  ValueId result(NodeContext& n, const ValueRef& output, const TensorType& type) {
    const ValueId id = context.capture(output);
    if (!(context.graph().type(id) == type))
      n.unsupported("a value that changes its type from " + to_string(type) + " to " +
                    to_string(context.graph().type(id)) + " in a loop that cannot be unrolled");
    return id;
  }
};

ValueRef always() {
  auto value = std::make_shared<OnnxValue>();
  value->type = {DType::boolean, {}};
  value->array = Array::scalar_i64(DType::boolean, 1);
  return value;
}

ValueId as_scalar(Graph& graph, ValueId id) {
  return graph.shape(id).empty() ? id : graph.add(Op::reshape, {id}, {{"shape", Shape{}}});
}

// A graph with the inputs of `graph` in another order; outputs are added by the caller over the values
// returned.
std::vector<ValueId> copy_with_inputs(Graph& to, const Graph& graph, const std::vector<size_t>& order) {
  std::vector<ValueId> inputs(graph.inputs().size());
  for (size_t at : order) {
    const ValueId old = graph.inputs()[at];
    inputs[at] = to.add_input("in" + std::to_string(to.inputs().size()), graph.type(old));
  }
  return inline_body(to, graph, inputs);
}

std::vector<size_t> counting(size_t first, size_t last) {
  std::vector<size_t> list(last - first);
  std::iota(list.begin(), list.end(), first);
  return list;
}

// The scan over a body whose inputs are `walked` sliced values, `carried` values and captures, and whose
// outputs are the next carried values, then rows of results.
std::vector<ValueId> add_scan(NodeContext& n, LoopBody& body, size_t carried,
                              const std::vector<ValueId>& initial, const std::vector<ValueId>& walked) {
  const Graph& graph = body.context.graph();
  const size_t captures = body.context.captures().size();
  // Carried, captures, walked.
  std::vector<size_t> order = counting(walked.size(), graph.inputs().size());
  for (size_t i = 0; i < walked.size(); ++i) order.push_back(i);
  Graph scanned("body");
  const std::vector<ValueId> results = copy_with_inputs(scanned, graph, order);
  const auto add = [&](ValueId id) {
    scanned.add_output(id, "out" + std::to_string(scanned.outputs().size()));
  };
  for (size_t i = 0; i < carried; ++i) add(results[i]);
  for (size_t i = 0; i < captures; ++i) add(scanned.inputs()[carried + i]);
  for (size_t i = carried; i < results.size(); ++i) add(results[i]);
  std::vector<ValueId> operands = initial;
  for (const ValueRef& value : body.context.captures()) operands.push_back(n.context().capture(value));
  operands.insert(operands.end(), walked.begin(), walked.end());
  const NodeId node = n.graph().add_node(
      Op::scan, operands, {{"carried", static_cast<int64_t>(carried + captures)}, {"reverse", false}},
      {scanned}, n.origin());
  std::vector<ValueId> values = n.graph().node(node).results;
  values.erase(values.begin() + static_cast<std::ptrdiff_t>(carried),
               values.begin() + static_cast<std::ptrdiff_t>(carried + captures));
  return values;
}

// Body inputs: iteration, carried..., captures; outputs: condition, carried..., and no others.
void add_while(NodeContext& n, LoopBody& body, size_t carried) {
  Graph& graph = body.context.graph();
  const bool limited = n.has(0);
  // Loop-carried: iteration, condition, limit if there is one, carried, captures.
  std::vector<ValueId> operands = {n.iscalar(DType::i64, 0)};
  operands.push_back(n.has(1) ? n.cast(n.reshape(n.in(1), {}), DType::boolean)
                              : n.constant_of(Array::scalar_i64(DType::boolean, 1)));
  if (limited) operands.push_back(n.cast(n.reshape(n.in(0), {}), DType::i64));
  for (size_t i = 0; i < carried; ++i) operands.push_back(n.in(2 + i));
  for (const ValueRef& value : body.context.captures()) operands.push_back(n.context().capture(value));

  Graph test("test"), next("body");
  for (Graph* one : {&test, &next})
    for (ValueId id : operands)
      one->add_input("in" + std::to_string(one->inputs().size()), n.graph().type(id));
  const std::vector<ValueId>&t = test.inputs(), &in = next.inputs();
  test.add_output(limited ? test.add(Op::bit_and, {t[1], test.add(Op::lt, {t[0], t[2]})}) : t[1], "go");

  const size_t first = limited ? 3 : 2;
  std::vector<ValueId> inner = {in[0]};
  inner.insert(inner.end(), in.begin() + static_cast<std::ptrdiff_t>(first), in.end());
  const std::vector<ValueId> results = inline_body(next, graph, inner);
  const auto add = [&](ValueId id) { next.add_output(id, "out" + std::to_string(next.outputs().size())); };
  add(next.add(Op::add, {in[0], next.add_constant(Array::scalar_i64(DType::i64, 1))}));
  add(results[0]);
  if (limited) add(in[2]);
  for (size_t i = 0; i < carried; ++i) add(results[1 + i]);
  for (size_t i = first + carried; i < in.size(); ++i) add(in[i]);
  const NodeId node = n.graph().add_node(Op::while_loop, operands, {}, {test, next}, n.origin());
  const std::vector<ValueId> values = n.graph().node(node).results;
  for (size_t i = 0; i < carried; ++i) n.out(i, values[first + i]);
}

// The trip count if it is known as a size, constant or symbolic.
std::optional<Dim> trip_count(NodeContext& n) {
  if (!n.has(0)) return std::nullopt;
  const auto sizes = n.sizes(0);
  if (!sizes || sizes->size() != 1) return std::nullopt;
  return n.bounds_of((*sizes)[0]).lo >= 0 ? sizes->at(0) : Dim(0);
}

// Longer loops count beyond the integers that f32 has, in which conditions may compare.
constexpr int64_t kMostCounted = 1 << 24;

// The trip count, if the conditions at the start and after each step follow from it. `results` are what the
// body makes of the carried values.
std::optional<Dim> counted_trips(NodeContext& n, LoopBody& body, const ValueRef& condition,
                                 const std::vector<ValueId>& results) {
  const std::optional<Dim> trips = trip_count(n);
  const auto bounds = [&](const Dim& size) { return n.bounds_of(size); };
  if (!trips || bounds(*trips).lo < 1 || bounds(*trips).hi > kMostCounted) return std::nullopt;
  if (n.has(1) && !holds_until(n.graph(), n.in(1), {}, Dim(0), bounds)) return std::nullopt;
  const Graph& graph = body.context.graph();
  const auto input = [&](size_t i) { return body.inputs[i]->emitted.at(body.context.serial()); };
  Lines lines = {{input(0), Line{1, Dim(0)}}};
  for (size_t i = 0; i < results.size(); ++i) {
    const auto begins = is_float(n.dtype(2 + i)) ? std::nullopt : n.sizes(2 + i);
    const auto grows = growth(graph, input(1 + i), results[i]);
    if (begins && begins->size() == 1 && grows) lines[input(1 + i)] = Line{*grows, begins->at(0)};
  }
  // The condition after the last step is not asked for.
  const ValueId go = body.context.capture(condition);
  if (!holds_until(graph, go, lines, *trips - Dim(2), bounds)) return std::nullopt;
  return trips;
}

}  // namespace

bool counts_in_one_axis(const GraphProto& body) {
  return !body.inputs.empty() && body.inputs[0].has_shape && body.inputs[0].shape.size() == 1;
}

void rolled_loop(NodeContext& n, const GraphProto& proto, size_t carried) {
  LoopBody body(n);
  std::vector<ValueRef> inputs = {body.add_input("iteration", {DType::i64, {}}), always()};
  if (counts_in_one_axis(proto)) inputs[0] = body.with_axis(inputs[0]);
  for (size_t i = 0; i < carried; ++i)
    inputs.push_back(body.add_input("carried_" + std::to_string(i), n.type(2 + i)));
  const std::vector<ValueRef> outputs = n.convert_body(proto, inputs, body.context);
  if (outputs.size() < 1 + carried)
    n.bad("body", std::to_string(1 + carried) + " outputs", std::to_string(outputs.size()));
  Graph& graph = body.context.graph();
  std::vector<ValueId> results;
  for (size_t i = 0; i < carried; ++i) results.push_back(body.result(n, outputs[1 + i], n.type(2 + i)));

  const auto goes_on = body.context.constant(*outputs[0]);
  const auto begins = n.has(1) ? n.constant(1) : always()->array;
  const auto is_true = [](const std::optional<Array>& array) {
    return array && array->count() == 1 && array->get_i64(0) != 0;
  };
  const std::optional<Dim> trips =
      is_true(goes_on) && is_true(begins) ? trip_count(n) : counted_trips(n, body, outputs[0], results);
  if (!trips) {
    for (size_t i = carried; i < n.output_count(); ++i)
      if (n.wants(i)) n.unsupported("per-step outputs of a loop whose length depends on data");
    const ValueId go = as_scalar(graph, body.context.capture(outputs[0]));
    graph.add_output(go, "go");
    for (ValueId id : results) graph.add_output(id, "out" + std::to_string(graph.outputs().size()));
    return add_while(n, body, carried);
  }
  std::vector<size_t> stacked;
  for (size_t i = carried; i + 1 < outputs.size(); ++i)
    if (n.wants(i)) {
      stacked.push_back(i);
      results.push_back(body.context.capture(outputs[1 + i]));
    }
  for (ValueId id : results) graph.add_output(id, "out" + std::to_string(graph.outputs().size()));
  std::vector<ValueId> initial;
  for (size_t i = 0; i < carried; ++i) initial.push_back(n.in(2 + i));
  const ValueId steps =
      n.add(Op::iota, {}, {{"shape", Shape{*trips}}, {"axis", int64_t{0}}, {"dtype", DType::i64}});
  const std::vector<ValueId> values = add_scan(n, body, carried, initial, {steps});
  for (size_t i = 0; i < carried; ++i) n.out(i, values[i]);
  for (size_t i = 0; i < stacked.size(); ++i) n.out(stacked[i], values[carried + i]);
}

void rolled_scan(NodeContext& n, const GraphProto& proto, size_t carried, const std::vector<ScanAxis>& in,
                 const std::vector<ScanAxis>& out) {
  LoopBody body(n);
  std::vector<ValueId> walked;
  for (size_t i = 0; i < in.size(); ++i) {
    std::vector<int64_t> perm = {in[i].axis};
    for (int64_t axis = 0; axis < n.rank(carried + i); ++axis)
      if (axis != in[i].axis) perm.push_back(axis);
    ValueId x = n.transpose(n.in(carried + i), perm);
    if (in[i].reverse) x = n.add(Op::reverse, {x}, {{"axes", std::vector<int64_t>{0}}});
    walked.push_back(x);
    Shape row = n.shape_of(x);
    row.erase(row.begin());
    body.add_input("row_" + std::to_string(i), {n.dtype(carried + i), row});
  }
  std::vector<ValueRef> inputs;
  std::vector<ValueId> initial;
  for (size_t i = 0; i < carried; ++i) {
    inputs.push_back(body.add_input("carried_" + std::to_string(i), n.type(i)));
    initial.push_back(n.in(i));
  }
  inputs.insert(inputs.end(), body.inputs.begin(),
                body.inputs.begin() + static_cast<std::ptrdiff_t>(in.size()));
  const std::vector<ValueRef> outputs = n.convert_body(proto, inputs, body.context);
  if (outputs.size() < carried + out.size())
    n.bad("body", "as many outputs as the node", std::to_string(outputs.size()));
  Graph& graph = body.context.graph();
  for (size_t i = 0; i < carried + out.size(); ++i)
    graph.add_output(i < carried ? body.result(n, outputs[i], n.type(i)) : body.context.capture(outputs[i]),
                     "out" + std::to_string(i));
  const std::vector<ValueId> values = add_scan(n, body, carried, initial, walked);
  for (size_t i = 0; i < carried; ++i) n.out(i, values[i]);
  for (size_t i = 0; i < out.size(); ++i) {
    if (!n.wants(carried + i)) continue;
    ValueId y = values[carried + i];
    if (out[i].reverse) y = n.add(Op::reverse, {y}, {{"axes", std::vector<int64_t>{0}}});
    const auto rank = static_cast<int64_t>(n.shape_of(y).size());
    std::vector<int64_t> perm;  // axis 0 goes to the wanted place
    for (int64_t axis = 1; axis < rank; ++axis) perm.push_back(axis);
    perm.insert(perm.begin() + n.axis(out[i].axis, rank), 0);
    n.out(carried + i, n.transpose(y, perm));
  }
}

}  // namespace aicf::onnx
