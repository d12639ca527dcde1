// Element types and the two forms of arrays: Tensor owns row-major memory, TensorView points into memory of
// the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "aicf/version.h"

namespace aicf::v1 {

enum class DType : uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean };

AICF_API std::string dtype_name(DType dtype);             // "f32", "i64", "bool"
AICF_API DType dtype_from_name(const std::string& name);  // UserError AICF-U0104
AICF_API int64_t dtype_bytes(DType dtype);

template <typename T>
struct DTypeOf;  // of C++ types that have one; f16 and bf16 are read and written as bits
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::f64> {};
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::f32> {};
template <>
struct DTypeOf<int64_t> : std::integral_constant<DType, DType::i64> {};
template <>
struct DTypeOf<int32_t> : std::integral_constant<DType, DType::i32> {};
template <>
struct DTypeOf<int16_t> : std::integral_constant<DType, DType::i16> {};
template <>
struct DTypeOf<int8_t> : std::integral_constant<DType, DType::i8> {};
template <>
struct DTypeOf<uint8_t> : std::integral_constant<DType, DType::u8> {};
template <>
struct DTypeOf<bool> : std::integral_constant<DType, DType::boolean> {};

class Tensor;
class DeviceTensor;

// Where memory is: the host's, or that of the device an Executable was loaded onto.
enum class Place : uint8_t { host, device };

// Memory of the caller, which must outlive the call it is given to; for a run that is not waited for, until
// the run is done. Inputs are never written.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // in elements; empty: row-major
  Place place = Place::host;

  TensorView() = default;
  TensorView(const void* memory, DType element, std::vector<int64_t> extents, std::vector<int64_t> steps = {})
      : data(const_cast<void*>(memory)),
        dtype(element),
        sizes(std::move(extents)),
        strides(std::move(steps)) {}
  template <typename T>
  TensorView(T* memory, std::vector<int64_t> extents)
      : TensorView(memory, DTypeOf<std::remove_const_t<T>>::value, std::move(extents)) {}
  AICF_API TensorView(const Tensor& tensor);        // NOLINT: a tensor is a view of itself
  AICF_API TensorView(const DeviceTensor& tensor);  // NOLINT
};

// Owns its elements: row-major, 64-byte aligned. Copies share the memory; clone() copies it.
class AICF_API Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, std::vector<int64_t> sizes);  // zeros
  Tensor(const Tensor&) = default;
  Tensor& operator=(const Tensor&) = default;
  // The other is as default-made afterwards.
  Tensor(Tensor&& other) noexcept { swap(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    Tensor taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~Tensor() = default;
  // Copies the elements of a view.
  explicit Tensor(const TensorView& view);
  template <typename T>
  static Tensor from(std::vector<int64_t> sizes, const std::vector<T>& values) {
    Tensor tensor(DTypeOf<T>::value, std::move(sizes));
    tensor.check_count(static_cast<int64_t>(values.size()));
    T* out = tensor.as<T>();
    for (size_t i = 0; i < values.size(); ++i) out[i] = values[i];
    return tensor;
  }

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& sizes() const { return sizes_; }
  int64_t rank() const { return static_cast<int64_t>(sizes_.size()); }
  int64_t count() const { return count_; }
  int64_t bytes() const { return count_ * dtype_bytes(dtype_); }
  void* data() { return data_.get(); }
  const void* data() const { return data_.get(); }
  // The elements; UserError AICF-U0104 if they are of another type.
  template <typename T>
  T* as() {
    check_dtype(DTypeOf<T>::value);
    return static_cast<T*>(data_.get());
  }
  template <typename T>
  const T* as() const {
    check_dtype(DTypeOf<T>::value);
    return static_cast<const T*>(data_.get());
  }
  Tensor clone() const;
  // Same dtype, sizes and bytes: NaN equals itself, -0 differs from 0.
  bool operator==(const Tensor& other) const;
  bool operator!=(const Tensor& other) const { return !(*this == other); }

 private:
  friend struct Access;
  void swap(Tensor& other) noexcept {
    std::swap(dtype_, other.dtype_);
    sizes_.swap(other.sizes_);
    std::swap(count_, other.count_);
    data_.swap(other.data_);
  }
  void check_dtype(DType wanted) const;
  void check_count(int64_t given) const;
  DType dtype_ = DType::f32;
  std::vector<int64_t> sizes_;
  int64_t count_ = 0;
  std::shared_ptr<void> data_;
};

// The array of a NumPy file (.npy); UserError if it cannot be read or its elements are of no DType.
AICF_API Tensor read_npy(const std::string& path);

// Owns elements in a device's memory: row-major, 256-byte aligned. Copies share the memory. It comes from the
// pool of the Executable that made it and goes back when the last copy goes; the pool gives it out again to
// runs on the same stream only. On a device that uses the host's memory it lies there.
class AICF_API DeviceTensor {
 public:
  DeviceTensor() = default;
  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& sizes() const { return sizes_; }
  // An address of the device, as a CUdeviceptr.
  void* data() const { return data_; }
  // A copy; waits until what writes the tensor is done.
  Tensor to_host() const;

 private:
  friend struct Access;
  DType dtype_ = DType::f32;
  std::vector<int64_t> sizes_;
  void* data_ = nullptr;
  std::shared_ptr<const void> owner_;
};

}  // namespace aicf::v1
