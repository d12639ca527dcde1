// aicf.DeviceTensor: a result that stays in the device's memory.
#include <nanobind/stl/string.h>

#include "base/error.h"
#include "bindings.h"

namespace aicf::python {
namespace {

constexpr int kNoSynchronization = -1;  // DLPack's: the consumer orders streams by itself

void order_consumer(const DeviceTensor& tensor, nb::handle stream) {
  // None: the consumer is on the legacy default stream.
  const int64_t handle = stream.is_none() ? 1 : nb::cast<int64_t>(stream);
  if (handle == kNoSynchronization) return;
  if (handle == 0)
    throw UserError(ErrorCode::kU_bad_option, "DLPack gives stream 0 no meaning")
        .with_expected("1 for the default stream, 2 for the thread's, a handle, or -1");
  const Stream consumer{reinterpret_cast<void*>(static_cast<uintptr_t>(handle))};
  if (tensor.device->handle_of(consumer) != tensor.device->handle_of(tensor.stream))
    tensor.device->order(tensor.stream, consumer);
}

nb::object device_dlpack(nb::handle self, nb::kwargs kwargs) {
  const DeviceTensor& tensor = nb::cast<PyDeviceTensor&>(self).tensor;
  nb::dict others;
  nb::object stream = nb::none();
  for (const auto& [key, value] : kwargs) {
    if (nb::cast<std::string>(key) == "stream") {
      stream = nb::borrow(value);
    } else {
      others[key] = value;
    }
  }
  order_consumer(tensor, stream);
  const std::vector<size_t> shape(tensor.sizes.begin(), tensor.sizes.end());
  nb::ndarray<nb::array_api> array(tensor.data(), shape.size(), shape.data(), self, nullptr,
                                   to_dlpack(tensor.dtype), nb::device::cuda::value,
                                   tensor.device->id().ordinal);
  return nb::cast(array, nb::rv_policy::reference).attr("__dlpack__")(**others);
}

nb::dict cuda_array_interface(const PyDeviceTensor& self) {
  const DeviceTensor& tensor = self.tensor;
  const std::string typestr = typestr_of(tensor.dtype);
  if (typestr.empty()) throw nb::attribute_error("__cuda_array_interface__ has no bf16; use DLPack");
  nb::dict interface;
  interface["shape"] = shape_tuple(tensor.sizes);
  interface["typestr"] = typestr;
  interface["data"] = nb::make_tuple(reinterpret_cast<uintptr_t>(tensor.data()), false);
  interface["version"] = 3;
  interface["stream"] = reinterpret_cast<uintptr_t>(tensor.device->handle_of(tensor.stream));
  return interface;
}

nb::object to_host(const PyDeviceTensor& self) {
  Array array;
  {
    const nb::gil_scoped_release unlocked;
    array = self.tensor.to_host();
  }
  return to_python(std::move(array));
}

}  // namespace

void bind_device_tensor(nb::module_& module) {
  nb::class_<PyDeviceTensor>(module, "DeviceTensor",
                             "A dense array in the memory of a device, shared through DLPack or "
                             "__cuda_array_interface__. Its memory "
                             "goes back to the executable's pool with the last reference.")
      .def_prop_ro("shape", [](const PyDeviceTensor& t) { return shape_tuple(t.tensor.sizes); })
      .def_prop_ro("dtype", [](const PyDeviceTensor& t) { return std::string(dtype_name(t.tensor.dtype)); })
      .def_prop_ro("ndim", [](const PyDeviceTensor& t) { return t.tensor.sizes.size(); })
      .def_prop_ro("nbytes", [](const PyDeviceTensor& t) { return t.tensor.bytes(); })
      .def_prop_ro("device", [](const PyDeviceTensor& t) { return device_name(t.tensor.device->id()); })
      .def("cpu", to_host, "A copy in the host's memory; waits for what writes this one.")
      .def(
          "numpy", [](const PyDeviceTensor& t) { return to_host(t).attr("numpy")(); },
          "A copy as a numpy array; waits for what writes this one.")
      .def("__array__",
           [](const PyDeviceTensor& t, nb::kwargs kwargs) { return to_host(t).attr("__array__")(**kwargs); })
      .def("__dlpack__", device_dlpack)
      .def("__dlpack_device__",
           [](const PyDeviceTensor& t) {
             const DeviceId id = t.tensor.device->id();
             return nb::make_tuple(id.cuda ? nb::device::cuda::value : nb::device::cpu::value, id.ordinal);
           })
      .def_prop_ro("__cuda_array_interface__", cuda_array_interface)
      .def("__len__",
           [](const PyDeviceTensor& t) {
             if (t.tensor.sizes.empty()) throw nb::type_error("len() of a scalar");
             return t.tensor.sizes[0];
           })
      .def("__repr__", [](const PyDeviceTensor& t) {
        return "aicf.DeviceTensor(" + std::string(dtype_name(t.tensor.dtype)) + to_string(t.tensor.sizes) +
               ", " + device_name(t.tensor.device->id()) + ")";
      });
}

}  // namespace aicf::python
