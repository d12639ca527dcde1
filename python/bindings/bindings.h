// Shared by the files of the extension aicf._aicf: conversions between Python arrays and ours, and one
// function per file that adds its part to the module. Everything here is called with the GIL held.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <map>
#include <optional>
#include <string>

#include "base/array.h"
#include "ir/graph.h"
#include "runtime/executable.h"

namespace aicf::python {

namespace nb = nanobind;

// What a call returns: an array that owns its memory, handed out through DLPack and the array protocol
// without copies.
struct Tensor {
  Array array;
  bool writable = true;
};

// The same in a device's memory.
struct PyDeviceTensor {
  DeviceTensor tensor;
};

using ReadableArray = nb::ndarray<nb::ro>;
using WritableArray = nb::ndarray<>;

std::optional<DType> dtype_from_dlpack(nb::dlpack::dtype dtype);
nb::dlpack::dtype to_dlpack(DType dtype);
// DType by its name here ("f32") or in numpy ("float32"); unsupported_dtype.
DType dtype_by_name(std::string_view name);

// The object's memory through DLPack or the buffer protocol. `what` names it in errors: input_dtype for an
// object that is no array or of a dtype unknown here, unsupported_option for memory of another device.
ReadableArray readable(nb::handle object, const std::string& what);
WritableArray writable(nb::handle object, const std::string& what);
TensorView view_of(const ReadableArray& array, const std::string& what);
TensorView view_of(const WritableArray& array, const std::string& what);
// The view of an array in whatever memory.
TensorView strided_view(const ReadableArray& array, const std::string& what);
TensorView strided_view(const WritableArray& array, const std::string& what);
// numpy's name of a dtype in its array interfaces, "<f4"; empty for bf16, which numpy lacks.
std::string typestr_of(DType dtype);
// Numbers and Dims.
nb::tuple from_shape(const Shape& shape);
Attrs to_attrs(const OpInfo& info, nb::dict attrs);
nb::tuple shape_tuple(const std::vector<int64_t>& sizes);
// A dense copy, owned by us.
Array copy_array(nb::handle object, const std::string& what);
// What is not writable is so in numpy and says so through DLPack: it may lie in a file, or be a model's.
nb::object to_python(Array array, bool writable = true);
nb::dict to_dict(std::map<std::string, Array> arrays, bool writable = true);
// bad_option for what is no text, or none in UTF-8; `what` names it.
std::string text_of(nb::handle object, const char* what);
// "complex of 64 bits", for errors.
std::string describe_dtype(nb::dlpack::dtype dtype);

void bind_errors(nb::module_& module);
void bind_tensor(nb::module_& module);
void bind_device_tensor(nb::module_& module);
void bind_program(nb::module_& module);
void bind_graph(nb::module_& module);
void bind_custom(nb::module_& module);
void bind_executable(nb::module_& module);
void bind_files(nb::module_& module);
void bind_training(nb::module_& module);

}  // namespace aicf::python
