#include "exchange.h"

#include <unordered_map>

#include "base/error.h"

namespace aicf::python {

using nb::dlpack::dltensor;

struct DLPackVersion {
  uint32_t major, minor;
};

// DLManagedTensorVersioned of dlpack.h.
struct ManagedTensor {
  DLPackVersion version;
  void* manager;
  void (*deleter)(ManagedTensor*);
  uint64_t flags;
  dltensor tensor;
};

namespace {

constexpr DLPackVersion kVersion{1, 3};

// What a tensor that was handed out refers to; freed by its deleter.
template <typename Owner>
struct Handed {
  ManagedTensor managed;
  Owner owner;
  std::vector<int64_t> sizes, strides;
};

}  // namespace

// DLPackExchangeAPI of dlpack.h.
struct ExchangeApi {
  DLPackVersion version;
  ExchangeApi* previous;
  void* allocator;
  int (*managed_from_object)(void* object, ManagedTensor** out);
  int (*managed_to_object)(ManagedTensor* tensor, void** out);
  int (*view_from_object)(void* object, dltensor* out);
  int (*current_stream)(int32_t device_type, int32_t device_id, void** out);
};

const ExchangeApi* exchange_api(nb::handle type) {
  // A type that was looked up is kept, so that no other takes its address.
  static auto& known = *new std::unordered_map<PyObject*, const ExchangeApi*>();
  if (auto at = known.find(type.ptr()); at != known.end()) return at->second;
  const ExchangeApi* api = nullptr;
  if (nb::hasattr(type, "__dlpack_c_exchange_api__")) {
    nb::object capsule = type.attr("__dlpack_c_exchange_api__");
    if (PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api"))
      api = static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    if (api != nullptr && (api->version.major != kVersion.major || api->view_from_object == nullptr ||
                           api->managed_to_object == nullptr))
      api = nullptr;
  }
  type.inc_ref();
  known.emplace(type.ptr(), api);
  return api;
}

namespace {

UserError refused(const Label& label, const std::string& why) {
  return UserError(ErrorCode::kU_input_dtype, label.text() + " is not an array that can be used in place")
      .with_expected("a dense tensor with memory")
      .with_actual(why)
      .with_remedy("pass a dense tensor: .to_dense(), .dequantize(), or one that is not on the meta device");
}

// Most are: what has no strides is bound without looking at them again.
bool is_row_major(const dltensor& tensor) {
  int64_t expected = 1;
  for (int32_t i = tensor.ndim; i-- > 0; expected *= tensor.shape[i])
    if (tensor.strides != nullptr && tensor.strides[i] != expected) return false;
  return true;
}

// What the producer says of a tensor whose memory it does not show: it is sparse, quantised or on the meta
// device.
std::string producers_error() {
  const nb::python_error error;
  const std::string text = nb::str(error.value()).c_str();
  return text.substr(0, text.find('\n'));
}

}  // namespace

TensorView exchange_view(const ExchangeApi& api, nb::handle object, const DeviceId& device,
                         const Label& label) {
  dltensor tensor;
  if (api.view_from_object(object.ptr(), &tensor) != 0) throw refused(label, producers_error());
  const bool on_device = tensor.device.device_type == nb::device::cuda::value;
  if (on_device) {
    check_same_device({true, tensor.device.device_id}, device, label.text());
  } else if (tensor.device.device_type != nb::device::cpu::value) {
    throw UserError(ErrorCode::kU_unsupported_option, label.text() + " is in memory that AICF cannot use")
        .with_value("DLPack device " + std::to_string(tensor.device.device_type))
        .with_remedy("copy it to the CPU before the call");
  }
  const std::optional<DType> dtype = dtype_from_dlpack(tensor.dtype);
  if (!dtype)
    throw UserError(ErrorCode::kU_input_dtype, label.text() + " has an element type that AICF does not have")
        .with_actual(describe_dtype(tensor.dtype))
        .with_remedy("convert it before the call");
  TensorView view;
  view.dtype = *dtype;
  view.on_device = on_device;
  view.data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  view.sizes.assign(tensor.shape, tensor.shape + tensor.ndim);
  if (!is_row_major(tensor)) view.strides.assign(tensor.strides, tensor.strides + tensor.ndim);
  if (tensor.data == nullptr && element_count(view.sizes) > 0)
    throw refused(label, "a tensor without memory, such as the stand-ins of torch's tracing");
  return view;
}

Stream exchange_stream(const ExchangeApi& api, const DeviceId& device) {
  void* handle = nullptr;
  if (api.current_stream != nullptr &&
      api.current_stream(nb::device::cuda::value, device.ordinal, &handle) != 0)
    nb::raise_python_error();
  // Libraries call the default stream 0, which stands for our own.
  return {handle == nullptr ? reinterpret_cast<void*>(1) : handle};
}

namespace {

// Gives a tensor to the interface's library, which calls the deleter when it needs it no more.
template <typename Owner>
nb::object hand_out(const ExchangeApi& api, Owner owner, void* data, DType dtype,
                    const std::vector<int64_t>& sizes, const DeviceId& device) {
  auto* handed = new Handed<Owner>{{}, std::move(owner), sizes, {}};
  handed->strides.resize(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0; stride *= std::max<int64_t>(sizes[i], 1))
    handed->strides[i] = stride;
  ManagedTensor& managed = handed->managed;
  managed.version = kVersion;
  managed.manager = handed;
  managed.deleter = [](ManagedTensor* self) { delete static_cast<Handed<Owner>*>(self->manager); };
  managed.tensor.data = data;
  managed.tensor.device = {device.cuda ? nb::device::cuda::value : nb::device::cpu::value, device.ordinal};
  managed.tensor.ndim = static_cast<int32_t>(sizes.size());
  managed.tensor.dtype = to_dlpack(dtype);
  managed.tensor.shape = handed->sizes.data();
  managed.tensor.strides = handed->strides.data();
  void* object = nullptr;
  if (api.managed_to_object(&managed, &object) != 0) {
    delete handed;
    nb::raise_python_error();
  }
  return nb::steal(static_cast<PyObject*>(object));
}

}  // namespace

nb::object exchange_tensor(const ExchangeApi& api, Array array) {
  void* data = const_cast<void*>(array.data());
  const DType dtype = array.dtype();
  const std::vector<int64_t> sizes = array.sizes();
  return hand_out(api, std::move(array), data, dtype, sizes, {});
}

nb::object exchange_tensor(const ExchangeApi& api, DeviceTensor tensor) {
  void* data = tensor.data();
  const DType dtype = tensor.dtype;
  const std::vector<int64_t> sizes = tensor.sizes;
  const DeviceId device = tensor.device->id();
  return hand_out(api, std::move(tensor), data, dtype, sizes, device);
}

}  // namespace aicf::python
