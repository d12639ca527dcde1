#include "ir/reference/error_rules.h"

#include "ir/rounding.h"

namespace aicf::reference {

ErrorRule error_rule(Op op) {
  switch (op) {
    // A cast to a wider type is told from one that rounds by its operand (RoundingNoise).
    case Op::cast:
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::div:
    case Op::sqrt:
      return ErrorRule::kRounding;
    case Op::sin:
    case Op::cos:
    case Op::tan:
    case Op::pow:
      return ErrorRule::kAngle;
    case Op::matmul:
    case Op::conv:
    case Op::conv_transpose:
    case Op::avg_pool:
    case Op::reduce_sum:
    case Op::cumsum:
    case Op::scatter_elements:
    case Op::scatter_nd:
      return ErrorRule::kSum;
    case Op::reduce_prod:
    case Op::cumprod:
      return ErrorRule::kProduct;
    case Op::custom:
      return ErrorRule::kUnknown;
    case Op::floor:
    case Op::ceil:
    case Op::trunc:
    case Op::round:
    case Op::sign:
    case Op::round_tf32:
      return ErrorRule::kNone;
    default:
      break;
  }
  if (op_info(op).has(kPointwise)) return rounds_nothing(op) ? ErrorRule::kNone : ErrorRule::kFunction;
  return ErrorRule::kNone;
}

double unit_roundoff(DType dtype) {
  return dtype == DType::f64   ? 0x1p-53
         : dtype == DType::f32 ? 0x1p-24
         : dtype == DType::f16 ? 0x1p-11
                               : 0x1p-8;
}

double accumulation_roundoff(DType dtype) { return dtype == DType::f64 ? 0x1p-53 : 0x1p-24; }

double largest_finite(DType dtype) {
  return dtype == DType::f64   ? 0x1.fffffffffffffp1023
         : dtype == DType::f16 ? 65504
         : dtype == DType::f32 ? 0x1.fffffep127
                               : 0x1.fep127;
}

double smallest_normal(DType dtype) {
  return dtype == DType::f64 ? 0x1p-1022 : dtype == DType::f16 ? 0x1p-14 : 0x1p-126;
}

}  // namespace aicf::reference
