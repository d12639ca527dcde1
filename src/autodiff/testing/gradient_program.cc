#include "autodiff/gradients.h"
#include "autodiff/testing/gradient_cases.h"
#include "base/splitmix.h"

namespace aicf::testing {
namespace {

using Kind = GradientOperand::Kind;

DType operand_dtype(Kind kind, DType dtype) {
  if (kind == Kind::kIndex) return DType::i64;
  if (kind == Kind::kIndex32) return DType::i32;
  return kind == Kind::kBool ? DType::boolean : dtype;
}

Dim symbolic_size(const GradientCase& test, int64_t size, bool symbolic) {
  const auto known = test.symbols.find(size);
  return symbolic && known != test.symbols.end() ? Dim::symbol(known->second) : Dim(size);
}

Shape symbolic_shape(const GradientCase& test, const std::vector<int64_t>& sizes, bool symbolic) {
  Shape shape;
  for (int64_t size : sizes) shape.push_back(symbolic_size(test, size, symbolic));
  return shape;
}

Attrs symbolic_attrs(const GradientCase& test, bool symbolic) {
  Attrs attrs;
  for (const auto& [name, value] : test.attrs.items()) {
    Attr copy = value;
    if (Shape* shape = std::get_if<Shape>(&copy))
      for (Dim& size : *shape) size = symbolic_size(test, size.constant_part(), symbolic);
    attrs.set(name, copy);
  }
  return attrs;
}

// The element count of each float result, found on the static form.
std::vector<std::vector<int64_t>> result_sizes(const GradientCase& test) {
  Graph graph;
  std::vector<ValueId> operands;
  for (const GradientOperand& operand : test.operands)
    operands.push_back(
        operand.kind == Kind::kAbsent
            ? kNoValue
            : graph.add_constant(Array(operand_dtype(operand.kind, DType::f64), operand.sizes)));
  const NodeId node = graph.add_node(test.op, operands, test.attrs, test.bodies);
  std::vector<std::vector<int64_t>> sizes;
  for (ValueId result : graph.node(node).results)
    if (is_float(graph.dtype(result))) sizes.push_back(evaluate(graph.shape(result), {}));
  return sizes;
}

// sum(x * weights), in f32 or wider.
ValueId weighted_sum(Graph& graph, ValueId x, ValueId weights) {
  if (!(graph.dtype(x) == graph.dtype(weights)))
    x = graph.add(Op::cast, {x}, {{"dtype", graph.dtype(weights)}});
  Ints axes;
  for (size_t i = 0; i < graph.shape(x).size(); ++i) axes.push_back(static_cast<int64_t>(i));
  const ValueId product = graph.add(Op::mul, {x, weights});
  return graph.add(Op::reduce_sum, {product}, {{"axes", axes}});
}

Array random_array(DType dtype, const std::vector<int64_t>& sizes, double lo, double hi, SplitMix& random) {
  Array array(dtype, sizes);
  for (int64_t i = 0; i < array.count(); ++i) {
    if (is_float(dtype)) {
      array.set_f64(i, lo + (hi - lo) * random.unit());
    } else {
      const auto span = static_cast<uint64_t>(hi - lo + 1);
      array.set_i64(i, static_cast<int64_t>(lo) + static_cast<int64_t>(random.next() % span));
    }
  }
  return array;
}

}  // namespace

Program gradient_program(const GradientCase& test, DType dtype, bool symbolic, bool loss_only) {
  Program program;
  Graph graph;
  std::vector<ValueId> operands, wanted;
  for (const GradientOperand& operand : test.operands) {
    ValueId id = kNoValue;
    if (operand.kind != Kind::kAbsent)
      id = graph.add_input(
          "x" + std::to_string(operands.size()),
          {operand_dtype(operand.kind, dtype), symbolic_shape(test, operand.sizes, symbolic)});
    operands.push_back(id);
    if (operand.kind == Kind::kWanted) wanted.push_back(id);
  }
  const NodeId node = graph.add_node(test.op, operands, symbolic_attrs(test, symbolic), test.bodies);
  const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  const std::vector<ValueId> results = graph.node(node).results;
  ValueId loss = kNoValue;
  int sums = 0;
  for (ValueId result : results) {
    if (!is_float(graph.dtype(result))) continue;
    const Shape shape = graph.shape(result);
    const ValueId weights = graph.add_input("w" + std::to_string(sums++), {wide, shape});
    const ValueId sum = weighted_sum(graph, result, weights);
    loss = loss == kNoValue ? sum : graph.add(Op::add, {loss, sum});
  }
  graph.add_output(loss, "loss");
  if (loss_only) wanted.clear();
  const std::vector<ValueId> gradients = add_gradients(graph, loss, wanted, {kNoValue, true});
  for (size_t i = 0; i < wanted.size(); ++i)
    graph.add_output(gradients[i], "d_" + graph.value(wanted[i]).name);
  // Windows fit into the sizes of the case, and need not fit into smaller ones.
  const bool windows = test.op == Op::conv || test.op == Op::max_pool || test.op == Op::avg_pool;
  if (symbolic)
    for (const auto& [size, name] : test.symbols) program.sizes[name] = {windows ? size : 0, 64};
  program.entries.push_back(std::move(graph));
  return program;
}

std::map<std::string, Array> gradient_inputs(const GradientCase& test, uint64_t seed) {
  SplitMix random(seed);
  std::map<std::string, Array> inputs;
  for (size_t i = 0; i < test.operands.size(); ++i) {
    const GradientOperand& operand = test.operands[i];
    if (operand.kind == Kind::kAbsent) continue;
    const DType dtype = operand_dtype(operand.kind, DType::f64);
    inputs["x" + std::to_string(i)] = operand.values.empty()
                                          ? random_array(dtype, operand.sizes, operand.lo, operand.hi, random)
                                          : Array::from<double>(dtype, operand.sizes, operand.values);
  }
  int index = 0;
  for (const std::vector<int64_t>& sizes : result_sizes(test))
    inputs["w" + std::to_string(index++)] = random_array(DType::f64, sizes, -1, 1, random);
  return inputs;
}

}  // namespace aicf::testing
