// Casts between register types and conversions between memory and registers. f16 and bf16 round to nearest
// even, once.
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "kernels/tile/cpu/tile_functions.h"
#include "kernels/tile/cpu/tile_numbers.h"

namespace aicf {
namespace AICF_ISA_NAMESPACE {
namespace {

inline uint32_t bits_of(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}
inline float float_of(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

inline float widen_bf16(uint16_t h) { return float_of(static_cast<uint32_t>(h) << 16); }
inline uint16_t narrow_bf16(float x) {
  const uint32_t u = bits_of(x);
  const uint32_t rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  const uint32_t quiet = (u >> 16) | 0x40;
  return static_cast<uint16_t>((u & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

inline float widen_f16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, magnitude = h & 0x7fff;
  if (magnitude >= 0x7c00) {
    const uint32_t quiet = magnitude > 0x7c00 ? 0x400000 : 0;
    return float_of(sign | 0x7f800000 | ((magnitude & 0x3ff) << 13) | quiet);
  }
  // 2^112 moves the exponent bias from 15 to 127 and normalises denormals.
  return float_of(bits_of(float_of(magnitude << 13) * float_of(0x77800000)) | sign);
}
inline uint16_t narrow_f16(float x) {
  const uint32_t u = bits_of(x), sign = (u >> 16) & 0x8000, magnitude = u & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  if (magnitude >= 0x477ff000)
    return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and above round to infinity
  if (magnitude < 0x38800000) {
    // Below 2^-14 adding 1/2 leaves multiples of 2^-24 in the low bits, rounded by the adder.
    return static_cast<uint16_t>(sign | (bits_of(float_of(magnitude) + 0.5f) - 0x3f000000));
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

void load_f16(const TileArgs& args) {
  const uint16_t* a = static_cast<const uint16_t*>(args.a);
  float* dst = static_cast<float*>(args.dst);
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= args.n; i += 8)
    _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i))));
#endif
  for (; i < args.n; ++i) dst[i] = widen_f16(a[i]);
}
void store_f16(const TileArgs& args) {
  const float* a = static_cast<const float*>(args.a);
  uint16_t* dst = static_cast<uint16_t*>(args.dst);
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= args.n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(a + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#endif
  for (; i < args.n; ++i) dst[i] = narrow_f16(a[i]);
}
void round_f16(const TileArgs& args) {
  const float* a = static_cast<const float*>(args.a);
  float* dst = static_cast<float*>(args.dst);
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= args.n; i += 8)
    _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm256_cvtps_ph(
                                  _mm256_loadu_ps(a + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)));
#endif
  for (; i < args.n; ++i) dst[i] = widen_f16(narrow_f16(a[i]));
}

// f64 to f32 with the last bit set if anything was lost: rounding that once more to a narrower type gives the
// same result as rounding the f64 directly.
inline float round_to_odd(double x) {
  const float f = static_cast<float>(x);
  if (static_cast<double>(f) == x || x != x) return f;
  uint32_t u = bits_of(f);
  if (fabs(static_cast<double>(f)) > fabs(x)) --u;
  return float_of(u | 1);
}

template <class In, class Out, Out (*convert)(In)>
void each(const TileArgs& args) {
  const In* a = static_cast<const In*>(args.a);
  Out* dst = static_cast<Out*>(args.dst);
  for (int64_t i = 0; i < args.n; ++i) dst[i] = convert(a[i]);
}

template <class In, class Out>
inline Out plain(In x) {
  return static_cast<Out>(x);
}
template <class In>
inline int32_t not_zero(In x) {
  return x != 0;
}
inline uint8_t mask_byte(int32_t x) { return x != 0; }

// Truncates toward zero; beyond the range of Out the nearest bound, NaN gives 0.
template <class In, class Out, int64_t low, int64_t high>
inline Out saturate(In x) {
  if (x != x) return 0;
  // low and -low are exact in every float type here: powers of two, or small.
  if (x <= static_cast<In>(low)) return static_cast<Out>(low);
  if (x >= (high == INT64_MAX || high == INT32_MAX ? -static_cast<In>(low) : static_cast<In>(high)))
    return static_cast<Out>(high);
  return static_cast<Out>(x);
}
template <class In, int64_t low, int64_t high>
inline int32_t limit(In x) {
  return static_cast<int32_t>(x < low ? low : x > high ? high : x);
}
inline float round_bf16(float x) { return widen_bf16(narrow_bf16(x)); }
inline uint16_t narrow_bf16_wide(double x) { return narrow_bf16(round_to_odd(x)); }
inline uint16_t narrow_f16_wide(double x) { return narrow_f16(round_to_odd(x)); }

template <class T>
TileFunction cast_float(int op) {
  switch (op) {
    case kOp_to_f32:
      return each<T, float, plain<T, float>>;
    case kOp_to_f64:
      return each<T, double, plain<T, double>>;
    case kOp_to_i32:
      return each<T, int32_t, saturate<T, int32_t, INT32_MIN, INT32_MAX>>;
    case kOp_to_i64:
      return each<T, int64_t, saturate<T, int64_t, INT64_MIN, INT64_MAX>>;
    case kOp_to_mask:
      return each<T, int32_t, not_zero<T>>;
    case kOp_clamp_i16:
      return each<T, int32_t, saturate<T, int32_t, -32768, 32767>>;
    case kOp_clamp_i8:
      return each<T, int32_t, saturate<T, int32_t, -128, 127>>;
    case kOp_clamp_u8:
      return each<T, int32_t, saturate<T, int32_t, 0, 255>>;
  }
  return nullptr;
}
template <class T>
TileFunction cast_integer(int op) {
  switch (op) {
    case kOp_to_f32:
      return each<T, float, plain<T, float>>;
    case kOp_to_f64:
      return each<T, double, plain<T, double>>;
    case kOp_to_i32:
      return each<T, int32_t, plain<T, int32_t>>;
    case kOp_to_i64:
      return each<T, int64_t, plain<T, int64_t>>;
    case kOp_to_mask:
      return each<T, int32_t, not_zero<T>>;
    case kOp_clamp_i16:
      return each<T, int32_t, limit<T, -32768, 32767>>;
    case kOp_clamp_i8:
      return each<T, int32_t, limit<T, -128, 127>>;
    case kOp_clamp_u8:
      return each<T, int32_t, limit<T, 0, 255>>;
  }
  return nullptr;
}

template <class T>
void copy(const TileArgs& args) {
  memmove(args.dst, args.a, static_cast<size_t>(args.n) * sizeof(T));
}

}  // namespace

TileFunction tile_cast_function(int op, int type) {
  if (op == kOp_round_f16) return type == kF32 ? round_f16 : nullptr;
  if (op == kOp_round_bf16) return type == kF32 ? each<float, float, round_bf16> : nullptr;
  switch (type) {
    case kF32:
      return cast_float<float>(op);
    case kF64:
      return cast_float<double>(op);
    case kI32:
      return cast_integer<int32_t>(op);
    case kI64:
      return cast_integer<int64_t>(op);
    case kMask:
      return op >= kOp_clamp_i16 && op <= kOp_clamp_u8 ? nullptr : cast_integer<int32_t>(op);
  }
  return nullptr;
}

TileFunction tile_load_function(int dtype, int type, bool* identical) {
  *identical = false;
  switch (dtype) {
    case kMemory_f64:
      *identical = true;
      return type == kF64 ? copy<double> : nullptr;
    case kMemory_f32:
      *identical = true;
      return type == kF32 ? copy<float> : nullptr;
    case kMemory_f16:
      return type == kF32 ? load_f16 : nullptr;
    case kMemory_bf16:
      return type == kF32 ? each<uint16_t, float, widen_bf16> : nullptr;
    case kMemory_i64:
      *identical = true;
      return type == kI64 ? copy<int64_t> : nullptr;
    case kMemory_i32:
      *identical = true;
      return type == kI32 ? copy<int32_t> : nullptr;
    case kMemory_i16:
      return type == kI32 ? each<int16_t, int32_t, plain<int16_t, int32_t>> : nullptr;
    case kMemory_i8:
      return type == kI32 ? each<int8_t, int32_t, plain<int8_t, int32_t>> : nullptr;
    case kMemory_u8:
      return type == kI32 ? each<uint8_t, int32_t, plain<uint8_t, int32_t>> : nullptr;
    case kMemory_boolean:
      return type == kMask ? each<uint8_t, int32_t, not_zero<uint8_t>> : nullptr;
  }
  return nullptr;
}

TileFunction tile_store_function(int type, int dtype, bool* identical) {
  *identical = false;
  switch (dtype) {
    case kMemory_f64:
      *identical = true;
      return type == kF64 ? copy<double> : nullptr;
    case kMemory_f32:
      *identical = type == kF32;
      return type == kF32 ? copy<float> : type == kF64 ? each<double, float, plain<double, float>> : nullptr;
    case kMemory_f16:
      return type == kF32 ? store_f16 : type == kF64 ? each<double, uint16_t, narrow_f16_wide> : nullptr;
    case kMemory_bf16:
      return type == kF32   ? each<float, uint16_t, narrow_bf16>
             : type == kF64 ? each<double, uint16_t, narrow_bf16_wide>
                            : nullptr;
    case kMemory_i64:
      *identical = true;
      return type == kI64 ? copy<int64_t> : nullptr;
    case kMemory_i32:
      *identical = true;
      return type == kI32 ? copy<int32_t> : nullptr;
    case kMemory_i16:
      return type == kI32 ? each<int32_t, int16_t, plain<int32_t, int16_t>> : nullptr;
    case kMemory_i8:
      return type == kI32 ? each<int32_t, int8_t, plain<int32_t, int8_t>> : nullptr;
    case kMemory_u8:
      return type == kI32 ? each<int32_t, uint8_t, plain<int32_t, uint8_t>> : nullptr;
    case kMemory_boolean:
      return type == kMask ? each<int32_t, uint8_t, mask_byte> : nullptr;
  }
  return nullptr;
}

}  // namespace AICF_ISA_NAMESPACE
}  // namespace aicf
