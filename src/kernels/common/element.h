// One element of a tensor in memory as a number to compute with, and back: f16 and bf16 are widened when
// loaded and rounded once when stored, every other dtype is T itself.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace aicf {

template <class T>
T load_element(const void* data, DType dtype, int64_t index) {
  if (dtype == DType::f16) return static_cast<T>(f16_to_f32(static_cast<const uint16_t*>(data)[index]));
  if (dtype == DType::bf16) return static_cast<T>(bf16_to_f32(static_cast<const uint16_t*>(data)[index]));
  return static_cast<const T*>(data)[index];
}

template <class T>
void store_element(void* data, DType dtype, int64_t index, T value) {
  if (dtype == DType::f16)
    static_cast<uint16_t*>(data)[index] = f32_to_f16(static_cast<float>(value));
  else if (dtype == DType::bf16)
    static_cast<uint16_t*>(data)[index] = f32_to_bf16(static_cast<float>(value));
  else
    static_cast<T*>(data)[index] = value;
}

}  // namespace aicf
