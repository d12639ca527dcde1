#include "base/array.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/dim.h"
#include "base/error.h"
#include "base/limits.h"

namespace aicf {

Array::Array(DType dtype, std::vector<int64_t> sizes) : Array(dtype, std::move(sizes), Raw{}) {
  if (bytes() > 0) std::memset(mutable_data(), 0, static_cast<size_t>(bytes()));
}

Array Array::uninitialized(DType dtype, std::vector<int64_t> sizes) {
  return {dtype, std::move(sizes), Raw{}};
}

Array::Array(DType dtype, std::vector<int64_t> sizes, Raw)
    : dtype_(dtype), sizes_(std::move(sizes)), count_(element_count(sizes_)), writable_(true) {
  for (int64_t size : sizes_)
    if (size < 0)
      throw UserError(ErrorCode::kU_bad_shape, "a size is negative").with_actual(to_string(sizes_));
  const int64_t bytes = checked_mul(count_, dtype_bytes(dtype));
  const int64_t padded = checked_add(bytes, 64 + 63) / 64 * 64;
  add_array_bytes(padded);
  void* memory = std::aligned_alloc(64, static_cast<size_t>(padded));
  if (memory == nullptr) {
    remove_array_bytes(padded);
    throw EnvironmentError(ErrorCode::kE_out_of_memory, "cannot allocate an array")
        .with_actual(std::to_string(bytes) + " bytes");
  }
  // What pads the elements is never undefined.
  std::memset(static_cast<std::byte*>(memory) + bytes, 0, static_cast<size_t>(padded - bytes));
  owner_ = std::shared_ptr<const void>(memory, [padded](const void* p) {
    std::free(const_cast<void*>(p));
    remove_array_bytes(padded);
  });
  data_ = memory;
}

Array Array::view(DType dtype, std::vector<int64_t> sizes, const void* data,
                  std::shared_ptr<const void> owner) {
  Array array;
  array.dtype_ = dtype;
  array.sizes_ = std::move(sizes);
  array.count_ = element_count(array.sizes_);
  array.data_ = data;
  array.owner_ = std::move(owner);
  return array;
}

double Array::get_f64(int64_t i) const {
  switch (dtype_) {
    case DType::f64:
      return data_as<double>()[i];
    case DType::f32:
      return data_as<float>()[i];
    case DType::f16:
      return f16_to_f32(data_as<uint16_t>()[i]);
    case DType::bf16:
      return bf16_to_f32(data_as<uint16_t>()[i]);
    default:
      return static_cast<double>(get_i64(i));
  }
}

// Toward zero; NaN gives 0 and what no i64 holds the nearest that one does.
static int64_t truncated(double value) {
  if (std::isnan(value)) return 0;
  if (value >= 0x1p63) return INT64_MAX;
  if (value < -0x1p63) return INT64_MIN;
  return static_cast<int64_t>(value);
}

int64_t Array::get_i64(int64_t i) const {
  switch (dtype_) {
    case DType::i64:
      return data_as<int64_t>()[i];
    case DType::i32:
      return data_as<int32_t>()[i];
    case DType::i16:
      return data_as<int16_t>()[i];
    case DType::i8:
      return data_as<int8_t>()[i];
    case DType::u8:
      return data_as<uint8_t>()[i];
    case DType::boolean:
      return data_as<uint8_t>()[i] != 0;
    default:
      return truncated(get_f64(i));
  }
}

void Array::set_f64(int64_t i, double value) {
  switch (dtype_) {
    case DType::f64:
      mutable_data_as<double>()[i] = value;
      return;
    case DType::f32:
      mutable_data_as<float>()[i] = static_cast<float>(value);
      return;
    case DType::f16:
      mutable_data_as<uint16_t>()[i] = f64_to_f16(value);
      return;
    case DType::bf16:
      mutable_data_as<uint16_t>()[i] = f64_to_bf16(value);
      return;
    case DType::boolean:
      mutable_data_as<uint8_t>()[i] = value != 0;
      return;
    default:
      set_i64(i, truncated(value));
      return;
  }
}

void Array::set_i64(int64_t i, int64_t value) {
  switch (dtype_) {
    case DType::i64:
      mutable_data_as<int64_t>()[i] = value;
      return;
    case DType::i32:
      mutable_data_as<int32_t>()[i] = static_cast<int32_t>(value);
      return;
    case DType::i16:
      mutable_data_as<int16_t>()[i] = static_cast<int16_t>(value);
      return;
    case DType::i8:
      mutable_data_as<int8_t>()[i] = static_cast<int8_t>(value);
      return;
    case DType::u8:
      mutable_data_as<uint8_t>()[i] = static_cast<uint8_t>(value);
      return;
    case DType::boolean:
      mutable_data_as<uint8_t>()[i] = value != 0;
      return;
    default:
      set_f64(i, static_cast<double>(value));
      return;
  }
}

Array Array::reshaped(std::vector<int64_t> sizes) const {
  AICF_CHECK(element_count(sizes) == count_, "reshaped keeps the element count");
  Array array = *this;
  array.sizes_ = std::move(sizes);
  return array;
}

bool Array::operator==(const Array& other) const {
  return dtype_ == other.dtype_ && sizes_ == other.sizes_ &&
         (bytes() == 0 || std::memcmp(data_, other.data_, static_cast<size_t>(bytes())) == 0);
}

}  // namespace aicf
