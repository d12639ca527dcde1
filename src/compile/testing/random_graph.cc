#include "compile/testing/random_graph.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "base/error.h"
#include "compile/testing/random_pool.h"
#include "ir/specialise.h"

namespace aicf::testing {
namespace {

class Generator : RandomPool {
 public:
  explicit Generator(uint64_t seed) : RandomPool(seed) {}

  Program run() {
    symbolic_ = chance(0.5);
    if (symbolic_) program_.sizes["batch"] = {chance(0.2) ? 0 : 1, kMaxBatch};
    for (int64_t i = 0, n = 1 + pick(3); i < n; ++i) pool_.push_back(leaf(some_dtype(), some_shape()));
    if (chance(0.3)) add_state();
    const int64_t wanted = 3 + pick(28);
    for (int tries = 0; static_cast<int64_t>(graph_.nodes().size()) < wanted && tries < 200; ++tries) {
      try {
        step();
      } catch (const UserError&) {
        // The op table refuses this combination; another is drawn.
      }
    }
    finish();
    program_.entries.push_back(std::move(graph_));
    return std::move(program_);
  }

 private:
  void step() {
    switch (pick(16)) {
      case 0:
      case 1:
        return unary();
      case 2:
      case 3:
      case 4:
        return binary();
      case 5:
        return cast();
      case 6:
      case 7:
      case 8:
        return view();
      case 9:
        return move();
      case 10:
      case 11:
        return reduce();
      case 12:
        return order();
      case 13:
        return contract();
      case 14:
        return composite();
      default:
        return chance(0.5) ? window() : select();
    }
  }

  void unary() {
    const ValueId x = any();
    const DType t = graph_.dtype(x);
    if (t == DType::boolean) return void(emit(Op::logical_not, {x}));
    if (is_integer(t)) return void(emit(one_of({Op::neg, Op::abs, Op::sign, Op::bit_not, Op::relu}), {x}));
    emit(one_of({Op::neg,        Op::abs,   Op::sign,       Op::exp,    Op::expm1,  Op::log,
                 Op::log1p,      Op::sqrt,  Op::rsqrt,      Op::sin,    Op::cos,    Op::tan,
                 Op::asin,       Op::acos,  Op::atan,       Op::sinh,   Op::cosh,   Op::tanh,
                 Op::asinh,      Op::acosh, Op::atanh,      Op::erf,    Op::floor,  Op::ceil,
                 Op::trunc,      Op::round, Op::round_tf32, Op::is_nan, Op::is_inf, Op::relu,
                 Op::leaky_relu, Op::elu,   Op::sigmoid,    Op::silu,   Op::gelu,   Op::softplus}),
         {x});
  }
  void binary() {
    const ValueId x = any();
    const DType t = graph_.dtype(x);
    ValueId y = partner(x, t);
    ValueId a = x;
    if (chance(0.3)) std::swap(a, y);
    if (t == DType::boolean)
      return void(emit(one_of({Op::bit_and, Op::bit_or, Op::bit_xor, Op::eq, Op::ne}), {a, y}));
    if (chance(0.15)) return void(emit(one_of({Op::eq, Op::ne, Op::lt, Op::le, Op::gt, Op::ge}), {a, y}));
    if (is_integer(t))
      return void(
          emit(one_of({Op::add, Op::sub, Op::mul, Op::div, Op::rem, Op::mod, Op::pow, Op::max, Op::min,
                       Op::bit_and, Op::bit_or, Op::bit_xor, Op::shift_left, Op::shift_right}),
               {a, y}));
    emit(one_of({Op::add, Op::add, Op::sub, Op::mul, Op::mul, Op::div, Op::rem, Op::mod, Op::pow, Op::atan2,
                 Op::max, Op::min}),
         {a, y});
  }
  void cast() { emit(Op::cast, {any()}, {{"dtype", some_dtype()}}); }
  void select() {
    const ValueId x = any();
    emit(Op::select, {partner(x, DType::boolean), x, partner(x, graph_.dtype(x))});
  }

  void view() {
    const ValueId x = any();
    const Shape& shape = graph_.shape(x);
    const auto rank = std::ssize(shape);
    switch (pick(5)) {
      case 0:
        return reshape(x);
      case 1: {
        Ints perm(static_cast<size_t>(rank));
        std::iota(perm.begin(), perm.end(), 0);
        std::shuffle(perm.begin(), perm.end(), engine_);
        return void(emit(Op::transpose, {x}, {{"perm", perm}}));
      }
      case 2: {
        Shape wider = shape;
        for (Dim& dim : wider)
          if (dim == Dim(1)) dim = Dim(some_size());
        if (wider.size() < 4 && chance(0.5)) wider.insert(wider.begin(), Dim(2 + pick(2)));
        if (count(wider) > kMaxElements) return;
        return void(emit(Op::broadcast_to, {x}, {{"shape", wider}}));
      }
      case 3: {
        Shape starts, limits;
        Ints steps;
        for (const Dim& dim : shape) {
          const int64_t low = evaluate(
              dim, SymbolValues{{"batch", program_.sizes.count("batch") ? program_.sizes["batch"].lo : 1}});
          const int64_t cut = low > 0 && chance(0.5) ? pick(low) : 0;
          const int64_t end = low > cut && chance(0.4) ? pick(low - cut) : 0;
          starts.push_back(Dim(cut));
          limits.push_back(dim - Dim(end));
          steps.push_back(chance(0.2) ? 2 + pick(2) : 1);
        }
        return void(emit(Op::slice, {x}, {{"starts", starts}, {"limits", limits}, {"steps", steps}}));
      }
      default: {
        Ints axes;
        for (int64_t i = 0; i < rank; ++i)
          if (chance(0.5)) axes.push_back(i);
        return void(emit(Op::reverse, {x}, {{"axes", axes}}));
      }
    }
  }
  void reshape(ValueId x) {
    Shape shape = graph_.shape(x);
    if (shape.size() >= 2 && chance(0.5)) {
      const auto at = static_cast<size_t>(pick(std::ssize(shape) - 1));
      shape[at] = shape[at] * shape[at + 1];
      shape.erase(shape.begin() + static_cast<int64_t>(at) + 1);
    } else if (!shape.empty() && chance(0.6)) {
      const auto at = static_cast<size_t>(axis_of(x));
      const int64_t by = one_of<int64_t>({2, 3, 4});
      const auto part = divide_exactly(shape[at], Dim(by));
      if (!part || shape.size() >= 5) return;
      shape[at] = *part;
      shape.insert(shape.begin() + static_cast<int64_t>(at) + pick(2), Dim(by));
    } else if (shape.size() < 5) {
      shape.insert(shape.begin() + pick(std::ssize(shape) + 1), Dim(1));
    }
    emit(Op::reshape, {x}, {{"shape", shape}});
  }

  void move() {
    const ValueId x = ranked("any");
    const Shape shape = graph_.shape(x);
    const int64_t axis = axis_of(x);
    const Dim& size = shape[static_cast<size_t>(axis)];
    switch (pick(4)) {
      case 0: {
        std::vector<ValueId> parts = {x, x};
        Shape other = shape;
        other[static_cast<size_t>(axis)] = Dim(some_size());
        parts[static_cast<size_t>(pick(2))] = leaf(graph_.dtype(x), other);
        if (chance(0.3)) parts.push_back(x);
        return void(emit(Op::concat, parts, {{"axis", axis}}));
      }
      case 1: {
        Shape low, high;
        for (size_t i = 0; i < shape.size(); ++i) {
          low.push_back(Dim(pick(3)));
          high.push_back(Dim(pick(3)));
        }
        const bool valued = chance(0.5);
        std::vector<ValueId> operands = {x};
        if (valued) operands.push_back(leaf(graph_.dtype(x), {}));
        return void(
            emit(Op::pad, operands, {{"low", low}, {"high", high}, {"mode", std::string("constant")}}));
      }
      case 2: {
        if (evaluate(size, SymbolValues{{"batch", 1}}) < 1 ||
            (!size.is_constant() && program_.sizes["batch"].lo == 0))
          return;
        const DType t = one_of({DType::i64, DType::i32});
        Shape picks;
        for (int64_t i = 0, n = pick(3); i < n; ++i) picks.push_back(Dim(1 + pick(4)));
        return void(emit(Op::gather, {x, graph_.add_input("index" + std::to_string(next_++), {t, picks})},
                         {{"axis", axis}}));
      }
      default:
        return void(emit(
            Op::iota, {},
            {{"shape", shape}, {"axis", axis}, {"dtype", one_of({DType::f32, DType::i64, DType::i32})}}));
    }
  }

  void reduce() {
    const ValueId x = ranked("any");
    Ints axes;
    for (int64_t i = 0; i < graph_.type(x).rank(); ++i)
      if (chance(0.5)) axes.push_back(i);
    if (axes.empty()) axes.push_back(axis_of(x));
    const Attrs attrs = {{"axes", axes}, {"keepdims", chance(0.5)}};
    const DType t = graph_.dtype(x);
    if (t == DType::boolean) return void(emit(one_of({Op::reduce_max, Op::reduce_min}), {x}, attrs));
    if (is_integer(t))
      return void(
          emit(one_of({Op::reduce_sum, Op::reduce_prod, Op::reduce_max, Op::reduce_min, Op::reduce_mean}),
               {x}, attrs));
    emit(one_of({Op::reduce_sum, Op::reduce_sum, Op::reduce_prod, Op::reduce_max, Op::reduce_min,
                 Op::reduce_mean, Op::reduce_logsumexp}),
         {x}, attrs);
  }
  void order() {
    const ValueId x = ranked("number");
    const int64_t axis = axis_of(x);
    switch (pick(4)) {
      case 0: {
        if (bounds(graph_.shape(x)[static_cast<size_t>(axis)], program_.sizes).lo < 1) return;
        return void(emit(one_of({Op::argmax, Op::argmin}), {x},
                         {{"axis", axis}, {"keepdims", chance(0.5)}, {"select_last", chance(0.5)}}));
      }
      case 1:
        return void(emit(Op::sort, {x}, {{"axis", axis}, {"descending", chance(0.5)}}));
      default:
        return void(emit(one_of({Op::cumsum, Op::cumsum, Op::cumprod}), {x},
                         {{"axis", axis}, {"exclusive", chance(0.3)}, {"reverse", chance(0.3)}}));
    }
  }
  void contract() {
    const ValueId x = such([&](ValueId id) {
      return graph_.type(id).rank() >= 2 && dtype_in_class(graph_.dtype(id), "number");
    });
    const bool tx = chance(0.3), ty = chance(0.3);
    const Shape& shape = graph_.shape(x);
    const Dim k = shape[shape.size() - (tx ? 2 : 1)], n(some_size());
    Shape other = ty ? Shape{n, k} : Shape{k, n};
    if (shape.size() > 2 && chance(0.4))
      other.insert(other.begin(), chance(0.5) ? shape[shape.size() - 3] : Dim(1));
    if (other.size() == 2 && chance(0.3)) other.insert(other.begin(), Dim(2));
    const ValueId y = leaf(graph_.dtype(x), other);
    const ValueId out = emit(Op::matmul, {x, y}, {{"transpose_x", tx}, {"transpose_y", ty}});
    if (chance(0.5)) emit(one_of({Op::add, Op::mul, Op::max}), {out, leaf(graph_.dtype(x), {n})});
  }
  void composite() {
    const ValueId x = ranked("float");
    const int64_t axis = axis_of(x);
    switch (pick(4)) {
      case 0:
        return void(emit(Op::softmax, {x}, {{"axis", axis}}));
      case 1:
        return void(emit(Op::log_softmax, {x}, {{"axis", axis}}));
      case 2:
        return void(emit(Op::rms_norm, {x}, {{"axis", int64_t{-1}}}));
      default: {
        const Dim last = graph_.shape(x).back();
        std::vector<ValueId> operands = {x};
        if (last.is_constant() && chance(0.7)) operands.push_back(leaf(graph_.dtype(x), {last}));
        return void(emit(Op::layer_norm, operands, {{"axis", int64_t{-1}}}));
      }
    }
  }
  void window() {
    const DType t = chance(0.7) ? DType::f32 : one_of({DType::f16, DType::bf16, DType::f64});
    const Dim n = symbolic_ ? Dim::symbol("batch") : Dim(1 + pick(3));
    const ValueId x = keep(leaf(t, {n, Dim(4), Dim(5 + pick(5)), Dim(5 + pick(5))}));
    const Ints strides = {1 + pick(2), 1 + pick(2)}, dilations = {1 + pick(2), 1 + pick(2)};
    const Ints pads = {pick(2), pick(2), pick(2), pick(2)};
    if (chance(0.5)) {
      const int64_t groups = one_of<int64_t>({1, 1, 2, 4});
      const int64_t m = one_of<int64_t>({4, 8});
      std::vector<ValueId> operands = {
          x, leaf(t, {Dim(m), Dim(4 / groups), Dim(1 + pick(3)), Dim(1 + pick(3))})};
      if (chance(0.5)) operands.push_back(leaf(t, {Dim(m)}));
      return void(emit(Op::conv, operands,
                       {{"strides", strides}, {"pads", pads}, {"dilations", dilations}, {"groups", groups}}));
    }
    Attrs attrs = {{"kernel", Ints{2, 2 + pick(2)}},
                   {"strides", strides},
                   {"pads", pads},
                   {"dilations", dilations},
                   {"ceil_mode", chance(0.3)}};
    emit(one_of({Op::max_pool, Op::avg_pool}), {x}, attrs);
  }

  void finish() {
    if (state_ != kNoValue) {
      const DType t = graph_.dtype(state_);
      ValueId next = kNoValue;
      for (ValueId id : pool_)
        if (graph_.type(id) == graph_.type(state_) && chance(0.5)) next = id;
      if (next == kNoValue)
        next = graph_.add(t == DType::boolean ? Op::bit_xor : Op::add, {state_, leaf(t, {})});
      graph_.add_update(state_, next);
    }
    const std::vector<int> uses = graph_.use_counts();
    std::set<ValueId> outputs = {pool_.back()};
    for (ValueId id : pool_)
      if (chance(uses[static_cast<size_t>(id)] == 0 ? 0.7 : 0.1)) outputs.insert(id);
    int number = 0;
    for (ValueId id : outputs) graph_.add_output(id, "y" + std::to_string(number++));
  }
};

}  // namespace

Program random_program(uint64_t seed) { return Generator(seed).run(); }

std::map<std::string, Array> random_inputs(const Program& program, int64_t batch, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::map<std::string, Array> inputs;
  const Graph& graph = program.entries[0];
  for (ValueId id : graph.inputs()) {
    const Value& value = graph.value(id);
    inputs[value.name] =
        random_contents(value.type.dtype, evaluate(value.type.shape, SymbolValues{{"batch", batch}}), engine,
                        value.name.starts_with("index"));
  }
  return inputs;
}

Program with_batch(const Program& program, int64_t batch) {
  Program out;
  out.variables = program.variables;
  out.entries.push_back(specialise(program.entries[0], {{"batch", batch}}));
  return out;
}

}  // namespace aicf::testing
