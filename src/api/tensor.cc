#include <cstring>

#include "api/bridge.h"
#include "base/npy.h"

namespace aicf::v1 {

#define AICF_DTYPE(name, ...)                                                                 \
  static_assert(static_cast<int>(DType::name) == static_cast<int>(core::DType::name), #name); \
  static_assert(static_cast<int>(DType::name) < core::kDTypeCount);
#include "base/dtypes.def"
#undef AICF_DTYPE

core::DType to_core(DType dtype) {
  if (static_cast<int>(dtype) >= core::kDTypeCount)
    throw core::UserError(core::ErrorCode::kU_bad_dtype, "no dtype has this number")
        .with_value(std::to_string(static_cast<int>(dtype)));
  return static_cast<core::DType>(dtype);
}

DType to_public(core::DType dtype) { return static_cast<DType>(dtype); }

std::string dtype_name(DType dtype) {
  return translated([&] { return std::string(core::dtype_name(to_core(dtype))); });
}

DType dtype_from_name(const std::string& name) {
  return translated([&] {
    if (const auto dtype = core::dtype_from_name(name)) return to_public(*dtype);
    throw core::UserError(core::ErrorCode::kU_bad_dtype, "no dtype of this name exists").with_value(name);
  });
}

int64_t dtype_bytes(DType dtype) {
  return translated([&] { return int64_t{core::dtype_bytes(to_core(dtype))}; });
}

// --- Tensor

Tensor Access::tensor(const core::Array& array) {
  auto owner = std::make_shared<core::Array>(array);
  if (owner->mutable_data() == nullptr &&
      owner->data() != nullptr) {  // a view of a file, say: not ours to write
    *owner = core::Array(array.dtype(), array.sizes());
    if (array.bytes() > 0)
      std::memcpy(owner->mutable_data(), array.data(), static_cast<size_t>(array.bytes()));
  }
  Tensor tensor;
  tensor.dtype_ = to_public(owner->dtype());
  tensor.sizes_ = owner->sizes();
  tensor.count_ = owner->count();
  void* data = owner->mutable_data();
  tensor.data_ = std::shared_ptr<void>(std::move(owner), data);
  return tensor;
}

core::Array Access::array(const Tensor& tensor) {
  return core::Array::view(to_core(tensor.dtype_), tensor.sizes_, tensor.data_.get(), tensor.data_);
}

Tensor::Tensor(DType dtype, std::vector<int64_t> sizes) {
  *this = translated([&] { return Access::tensor(core::Array(to_core(dtype), std::move(sizes))); });
}

Tensor::Tensor(const TensorView& view) {
  *this = translated([&] {
    const core::Array array = to_array(view);
    Tensor copy(to_public(array.dtype()), array.sizes());
    if (array.bytes() > 0) std::memcpy(copy.data(), array.data(), static_cast<size_t>(array.bytes()));
    return copy;
  });
}

Tensor Tensor::clone() const { return data_ == nullptr ? Tensor() : Tensor(TensorView(*this)); }

bool Tensor::operator==(const Tensor& other) const {
  return dtype_ == other.dtype_ && sizes_ == other.sizes_ && count_ == other.count_ &&
         (bytes() == 0 || std::memcmp(data(), other.data(), static_cast<size_t>(bytes())) == 0);
}

void Tensor::check_dtype(DType wanted) const {
  translated([&] {
    if (dtype_ != wanted)
      throw core::UserError(core::ErrorCode::kU_bad_dtype,
                            "the tensor's elements are of another type than asked for")
          .with_expected(dtype_name(wanted))
          .with_actual(dtype_name(dtype_));
  });
}

void Tensor::check_count(int64_t given) const {
  translated([&] {
    if (count_ != given)
      throw core::UserError(core::ErrorCode::kU_bad_shape,
                            "the number of values does not fit the tensor's sizes")
          .with_expected(std::to_string(count_) + " for " + core::to_string(sizes_))
          .with_actual(std::to_string(given));
  });
}

TensorView::TensorView(const Tensor& tensor)
    : TensorView(const_cast<void*>(tensor.data()), tensor.dtype(), tensor.sizes()) {}
TensorView::TensorView(const DeviceTensor& tensor)
    : TensorView(tensor.data(), tensor.dtype(), tensor.sizes()) {
  place = Place::device;
}

Tensor read_npy(const std::string& path) {
  return translated([&] { return Access::tensor(core::read_npy(path)); });
}

// --- DeviceTensor

DeviceTensor Access::device_tensor(core::DeviceTensor tensor) {
  auto owner = std::make_shared<const core::DeviceTensor>(std::move(tensor));
  DeviceTensor result;
  result.dtype_ = to_public(owner->dtype);
  result.sizes_ = owner->sizes;
  result.data_ = owner->data();
  result.owner_ = std::move(owner);
  return result;
}

Tensor DeviceTensor::to_host() const {
  if (owner_ == nullptr) return {};
  return translated(
      [&] { return Access::tensor(static_cast<const core::DeviceTensor*>(owner_.get())->to_host()); });
}

// --- views

void assign(core::TensorView& out, const TensorView& view, bool needs_data) {
  out.dtype = to_core(view.dtype);
  for (const int64_t size : view.sizes)
    if (size < 0)
      throw core::UserError(core::ErrorCode::kU_input_shape, "a view has a negative size")
          .with_actual(core::to_string(view.sizes));
  if (!view.strides.empty() && view.strides.size() != view.sizes.size())
    throw core::UserError(core::ErrorCode::kU_input_shape, "a view has not as many strides as sizes")
        .with_expected(std::to_string(view.sizes.size()))
        .with_actual(std::to_string(view.strides.size()));
  const int64_t bytes = core::checked_mul(core::element_count(view.sizes), core::dtype_bytes(out.dtype));
  if (needs_data && view.data == nullptr && bytes > 0)
    throw core::UserError(core::ErrorCode::kU_misuse, "a view has elements but no address")
        .with_value(core::to_string(view.sizes));
  out.sizes = view.sizes;
  out.strides = view.strides;
  out.data = view.data;
  out.on_device = view.place == Place::device;
}

core::Array to_array(const TensorView& view) {
  core::TensorView checked;
  assign(checked, view);
  if (checked.on_device)
    throw core::UserError(core::ErrorCode::kU_misuse, "this needs memory of the host")
        .with_actual("a view of device memory")
        .with_remedy("copy it with DeviceTensor::to_host()");
  if (checked.row_major()) return core::Array::view(checked.dtype, checked.sizes, checked.data, nullptr);
  core::Array array(checked.dtype, checked.sizes);
  const auto bytes = static_cast<size_t>(core::dtype_bytes(checked.dtype));
  auto* out = static_cast<std::byte*>(array.mutable_data());
  for (int64_t i = 0; i < array.count(); ++i) {
    int64_t rest = i, offset = 0;
    for (size_t axis = checked.sizes.size(); axis-- > 0; rest /= checked.sizes[axis])
      offset += rest % checked.sizes[axis] * checked.strides[axis];
    std::memcpy(out + static_cast<size_t>(i) * bytes,
                static_cast<const std::byte*>(checked.data) + offset * static_cast<int64_t>(bytes), bytes);
  }
  return array;
}

}  // namespace aicf::v1
