// A dense row-major host array: dtype, sizes and shared bytes. It carries constants, weights, and what the
// reference evaluator and the importers pass around. Copies share the bytes; writing needs mutable_data() on
// an unshared array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace aicf {

class Array {
 public:
  Array() = default;
  // Zero-filled, 64-byte aligned.
  Array(DType dtype, std::vector<int64_t> sizes);
  // Contents undefined, 64-byte aligned: for what is written as a whole.
  static Array uninitialized(DType dtype, std::vector<int64_t> sizes);
  // Views memory owned by someone else; `owner` keeps it alive (a file mapping, a caller's buffer).
  static Array view(DType dtype, std::vector<int64_t> sizes, const void* data,
                    std::shared_ptr<const void> owner);

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& sizes() const { return sizes_; }
  int rank() const { return static_cast<int>(sizes_.size()); }
  int64_t count() const { return count_; }
  int64_t bytes() const { return count_ * dtype_bytes(dtype_); }
  const void* data() const { return data_; }
  template <typename T>
  const T* data_as() const {
    return static_cast<const T*>(data_);
  }
  // Null for a view: those bytes are not ours to write.
  void* mutable_data() { return writable_ ? const_cast<void*>(data_) : nullptr; }
  template <typename T>
  T* mutable_data_as() {
    return static_cast<T*>(mutable_data());
  }

  // Element at a row-major index, converted to f64 or i64 (floats truncate toward zero).
  double get_f64(int64_t index) const;
  int64_t get_i64(int64_t index) const;
  // Stores with one rounding to the dtype; integers wrap, bool is value != 0.
  void set_f64(int64_t index, double value);
  void set_i64(int64_t index, int64_t value);

  // Same bytes, other sizes of the same count.
  Array reshaped(std::vector<int64_t> sizes) const;

  template <typename T>
  static Array from(DType dtype, std::vector<int64_t> sizes, const std::vector<T>& values) {
    Array array(dtype, std::move(sizes));
    for (int64_t i = 0; i < array.count(); ++i) {
      if constexpr (std::is_floating_point_v<T>)
        array.set_f64(i, values[static_cast<size_t>(i)]);
      else
        array.set_i64(i, static_cast<int64_t>(values[static_cast<size_t>(i)]));
    }
    return array;
  }
  static Array scalar_f64(DType dtype, double value) { return from<double>(dtype, {}, {value}); }
  static Array scalar_i64(DType dtype, int64_t value) { return from<int64_t>(dtype, {}, {value}); }

  // Same dtype, sizes and bytes (so NaN equals NaN and -0 differs from 0).
  bool operator==(const Array& other) const;

 private:
  struct Raw {};  // selects the constructor that leaves the elements as they are
  Array(DType dtype, std::vector<int64_t> sizes, Raw);
  DType dtype_ = DType::f32;
  std::vector<int64_t> sizes_;
  int64_t count_ = 0;
  std::shared_ptr<const void> owner_;
  const void* data_ = nullptr;
  bool writable_ = false;
};

}  // namespace aicf
