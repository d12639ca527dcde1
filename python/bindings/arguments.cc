#include "arguments.h"

#include <nanobind/stl/string.h>

#include "base/error.h"
#include "exchange.h"

namespace aicf::python {
namespace {

// DLPack's and CUDA's number of the default stream; 0 stands for it where libraries hand out handles.
void* const kLegacyStream = reinterpret_cast<void*>(1);

Stream stream_of_handle(uintptr_t handle) {
  return {handle == 0 ? kLegacyStream : reinterpret_cast<void*>(handle)};
}

// Of what other libraries give as a number: an enumeration or a number type of their own too.
int64_t integer(nb::handle number) { return nb::cast<int64_t>(nb::int_(number)); }
uintptr_t address(nb::handle number) { return static_cast<uintptr_t>(nb::cast<uint64_t>(nb::int_(number))); }

// (kind, ordinal) of __dlpack_device__, if the object has it.
std::optional<std::pair<int, int>> dlpack_device(nb::handle object) {
  if (!nb::hasattr(object, "__dlpack_device__")) return std::nullopt;
  const nb::tuple device = nb::cast<nb::tuple>(object.attr("__dlpack_device__")());
  return std::pair{static_cast<int>(integer(device[0])), static_cast<int>(integer(device[1]))};
}

// "<f4" of __cuda_array_interface__.
DType dtype_of_typestr(const std::string& typestr, const std::string& what) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (const auto dtype = static_cast<DType>(i); typestr_of(dtype) == typestr) return dtype;
  throw UserError(ErrorCode::kU_input_dtype, what + " has an element type that AICF does not have")
      .with_actual("typestr " + typestr);
}

}  // namespace

void Arguments::add(std::vector<TensorView>& views, nb::handle object, const Label& label, bool written) {
  if (nb::isinstance<PyDeviceTensor>(object)) {
    const DeviceTensor& tensor = nb::cast<PyDeviceTensor&>(object).tensor;
    check_same_device(tensor.device->id(), device_.id(), label.text());
    if (!stream_) stream_ = tensor.stream;
    ours_.push_back(&tensor);
    views.push_back(view_of(tensor));
    on_device_ = true;
    return;
  }
  const ExchangeApi* api = exchange_api(object.type());
  if (api != nullptr) {
    views.push_back(exchange_view(*api, object, device_.id(), label));
    if (!views.back().on_device) return;
    on_device_ = true;
    if (!stream_) stream_ = exchange_stream(*api, device_.id());
    return;
  }
  views.emplace_back();
  deferred_.push_back({&views, views.size() - 1, object, label.text(), written});
}

void Arguments::settle() {
  for (const DeviceTensor* tensor : ours_)
    if (!(tensor->stream == stream())) device_.order(tensor->stream, stream());
  const bool streams_known = stream_.has_value();
  for (const Deferred& array : deferred_) {
    TensorView& view = (*array.views)[array.index];
    const auto device = dlpack_device(array.object);
    if (device && device->first == nb::device::cuda::value) {
      check_same_device({true, device->second}, device_.id(), array.label);
      view = foreign_view(array);
    } else if (!device && nb::hasattr(array.object, "__cuda_array_interface__")) {
      view = interface_view(array);
    } else {
      view = host_view(array.object, array.label, array.written);
      continue;
    }
    view.on_device = on_device_ = true;
    must_wait_ = must_wait_ || !streams_known;
  }
}

TensorView Arguments::host_view(nb::handle object, const std::string& label, bool written) {
  if (written) {
    written_.push_back(writable(object, label));
    return view_of(written_.back(), label);
  }
  read_.push_back(readable(object, label));
  return view_of(read_.back(), label);
}

// The producer makes our stream wait for what writes the array.
TensorView Arguments::foreign_view(const Deferred& array) {
  const nb::object capsule = capsule_of(array.object);
  if (array.written) {
    written_.push_back(writable(capsule, array.label));
    return strided_view(written_.back(), array.label);
  }
  read_.push_back(readable(capsule, array.label));
  return strided_view(read_.back(), array.label);
}

nb::object Arguments::capsule_of(nb::handle object) {
  const auto stream = reinterpret_cast<uintptr_t>(device_.handle_of(this->stream()));
  return object.attr("__dlpack__")(nb::arg("stream") = stream);
}

TensorView Arguments::interface_view(const Deferred& array) {
  if (!device_.id().cuda)
    throw UserError(ErrorCode::kU_unsupported_option, array.label + " is in the memory of another device")
        .with_expected(device_name(device_.id()))
        .with_actual("cuda")
        .with_remedy("copy it before the call, or load the model onto that device");
  const nb::dict interface = nb::cast<nb::dict>(array.object.attr("__cuda_array_interface__"));
  const nb::tuple data = nb::cast<nb::tuple>(interface["data"]);
  if (array.written && PyObject_IsTrue(nb::object(data[1]).ptr()) == 1)
    throw UserError(ErrorCode::kU_misuse, array.label + " is read-only");
  if (interface.contains("mask") && !interface["mask"].is_none())
    throw UserError(ErrorCode::kU_input_dtype, array.label + " is a masked array");
  TensorView view;
  view.dtype = dtype_of_typestr(nb::cast<std::string>(interface["typestr"]), array.label);
  view.data = reinterpret_cast<void*>(address(data[0]));
  for (nb::handle size : nb::cast<nb::tuple>(interface["shape"])) view.sizes.push_back(integer(size));
  if (interface.contains("strides") && !interface["strides"].is_none())
    for (nb::handle bytes : nb::cast<nb::tuple>(interface["strides"]))
      view.strides.push_back(integer(bytes) / dtype_bytes(view.dtype));
  if (interface.contains("stream") && !interface["stream"].is_none()) {
    const Stream theirs = stream_of_handle(address(interface["stream"]));
    if (!(theirs == stream())) device_.order(theirs, stream());
  }
  return view;
}

std::optional<Stream> stream_of(nb::handle object) {
  if (object.is_none()) return std::nullopt;
  uintptr_t handle = 0;
  // Every run asks: names are made once, and what is no number is not tried as one first.
  static PyObject* const names[] = {PyUnicode_InternFromString("cuda_stream"),  // torch
                                    PyUnicode_InternFromString("ptr")};         // CuPy
  if (!PyLong_Check(object.ptr()))
    for (PyObject* name : names)
      if (const nb::object number = nb::getattr(object, nb::handle(name), nb::none());
          PyLong_Check(number.ptr()) && nb::try_cast<uintptr_t>(number, handle))
        return stream_of_handle(handle);
  if (nb::try_cast<uintptr_t>(object, handle)) return stream_of_handle(handle);
  if (nb::hasattr(object, "__cuda_stream__"))  // (version, handle)
    return stream_of_handle(address(nb::cast<nb::tuple>(object.attr("__cuda_stream__")())[1]));
  throw UserError(ErrorCode::kU_unsupported_option, "this is no CUDA stream")
      .with_expected("a handle as int, or a stream of torch, CuPy or cuda.core")
      .with_actual(nb::type_name(object.type()).c_str());
}

}  // namespace aicf::python
