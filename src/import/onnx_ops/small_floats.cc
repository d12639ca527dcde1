#include "import/onnx_ops/small_floats.h"

#include <cmath>
#include <limits>

namespace aicf::onnx {
namespace {

int sign_bit(const SmallFloat& f) { return f.has_sign ? 1 << (f.exponent_bits + f.mantissa_bits) : 0; }
int smallest_exponent(const SmallFloat& f) { return (f.mantissa_bits == 0 ? 0 : 1) - f.bias; }

// The value of the bits as the format defines it.
double value_of(const SmallFloat& f, int bits) {
  if (bits == f.nan) return std::numeric_limits<double>::quiet_NaN();
  const int sign = bits & sign_bit(f), magnitude = bits & ~sign_bit(f);
  double value = 0;
  if (magnitude > f.largest) {
    value = magnitude == f.infinity && f.infinity != f.nan ? std::numeric_limits<double>::infinity()
                                                           : std::numeric_limits<double>::quiet_NaN();
  } else if (f.mantissa_bits == 0) {
    value = std::ldexp(1.0, magnitude - f.bias);
  } else {
    const int one = 1 << f.mantissa_bits, exponent = magnitude / one, mantissa = magnitude % one;
    value = exponent == 0 ? std::ldexp(mantissa, smallest_exponent(f) - f.mantissa_bits)
                          : std::ldexp(one + mantissa, exponent - f.bias - f.mantissa_bits);
  }
  return sign != 0 ? -value : value;
}

Array table_of(const CarriedType& type) {
  Array table(DType::f32, {int64_t{1} << type.bits});
  for (int64_t i = 0; i < table.count(); ++i) table.set_f64(i, value_of(*type.format, static_cast<int>(i)));
  return table;
}

// The exponent of |x| above the smallest one, as i32: a logarithm, which may be off by one beside a power of
// two, and a look at the powers around. `powers` has those that the format has.
ValueId exponent_of(NodeContext& n, ValueId magnitude, ValueId powers, const SmallFloat& f) {
  const DType dtype = n.dtype_of(magnitude);
  const int64_t last = (int64_t{1} << f.exponent_bits) - 2;
  const auto number = [&](double value) { return n.scalar(dtype, value); };
  const auto place = [&](int64_t value) { return n.iscalar(DType::i32, value); };
  const ValueId log2 = n.add(Op::mul, {n.add(Op::log, {magnitude}), number(1 / std::log(2.0))});
  const ValueId above = n.add(Op::sub, {n.add(Op::floor, {log2}), number(smallest_exponent(f))});
  const ValueId near =
      n.cast(n.add(Op::clamp, {above, number(0), number(static_cast<double>(last))}), DType::i32);
  const ValueId power = n.add(Op::gather, {powers, near}, {{"axis", int64_t{0}}});
  const ValueId up = n.add(Op::ge, {magnitude, n.add(Op::add, {power, power})});
  const ValueId down = n.add(Op::lt, {magnitude, power});
  const ValueId exact =
      n.add(Op::sub, {n.add(Op::add, {near, n.cast(up, DType::i32)}), n.cast(down, DType::i32)});
  return n.add(Op::clamp, {exact, place(0), place(last)});
}

}  // namespace

ValueId decoded(NodeContext& n, ValueId x, const CarriedType& type) {
  const Array table = table_of(type);
  if (const auto known = n.context().constant(x)) {
    Array values = n.generated(DType::f32, known->sizes());
    for (int64_t i = 0; i < values.count(); ++i) values.set_f64(i, table.get_f64(known->get_i64(i)));
    return n.constant_of(std::move(values));
  }
  return n.add(Op::gather, {n.constant_of(table), n.cast(x, DType::i32)}, {{"axis", int64_t{0}}});
}

ValueId encoded(NodeContext& n, ValueId x, const CarriedType& type, bool saturate) {
  const SmallFloat& f = *type.format;
  if (f.mantissa_bits == 0) n.unsupported("numbers as " + data_type_name(type.data_type));
  x = n.cast(x, n.dtype_of(x) == DType::f64 ? DType::f64 : DType::f32);
  const DType dtype = n.dtype_of(x);
  const auto place = [&](int64_t value) { return n.iscalar(DType::i32, value); };
  const ValueId magnitude = n.add(Op::abs, {x}), zero = n.scalar(dtype, 0);
  Array powers(dtype, {(int64_t{1} << f.exponent_bits) - 1});
  for (int64_t i = 0; i < powers.count(); ++i)
    powers.set_f64(i, std::ldexp(1.0, smallest_exponent(f) + static_cast<int>(i)));
  const ValueId table = n.constant_of(powers), exponent = exponent_of(n, magnitude, table, f);
  // Whole steps of the last bit, up to twice as many as an exponent has: the next exponent follows by itself.
  const double per_power = std::ldexp(1.0, f.mantissa_bits);
  const ValueId power = n.add(Op::gather, {table, exponent}, {{"axis", int64_t{0}}});
  const ValueId step = n.add(Op::mul, {power, n.scalar(dtype, 1 / per_power)});
  const ValueId steps =
      n.add(Op::min, {n.add(Op::round, {n.add(Op::div, {magnitude, step})}), n.scalar(dtype, 4 * per_power)});
  const ValueId below = n.add(Op::mul, {exponent, place(int64_t{1} << f.mantissa_bits)});
  ValueId bits = n.add(Op::add, {below, n.cast(steps, DType::i32)});
  const int beyond = saturate || f.infinity == 0 ? f.largest : f.infinity;
  bits = n.add(Op::select, {n.add(Op::gt, {bits, place(f.largest)}), place(beyond), bits});
  const ValueId negative = n.add(
      Op::bit_or, {n.add(Op::lt, {x, zero}), n.add(Op::lt, {n.add(Op::div, {n.scalar(dtype, 1), x}), zero})});
  ValueId signed_bits = n.add(Op::select, {negative, n.add(Op::add, {bits, place(sign_bit(f))}), bits});
  if (f.nan == sign_bit(f)) {  // the bits of a negative zero are NaN: neither has a sign
    const ValueId none =
        n.add(Op::bit_or, {n.add(Op::eq, {bits, place(0)}), n.add(Op::eq, {bits, place(f.nan)})});
    signed_bits = n.add(Op::select, {none, bits, signed_bits});
  }
  signed_bits =
      n.add(Op::select, {n.add(Op::is_nan, {x}), place(f.nan < 0 ? sign_bit(f) : f.nan), signed_bits});
  return n.cast(signed_bits, DType::u8);
}

}  // namespace aicf::onnx
