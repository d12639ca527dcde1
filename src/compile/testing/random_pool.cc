#include "compile/testing/random_pool.h"

#include <algorithm>

#include "compile/testing/random_graph.h"

namespace aicf::testing {

Array random_contents(DType dtype, const std::vector<int64_t>& sizes, std::mt19937_64& engine, bool index) {
  std::normal_distribution<double> normal;
  Array array(dtype, sizes);
  for (int64_t i = 0; i < array.count(); ++i) {
    if (is_float(dtype))
      array.set_f64(i, normal(engine));
    else if (index)
      array.set_i64(i, -static_cast<int64_t>(engine() % 2));
    else
      array.set_i64(i, static_cast<int64_t>(engine() % 7) - (dtype == DType::u8 ? 0 : 3));
  }
  return array;
}

namespace {

bool is_static(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](const Dim& d) { return d.is_constant(); });
}

}  // namespace

DType RandomPool::some_dtype() {
  if (chance(0.55)) return DType::f32;
  return one_of({DType::f64, DType::f16, DType::bf16, DType::i64, DType::i64, DType::i32, DType::i32,
                 DType::i16, DType::i8, DType::u8, DType::boolean});
}

Shape RandomPool::some_shape() {
  Shape shape;
  for (int64_t i = 0, n = chance(0.1) ? 0 : 1 + pick(4); i < n; ++i) shape.push_back(some_size());
  if (symbolic_ && !shape.empty() && chance(0.8))
    shape[chance(0.7) ? 0 : static_cast<size_t>(pick(std::ssize(shape)))] = Dim::symbol("batch");
  while (count(shape) > kMaxElements) shape.pop_back();
  return shape;
}

int64_t RandomPool::count(const Shape& shape) const {
  int64_t n = 1;
  for (const Dim& dim : shape) n *= std::max<int64_t>(1, evaluate(dim, SymbolValues{{"batch", kMaxBatch}}));
  return n;
}

ValueId RandomPool::leaf(DType dtype, const Shape& shape) {
  const std::string number = std::to_string(next_++);
  if (!is_static(shape) || chance(0.4)) return graph_.add_input("x" + number, {dtype, shape});
  const std::vector<int64_t> sizes = evaluate(shape, SymbolValues{});
  if (chance(0.3)) return graph_.add_constant(random_contents(dtype, sizes, engine_));
  const std::string name = "p" + number;
  program_.variables[name] = {name, Role::kParam, {dtype, shape}, random_contents(dtype, sizes, engine_)};
  return graph_.add_param(name, {dtype, shape});
}

void RandomPool::add_state() {
  Shape shape = some_shape();
  for (Dim& dim : shape)
    if (!dim.is_constant()) dim = Dim(3);
  const DType dtype = some_dtype();
  program_.variables["s"] = {
      "s", Role::kState, {dtype, shape}, random_contents(dtype, evaluate(shape, SymbolValues{}), engine_)};
  state_ = graph_.add_state("s", {dtype, shape});
  pool_.push_back(state_);
}

ValueId RandomPool::any() {
  const int64_t n = std::ssize(pool_);
  return pool_[static_cast<size_t>(chance(0.6) ? n - 1 - pick(std::min<int64_t>(n, 3)) : pick(n))];
}

ValueId RandomPool::ranked(std::string_view type_class) {
  return such(
      [&](ValueId id) { return graph_.type(id).rank() > 0 && dtype_in_class(graph_.dtype(id), type_class); });
}

ValueId RandomPool::partner(ValueId x, DType dtype) {
  if (chance(0.5))
    for (ValueId id : pool_)
      if (graph_.dtype(id) == dtype && graph_.shape(id) == graph_.shape(x) && id != x && chance(0.5))
        return id;
  Shape shape = graph_.shape(x);
  if (chance(0.4) && !shape.empty()) shape.erase(shape.begin(), shape.begin() + pick(std::ssize(shape) + 1));
  for (Dim& dim : shape)
    if (chance(0.2)) dim = Dim(1);
  return leaf(dtype, shape);
}

ValueId RandomPool::keep(ValueId id) {
  if (count(graph_.shape(id)) <= kMaxElements) pool_.push_back(id);
  return id;
}

ValueId RandomPool::emit(Op op, std::vector<ValueId> operands, Attrs attrs) {
  const NodeId node = graph_.add_node(op, std::move(operands), std::move(attrs));
  for (ValueId id : graph_.node(node).results) keep(id);
  return graph_.node(node).results[0];
}

}  // namespace aicf::testing
