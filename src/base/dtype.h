// Element types and their facts, from dtypes.def; conversions between f16, bf16 and f32 by rounding to
// nearest even.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace aicf {

enum class DType : uint8_t {
#define AICF_DTYPE(name, bytes, cls, numpy, safetensors, onnx) name,
#include "base/dtypes.def"
#undef AICF_DTYPE
};

enum class DTypeClass : uint8_t { kFloat, kSigned, kUnsigned, kBool };

struct DTypeInfo {
  DType dtype;
  std::string_view name;  // as printed in IR text: "f32", "bool"
  int bytes;
  DTypeClass cls;
  std::string_view numpy, safetensors;
  int onnx;
};

inline constexpr int kDTypeCount = 0
#define AICF_DTYPE(...) +1
#include "base/dtypes.def"
#undef AICF_DTYPE
    ;

const DTypeInfo& dtype_info(DType dtype);
inline int dtype_bytes(DType dtype) { return dtype_info(dtype).bytes; }
inline std::string_view dtype_name(DType dtype) { return dtype_info(dtype).name; }
inline bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
inline bool is_float(DType dtype) { return dtype_info(dtype).cls == DTypeClass::kFloat; }
inline bool is_integer(DType dtype) {
  return dtype_info(dtype).cls == DTypeClass::kSigned || dtype_info(dtype).cls == DTypeClass::kUnsigned;
}

std::optional<DType> dtype_from_name(std::string_view name);
std::optional<DType> dtype_from_onnx(int onnx);
std::optional<DType> dtype_from_safetensors(std::string_view name);

float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);
inline float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);
// Straight from f64 with one rounding; going through f32 would round twice.
uint16_t f64_to_f16(double value);
uint16_t f64_to_bf16(double value);

inline float bf16_to_f32(uint16_t bits) {
  union {
    uint32_t u;
    float f;
  } pun{static_cast<uint32_t>(bits) << 16};
  return pun.f;
}

}  // namespace aicf
