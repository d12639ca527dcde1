#include "base/dtype.h"

#include <bit>
#include <cmath>

namespace aicf {
namespace {

constexpr DTypeClass class_of(char letter) {
  return letter == 'F'   ? DTypeClass::kFloat
         : letter == 'I' ? DTypeClass::kSigned
         : letter == 'U' ? DTypeClass::kUnsigned
                         : DTypeClass::kBool;
}

constexpr std::string_view printed_name(std::string_view name) { return name == "boolean" ? "bool" : name; }

constexpr DTypeInfo kTable[] = {
#define AICF_DTYPE(name, bytes, cls, numpy, safetensors, onnx) \
  {DType::name, printed_name(#name), bytes, class_of(#cls[0]), numpy, safetensors, onnx},
#include "base/dtypes.def"
#undef AICF_DTYPE
};

// Rounds a finite or infinite double to a binary float of `mantissa` stored bits and the given exponent
// range, to nearest even, and returns its bits. Layout: sign, exponent, mantissa, total 16 bits.
uint16_t round_to_16_bits(double value, int mantissa, int min_exponent, int max_exponent) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const int exponent_bits = 15 - mantissa;
  const uint16_t infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa);
  if (std::isnan(value)) return sign | infinity | static_cast<uint16_t>(1 << (mantissa - 1));
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | infinity;
  if (magnitude == 0) return sign;
  int exponent = std::ilogb(magnitude);
  if (exponent < min_exponent) exponent = min_exponent;
  // Scaling by a power of two is exact, nearbyint rounds to even in the default mode.
  const double units = std::nearbyint(std::ldexp(magnitude, mantissa - exponent));
  auto rounded = static_cast<int64_t>(units);
  if (rounded >> (mantissa + 1)) {
    rounded >>= 1;
    ++exponent;
  }
  if (exponent > max_exponent) return sign | infinity;
  const bool normal = (rounded >> mantissa) != 0;
  const int biased = normal ? exponent - min_exponent + 1 : 0;
  return sign | static_cast<uint16_t>((biased << mantissa) + (rounded & ((1 << mantissa) - 1)));
}

}  // namespace

const DTypeInfo& dtype_info(DType dtype) { return kTable[static_cast<int>(dtype)]; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeInfo& info : kTable)
    if (info.name == name) return info.dtype;
  return std::nullopt;
}

std::optional<DType> dtype_from_onnx(int onnx) {
  for (const DTypeInfo& info : kTable)
    if (info.onnx == onnx) return info.dtype;
  return std::nullopt;
}

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  for (const DTypeInfo& info : kTable)
    if (info.safetensors == name) return info.dtype;
  return std::nullopt;
}

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -magnitude : magnitude;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t f64_to_f16(double value) { return round_to_16_bits(value, 10, -14, 15); }
uint16_t f64_to_bf16(double value) { return round_to_16_bits(value, 7, -126, 127); }
uint16_t f32_to_f16(float value) { return f64_to_f16(value); }

uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace aicf
