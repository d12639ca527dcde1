// Elementwise arithmetic, comparison, logic and casts.
#include <cstring>

#include "import/onnx_ops/carried.h"
#include "import/onnx_ops/registry.h"
#include "import/onnx_ops/small_floats.h"

namespace aicf::onnx {
namespace {

template <Op op>
void unary(NodeContext& n) {
  n.out(0, n.add(op, {n.in(0)}));
}

template <Op op>
void binary(NodeContext& n) {
  n.out(0, n.add(op, {n.in(0), n.in(1)}));
}

// Sum, Max, Min over any number of operands, left to right.
template <Op op>
void variadic(NodeContext& n) {
  ValueId x = n.in(0);
  for (size_t i = 1; i < n.input_count(); ++i) x = n.add(op, {x, n.in(i)});
  n.out(0, x);
}

void mean(NodeContext& n) {
  ValueId x = n.in(0);
  for (size_t i = 1; i < n.input_count(); ++i) x = n.add(Op::add, {x, n.in(i)});
  n.out(0, n.add(Op::div, {x, n.scalar(n.dtype(0), static_cast<double>(n.input_count()))}));
}

bool is_u64(NodeContext& n, size_t i) { return n.carried(i) && n.carried(i)->bits == 64; }

// Base and exponent may have different types; the result has the base's.
void power(NodeContext& n) {
  const DType base = n.dtype(0), exponent = n.dtype(1);
  if (is_float(base) && is_u64(n, 1)) {
    n.out(0, n.add(Op::pow, {n.in(0), unsigned_number(n, n.in(1), base)}));
  } else if (is_u64(n, 0) && is_float(exponent)) {
    n.unsupported("UINT64 to a power that is no integer");
  } else if (base == exponent || is_float(base)) {
    n.out(0, n.add(Op::pow, {n.in(0), n.cast(n.in(1), base)}));
  } else if (is_float(exponent)) {
    n.out(0, n.cast(n.add(Op::pow, {n.cast(n.in(0), DType::f64), n.cast(n.in(1), DType::f64)}), base));
  } else {
    n.out(0, n.cast(n.add(Op::pow, {n.cast(n.in(0), DType::i64), n.cast(n.in(1), DType::i64)}), base));
  }
}

void divide(NodeContext& n) {
  n.out(0, is_u64(n, 0) ? unsigned_quotient(n, n.in(0), n.in(1)) : n.add(Op::div, {n.in(0), n.in(1)}));
}

void modulo(NodeContext& n) {
  if (is_u64(n, 0)) {
    n.ignore("fmod");
    const ValueId whole = n.add(Op::mul, {unsigned_quotient(n, n.in(0), n.in(1)), n.in(1)});
    return n.out(0, n.add(Op::sub, {n.in(0), whole}));
  }
  n.out(0, n.add(n.attr_int("fmod", 0) != 0 ? Op::rem : Op::mod, {n.in(0), n.in(1)}));
}

void reciprocal(NodeContext& n) { n.out(0, n.add(Op::div, {n.scalar(n.dtype(0), 1.0), n.in(0)})); }

void bit_shift(NodeContext& n) {
  const std::string direction = n.attr_str("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") n.bad("attribute 'direction'", "LEFT or RIGHT", direction);
  ValueId y = n.add(direction == "LEFT" ? Op::shift_left : Op::shift_right, {n.in(0), n.in(1)});
  if (direction == "RIGHT" && is_u64(n, 0)) {
    // The sign came in from above; it is no sign.
    const auto number = [&](int64_t value) { return n.iscalar(DType::i64, value); };
    const ValueId rest = n.add(Op::sub, {number(64), n.in(1)});
    y = n.add(Op::bit_and, {y, n.add(Op::bit_not, {n.add(Op::shift_left, {number(-1), rest})})});
  }
  n.out(0, y);
}

void is_inf(NodeContext& n) {
  n.out(0, n.add(Op::is_inf, {n.in(0)},
                 {{"positive", n.attr_int("detect_positive", 1) != 0},
                  {"negative", n.attr_int("detect_negative", 1) != 0}}));
}

void clip(NodeContext& n) {
  ValueId x = n.in(0);
  if (n.has(1) && n.has(2))
    return n.out(0, n.add(Op::clamp, {x, n.reshape(n.in(1), {}), n.reshape(n.in(2), {})}));
  if (n.has(1)) x = n.add(Op::max, {x, n.reshape(n.in(1), {})});
  if (n.has(2)) x = n.add(Op::min, {x, n.reshape(n.in(2), {})});
  n.out(0, x);
}

void cast_to(NodeContext& n, DType dtype, const CarriedType* carried) {
  const bool saturate = n.attr_int("saturate", 1) != 0;
  n.ignore("round_mode");  // of FLOAT8E8M0, which is read only
  const CarriedType* from = n.carried(0);
  const ValueId x = from && from->format ? decoded(n, n.in(0), *from) : n.in(0);
  if (carried && carried->format) return out_carried(n, 0, encoded(n, x, *carried, saturate), *carried);
  if (is_u64(n, 0) && is_float(dtype)) return n.out(0, unsigned_number(n, n.in(0), dtype));
  if (carried) return out_carried(n, 0, cast_to_carried(n, x, *carried), *carried);
  n.out(0, n.cast(x, dtype));
}

void cast(NodeContext& n) {
  const int code = static_cast<int>(n.attr_int("to"));
  const auto dtype = storage_dtype(code);
  if (!dtype) n.unsupported("data type " + data_type_name(code));
  cast_to(n, *dtype, carried_type(code));
}

void cast_like(NodeContext& n) { cast_to(n, n.dtype(1), n.carried(1)); }

// The bits of an integer as another of as many bits. Bits of floats are not numbers that the IR reads: only
// those of constants.
void bit_cast(NodeContext& n) {
  const int code = static_cast<int>(n.attr_int("to"));
  const auto dtype = storage_dtype(code);
  if (!dtype) n.unsupported("data type " + data_type_name(code));
  const CarriedType *from = n.carried(0), *to = carried_type(code);
  const int bits = from ? from->bits : 8 * dtype_bytes(n.dtype(0)),
            wanted = to ? to->bits : 8 * dtype_bytes(*dtype);
  if (bits != wanted) n.bad("to", "a type of " + std::to_string(bits) + " bits", data_type_name(code));
  if (!is_float(n.dtype(0)) && !is_float(*dtype)) return cast_to(n, *dtype, to);
  const auto known = n.constant(0);
  if (!known || from || to) n.unsupported("the bits of a float that is not constant");
  Array array(*dtype, known->sizes());
  std::memcpy(array.mutable_data(), known->data(), static_cast<size_t>(array.bytes()));
  n.out_array(0, std::move(array));
}

void where(NodeContext& n) { n.out(0, n.add(Op::select, {n.in(0), n.in(1), n.in(2)})); }

void identity(NodeContext& n) { n.out(0, n.any(0)); }

// Inference: the identity and, if asked for, a mask of ones.
void dropout(NodeContext& n) {
  n.ignore("seed");
  n.ignore_input(1);  // the ratio
  if (n.has(2)) {
    const auto training = n.constant(2);
    if (!training) n.unsupported("training_mode that is not constant");
    const auto ratio = n.has(1) ? n.constant(1) : Array::scalar_f64(DType::f32, 0.5);
    if (training->count() != 1 || (ratio && ratio->count() != 1))
      n.bad("ratio and training_mode", "one element each", "others");
    if (training->get_i64(0) != 0 && (!ratio || ratio->get_f64(0) != 0)) n.unsupported("training_mode=1");
  }
  n.out(0, n.ref(0));
  // The mask had the type of x before 10.
  if (n.wants(1))
    n.out(1, n.broadcast(n.iscalar(n.opset() < 10 ? n.dtype(0) : DType::boolean, 1), n.shape(0)));
}

}  // namespace

std::vector<OpRule> math_rules() {
  return {
      {"Abs", unary<Op::abs>},
      {"Neg", unary<Op::neg>},
      {"Sign", unary<Op::sign>},
      {"Exp", unary<Op::exp>},
      {"Log", unary<Op::log>},
      {"Sqrt", unary<Op::sqrt>},
      {"Sin", unary<Op::sin>},
      {"Cos", unary<Op::cos>},
      {"Tan", unary<Op::tan>},
      {"Asin", unary<Op::asin>},
      {"Acos", unary<Op::acos>},
      {"Atan", unary<Op::atan>},
      {"Sinh", unary<Op::sinh>},
      {"Cosh", unary<Op::cosh>},
      {"Tanh", unary<Op::tanh>},
      {"Asinh", unary<Op::asinh>},
      {"Acosh", unary<Op::acosh>},
      {"Atanh", unary<Op::atanh>},
      {"Erf", unary<Op::erf>},
      {"Floor", unary<Op::floor>},
      {"Ceil", unary<Op::ceil>},
      {"Round", unary<Op::round>},
      {"IsNaN", unary<Op::is_nan>},
      {"IsInf", is_inf},
      {"Not", unary<Op::logical_not>},
      {"BitwiseNot", unary<Op::bit_not>},
      {"Reciprocal", reciprocal},
      {"Add", binary<Op::add>},
      {"Sub", binary<Op::sub>},
      {"Mul", binary<Op::mul>},
      {"Div", divide},
      {"Pow", power},
      {"Mod", modulo},
      {"And", binary<Op::bit_and>},
      {"Or", binary<Op::bit_or>},
      {"Xor", binary<Op::bit_xor>},
      {"BitwiseAnd", binary<Op::bit_and>},
      {"BitwiseOr", binary<Op::bit_or>},
      {"BitwiseXor", binary<Op::bit_xor>},
      {"BitShift", bit_shift},
      {"Equal", binary<Op::eq>},
      {"Greater", binary<Op::gt>},
      {"GreaterOrEqual", binary<Op::ge>},
      {"Less", binary<Op::lt>},
      {"LessOrEqual", binary<Op::le>},
      {"Where", where},
      {"Sum", variadic<Op::add>},
      {"Max", variadic<Op::max>},
      {"Min", variadic<Op::min>},
      {"Mean", mean},
      {"Clip", clip},
      {"Cast", cast},
      {"CastLike", cast_like},
      {"BitCast", bit_cast},
      {"Identity", identity},
      {"Dropout", dropout},
  };
}

}  // namespace aicf::onnx
