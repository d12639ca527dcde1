#include "exchange.h"

#include <unordered_map>

#include "base/error.h"

namespace aicf::python {

namespace {

using nb::dlpack::dltensor;

struct Version {
  uint32_t major, minor;
};

// DLManagedTensorVersioned of dlpack.h.
struct ManagedTensor {
  Version version;
  void* manager;
  void (*deleter)(ManagedTensor*);
  uint64_t flags;
  dltensor tensor;
};

constexpr Version kVersion{1, 3};

// What a tensor that was handed out refers to; freed by its deleter.
struct Handed {
  ManagedTensor managed;
  Array array;
  std::vector<int64_t> strides;
};

}  // namespace

// DLPackExchangeAPI of dlpack.h.
struct ExchangeApi {
  Version version;
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

std::optional<TensorView> exchange_view(nb::handle object, const std::string& what) {
  const ExchangeApi* api = exchange_api(object.type());
  if (api == nullptr) return std::nullopt;
  dltensor tensor;
  if (api->view_from_object(object.ptr(), &tensor) != 0) nb::raise_python_error();
  if (tensor.device.device_type != nb::device::cpu::value)
    throw UserError(ErrorCode::kU_unsupported_option, what + " is not in the memory of the CPU")
        .with_value("DLPack device " + std::to_string(tensor.device.device_type))
        .with_remedy("copy it to the CPU before the call");
  const std::optional<DType> dtype = dtype_from_dlpack(tensor.dtype);
  if (!dtype)
    throw UserError(ErrorCode::kU_input_dtype, what + " has an element type that AICF does not have")
        .with_actual("DLPack code " + std::to_string(tensor.dtype.code) + ", " +
                     std::to_string(tensor.dtype.bits) + " bits");
  TensorView view;
  view.dtype = *dtype;
  view.data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  view.sizes.assign(tensor.shape, tensor.shape + tensor.ndim);
  if (tensor.strides != nullptr) view.strides.assign(tensor.strides, tensor.strides + tensor.ndim);
  return view;
}

nb::object exchange_tensor(const ExchangeApi& api, Array array) {
  auto* handed = new Handed{{}, std::move(array), {}};
  const std::vector<int64_t>& sizes = handed->array.sizes();
  handed->strides.resize(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0; stride *= std::max<int64_t>(sizes[i], 1))
    handed->strides[i] = stride;
  ManagedTensor& managed = handed->managed;
  managed.version = kVersion;
  managed.manager = handed;
  managed.deleter = [](ManagedTensor* self) { delete static_cast<Handed*>(self->manager); };
  managed.tensor.data = const_cast<void*>(handed->array.data());
  managed.tensor.device = {nb::device::cpu::value, 0};
  managed.tensor.ndim = static_cast<int32_t>(sizes.size());
  managed.tensor.dtype = to_dlpack(handed->array.dtype());
  managed.tensor.shape = const_cast<int64_t*>(sizes.data());
  managed.tensor.strides = handed->strides.data();
  void* object = nullptr;
  if (api.managed_to_object(&managed, &object) != 0) {
    delete handed;
    nb::raise_python_error();
  }
  return nb::steal(static_cast<PyObject*>(object));
}

}  // namespace aicf::python
