#include "compile/testing/random_halves.h"

#include <cmath>
#include <random>

namespace aicf::testing {
namespace {

class HalvesGenerator {
 public:
  HalvesGenerator(uint64_t seed, bool exact)
      : engine_(seed), exact_(exact), half_(pick(2) ? DType::f16 : DType::bf16) {
    rows_ = one_of({1, 3, 8, 33});
    columns_ = one_of({2, 8, 17, 64});
  }

  Program run() {
    for (int i = 0; i < 3; ++i) leaf("x", half_, {rows_, columns_});
    leaf("row", half_, {rows_, 1});
    leaf("column", half_, {columns_});
    for (int64_t i = 0, n = 4 + pick(20); i < n; ++i) step();
    for (const Node& node : graph_.nodes())
      for (ValueId id : node.results)
        if (is_float(graph_.dtype(id)) || graph_.dtype(id) == DType::boolean)
          graph_.add_output(id, "v" + std::to_string(id));
    Program program;
    program.entries.push_back(std::move(graph_));
    return program;
  }

 private:
  int64_t pick(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  template <typename T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[pick(static_cast<int64_t>(list.size()))];
  }

  ValueId leaf(const std::string& kind, DType dtype, const Shape& shape, bool joins = true) {
    const ValueId id = graph_.add_input(kind + std::to_string(leaves_++), {dtype, shape});
    if (joins) pool_.push_back(id);
    return id;
  }

  // A half; newer ones are likelier, so that chains form.
  ValueId any() {
    const auto n = static_cast<int64_t>(pool_.size());
    return pool_[static_cast<size_t>(pick(2) ? n - 1 - pick(std::min<int64_t>(n, 4)) : pick(n))];
  }
  // Of the whole shape.
  ValueId full() {
    for (int i = 0; i < 20; ++i)
      if (const ValueId id = any(); graph_.shape(id) == Shape{rows_, columns_}) return id;
    return pool_[0];
  }
  ValueId scalar(double value) { return graph_.add_constant(Array::scalar_f64(half_, value)); }
  ValueId add(Op op, std::vector<ValueId> operands, Attrs attrs = {}) {
    return graph_.add(op, std::move(operands), std::move(attrs));
  }
  void keep(ValueId id) { pool_.push_back(id); }

  void step() {
    switch (pick(exact_ ? 11 : 15)) {
      case 0:
        return keep(add(one_of({Op::neg, Op::abs, Op::relu, Op::sign, Op::floor, Op::round}), {any()}));
      case 1:
        return keep(add(Op::sqrt, {add(Op::abs, {any()})}));
      case 2:
      case 3:
      case 4:
        return keep(add(one_of({Op::add, Op::add, Op::sub, Op::mul, Op::mul, Op::div, Op::max, Op::min}),
                        {any(), pick(5) ? any() : scalar(one_of({0.1, 3.0, -1.7}))}));
      case 5:
        return compare();
      case 6:
        return cast();
      case 7:
        return keep(add(one_of({Op::reduce_max, Op::reduce_min}), {full()},
                        {{"axes", Ints{pick(2)}}, {"keepdims", true}}));
      case 8:
        return sum_of_two();
      case 9:
        return product(true);
      case 10:
        return pick(3) == 0 ? convolution() : clamp();
      case 11:
        return function();
      case 12:
        return norm();
      case 13:
        return keep(add(one_of({Op::reduce_sum, Op::reduce_mean, Op::reduce_logsumexp}), {full()},
                        {{"axes", Ints{pick(2)}}, {"keepdims", true}}));
      default:
        return product(false);
    }
  }

  // What a value is made of against the value itself, where one is rounded and the other is not.
  void compare() {
    const ValueId x = any(), y = any();
    const ValueId d = add(one_of({Op::sub, Op::add, Op::mul}), {x, y});
    const ValueId which = add(one_of({Op::ge, Op::lt, Op::eq, Op::ne}), {d, pick(2) ? x : any()});
    if (pick(2)) keep(d);
    keep(add(Op::select, {which, d, any()}));
  }

  void cast() {
    const DType other = one_of({DType::f32, DType::f32, half_ == DType::f16 ? DType::bf16 : DType::f16});
    ValueId x = add(Op::cast, {any()}, {{"dtype", other}});
    for (int64_t i = pick(3); i > 0; --i)
      x = add(one_of({Op::add, Op::mul}), {x, add(Op::cast, {any()}, {{"dtype", other}})});
    keep(add(Op::cast, {x}, {{"dtype", half_}}));
  }

  void sum_of_two() {
    const ValueId part = add(Op::slice, {full()},
                             {{"starts", Shape{0, 0}}, {"limits", Shape{rows_, 2}}, {"steps", Ints{1, 1}}});
    keep(add(one_of({Op::reduce_sum, Op::reduce_prod}), {part}, {{"axes", Ints{1}}, {"keepdims", true}}));
  }

  void clamp() { keep(add(Op::clamp, {any(), scalar(-0.7), scalar(1.3)})); }

  void product(bool selects) {
    const ValueId w = leaf(selects ? "selects" : "w", half_, {columns_, columns_}, false);
    const ValueId x = full();
    if (pick(2)) return keep(add(Op::matmul, {x, w}));
    keep(add(Op::linear, {x, w, leaf("bias", half_, {columns_}, false)}));
  }

  void convolution() {
    const Shape image = {1, columns_, 3, 2};
    const ValueId x = leaf("image", half_, image, false), other = leaf("image", half_, image, false);
    const ValueId w = leaf("selects", half_, {columns_, columns_, 1, 1}, false);
    const ValueId bias = leaf("bias", half_, {columns_}, false);
    const ValueId y = add(Op::conv, {x, w, pick(2) ? bias : kNoValue},
                          {{"strides", Ints{1, 1}}, {"pads", Ints{0, 0, 0, 0}}, {"dilations", Ints{1, 1}}});
    const ValueId z = add(one_of({Op::add, Op::mul, Op::sub}), {y, other});
    add(Op::select, {add(one_of({Op::ge, Op::eq}), {z, y}), add(Op::relu, {z}), other});
  }

  void function() {
    const Op op = one_of({Op::exp, Op::tanh, Op::erf, Op::sigmoid, Op::silu, Op::gelu, Op::gelu, Op::softplus,
                          Op::sin, Op::elu});
    const Attrs tanh = {{"approximate", std::string("tanh")}};
    keep(add(op, {any()}, op == Op::gelu && pick(2) ? tanh : Attrs()));
  }

  void norm() {
    switch (pick(4)) {
      case 0:
        return keep(add(Op::softmax, {full()}));
      case 1:
        return keep(add(Op::log_softmax, {full()}));
      case 2:
        return keep(add(Op::rms_norm, {full(), leaf("scale", half_, {columns_}, false)}));
      default:
        return keep(add(Op::layer_norm, {full(), leaf("scale", half_, {columns_}, false),
                                         leaf("bias", half_, {columns_}, false)}));
    }
  }

  std::mt19937_64 engine_;
  const bool exact_;
  const DType half_;
  int64_t rows_ = 1, columns_ = 1, leaves_ = 0;
  Graph graph_{"main"};
  std::vector<ValueId> pool_;  // halves of two axes, or one
};

}  // namespace

Program random_halves(uint64_t seed, bool exact) { return HalvesGenerator(seed, exact).run(); }

std::map<std::string, Array> inputs_of_halves(const Program& program, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  std::map<std::string, Array> inputs;
  const Graph& graph = program.entries[0];
  for (ValueId id : graph.inputs()) {
    const std::string& name = graph.value(id).name;
    Array array(graph.dtype(id), evaluate(graph.shape(id), {}));
    if (!name.starts_with("selects"))
      for (int64_t i = 0; i < array.count(); ++i) array.set_f64(i, normal(engine));
    // One number that is not zero for each column of a product, each map of a convolution.
    for (int64_t i = 0, n = array.sizes()[0]; name.starts_with("selects") && i < n; ++i) {
      const auto other = static_cast<int64_t>(engine() % static_cast<uint64_t>(n));
      array.set_f64(array.rank() == 2 ? other * n + i : i * n + other, normal(engine));
    }
    inputs.emplace(name, std::move(array));
  }
  return inputs;
}

Program with_outputs(const Program& program, uint64_t bits) {
  const Graph& all = program.entries[0];
  Graph some("main");
  std::vector<ValueId> inputs;
  for (ValueId id : all.inputs()) inputs.push_back(some.add_input(all.value(id).name, all.type(id)));
  const std::vector<ValueId> outputs = inline_body(some, all, inputs);
  for (size_t i = 0; i < outputs.size(); ++i)
    if (i + 1 == outputs.size() || (bits >> (i % 64) & 1) != 0)
      some.add_output(outputs[i], all.output_names()[i]);
  Program result;
  result.entries.push_back(std::move(some));
  return result;
}

}  // namespace aicf::testing
