// Element types of memory as C++ types that compute: how a kernel that is a template over types reads,
// combines and writes elements of every dtype.
#pragma once

#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/dtype.h"

namespace aicf {

// Stored: what lies in memory. Value: what it is computed in. f16 and bf16 compute in f32 and round when
// stored.
template <class S, class V, V (*read)(S), S (*write)(V)>
struct ElementType {
  using Stored = S;
  using Value = V;
  static V load(const void* at) {
    S stored;
    std::memcpy(&stored, at, sizeof stored);
    return read(stored);
  }
  static void store(void* at, V value) {
    const S stored = write(value);
    std::memcpy(at, &stored, sizeof stored);
  }
};
template <class T>
T same_element(T x) {
  return x;
}
template <class T>
using PlainElement = ElementType<T, T, same_element<T>, same_element<T>>;
inline float read_bf16_element(uint16_t bits) { return bf16_to_f32(bits); }
inline bool read_bool_element(uint8_t byte) { return byte != 0; }
inline uint8_t write_bool_element(bool value) { return value; }
using F16Element = ElementType<uint16_t, float, f16_to_f32, f32_to_f16>;
using Bf16Element = ElementType<uint16_t, float, read_bf16_element, f32_to_bf16>;
using BoolElement = ElementType<uint8_t, bool, read_bool_element, write_bool_element>;

// Calls f with a value of the ElementType of a dtype and gives its result.
template <class F>
auto with_element_type(DType dtype, F f) {
  switch (dtype) {
    case DType::f64:
      return f(PlainElement<double>());
    case DType::f32:
      return f(PlainElement<float>());
    case DType::f16:
      return f(F16Element());
    case DType::bf16:
      return f(Bf16Element());
    case DType::i64:
      return f(PlainElement<int64_t>());
    case DType::i32:
      return f(PlainElement<int32_t>());
    case DType::i16:
      return f(PlainElement<int16_t>());
    case DType::i8:
      return f(PlainElement<int8_t>());
    case DType::u8:
      return f(PlainElement<uint8_t>());
    case DType::boolean:
      break;
  }
  return f(BoolElement());
}

// Sums and products wrap in the element's type.
template <class T>
T wrapping_add(T a, T b) {
  if constexpr (std::is_same_v<T, bool>)
    return a || b;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}
template <class T>
T wrapping_mul(T a, T b) {
  if constexpr (std::is_same_v<T, bool>)
    return a && b;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else
    return a * b;
}
template <class T>
bool is_nan(T a) {
  if constexpr (std::is_floating_point_v<T>)
    return std::isnan(a);
  else
    return false;
}
// NaN wins.
template <class T>
T larger(T a, T b) {
  return a > b || is_nan(a) ? a : b;
}
template <class T>
T smaller(T a, T b) {
  return a < b || is_nan(a) ? a : b;
}

}  // namespace aicf
