#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "base/error.h"
#include "bindings.h"
#include "exchange.h"

namespace aicf::python {
namespace {

using nb::dlpack::dtype_code;

// " of dtype >f4" for an array of numpy; numpy itself says no more of one that it does not hand out.
std::string dtype_text(nb::handle object) {
  const nb::object dtype = nb::getattr(object, "dtype", nb::none());
  return dtype.is_none() ? "" : std::string(" of dtype ") + nb::str(nb::handle(dtype)).c_str();
}

// The capsule of an object whose __dlpack__ may be Python: nanobind loses what it raises, an interrupt too.
// Others as they are. BufferError is how the protocol refuses: `refusal` says why.
nb::object exported(nb::handle object, std::string& refusal) {
  nb::object same = nb::borrow(object);
  if (PyObject_CheckBuffer(object.ptr()) || !nb::hasattr(object, "__dlpack__")) return same;
  const nb::object method = object.attr("__dlpack__");
  try {
    try {
      return method(nb::arg("max_version") = nb::make_tuple(1, 1));
    } catch (nb::python_error& older) {
      if (!older.matches(PyExc_TypeError)) throw;
    }
    return method();
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_BufferError)) throw;
    refusal = std::string(": ") + nb::str(error.value()).c_str();
    return same;
  }
}

template <typename T>
T import_array(nb::handle object, const std::string& what) {
  T array;
  std::string refusal;
  if (!nb::try_cast<T>(exported(object, refusal), array))
    throw UserError(ErrorCode::kU_input_dtype, what + " is not an array that can be used in place")
        .with_expected("an object with __dlpack__ or the buffer protocol, writable if it is an output")
        .with_actual(nb::type_name(object.type()).c_str() + dtype_text(object) + refusal)
        .with_remedy(
            "pass a numpy array of numbers in the machine's byte order, or another array of the CPU");
  return array;
}

template <typename T>
TensorView host_view(const T& array, const std::string& what) {
  if (array.device_type() != nb::device::cpu::value)
    throw UserError(ErrorCode::kU_unsupported_option, what + " is not in the memory of the CPU")
        .with_value("DLPack device " + std::to_string(array.device_type()))
        .with_remedy("copy it to the CPU before the call");
  return strided_view(array, what);
}

template <typename T>
TensorView make_view(const T& array, const std::string& what) {
  const std::optional<DType> dtype = dtype_from_dlpack(array.dtype());
  if (!dtype)
    throw UserError(ErrorCode::kU_input_dtype, what + " has an element type that AICF does not have")
        .with_actual(describe_dtype(array.dtype()))
        .with_remedy("convert it before the call");
  TensorView view;
  view.dtype = *dtype;
  view.data = const_cast<void*>(static_cast<const void*>(array.data()));
  for (size_t i = 0; i < array.ndim(); ++i) {
    view.sizes.push_back(static_cast<int64_t>(array.shape(i)));
    view.strides.push_back(array.stride(i));
  }
  return view;
}

template <typename... Args>
nb::object share_as(nb::handle self, const Array& array) {
  const std::vector<size_t> shape(array.sizes().begin(), array.sizes().end());
  const nb::ndarray<Args...> shared(const_cast<void*>(array.data()), shape.size(), shape.data(), self,
                                    nullptr, to_dlpack(array.dtype()));
  return nb::cast(shared, nb::rv_policy::reference);
}

// An ndarray over the tensor's memory that keeps the tensor alive.
template <typename Framework>
nb::object share(nb::handle self) {
  auto& [array, writable] = nb::cast<Tensor&>(self);
  return writable ? share_as<Framework>(self, array) : share_as<Framework, nb::ro>(self, array);
}

nb::object dlpack(nb::handle self, nb::kwargs kwargs) {
  return share<nb::array_api>(self).attr("__dlpack__")(**kwargs);
}

nb::object numpy(nb::handle self) {
  if (nb::cast<Tensor&>(self).array.dtype() == DType::bf16)
    throw UserError(ErrorCode::kU_unsupported_dtype, "numpy has no bfloat16")
        .with_value("bf16")
        .with_remedy("take it through DLPack, or cast to f32 inside the model");
  return share<nb::numpy>(self);
}

nb::object array_protocol(nb::handle self, nb::object dtype, nb::object copy) {
  nb::object array = numpy(self);
  if (!dtype.is_none()) {
    nb::object converted = array.attr("astype")(dtype, nb::arg("copy") = false);
    if (!copy.is_none() && !nb::cast<bool>(copy) && !converted.is(array))
      throw nb::value_error("a conversion to another dtype needs a copy");
    array = converted;
  }
  return !copy.is_none() && nb::cast<bool>(copy) ? array.attr("copy")() : array;
}

}  // namespace

std::optional<DType> dtype_from_dlpack(nb::dlpack::dtype dtype) {
  if (dtype.lanes != 1) return std::nullopt;
  for (int i = 0; i < kDTypeCount; ++i) {
    const nb::dlpack::dtype candidate = to_dlpack(static_cast<DType>(i));
    if (candidate.code == dtype.code && candidate.bits == dtype.bits) return static_cast<DType>(i);
  }
  return std::nullopt;
}

nb::dlpack::dtype to_dlpack(DType dtype) {
  dtype_code code = dtype_code::Int;
  switch (dtype_info(dtype).cls) {
    case DTypeClass::kFloat:
      code = dtype == DType::bf16 ? dtype_code::Bfloat : dtype_code::Float;
      break;
    case DTypeClass::kSigned:
      code = dtype_code::Int;
      break;
    case DTypeClass::kUnsigned:
      code = dtype_code::UInt;
      break;
    case DTypeClass::kBool:
      code = dtype_code::Bool;
      break;
  }
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(8 * dtype_bytes(dtype)), 1};
}

DType dtype_by_name(std::string_view name) {
  if (const auto dtype = dtype_from_name(name)) return *dtype;
  for (int i = 0; i < kDTypeCount; ++i)
    if (dtype_info(static_cast<DType>(i)).numpy == name) return static_cast<DType>(i);
  std::string names;
  for (int i = 0; i < kDTypeCount; ++i)
    names += (i == 0 ? "" : ", ") + std::string(dtype_name(static_cast<DType>(i)));
  throw UserError(ErrorCode::kU_unsupported_dtype, "no dtype of this name")
      .with_value(std::string(name))
      .with_expected(names);
}

ReadableArray readable(nb::handle object, const std::string& what) {
  return import_array<ReadableArray>(object, what);
}
WritableArray writable(nb::handle object, const std::string& what) {
  return import_array<WritableArray>(object, what);
}
TensorView view_of(const ReadableArray& array, const std::string& what) { return host_view(array, what); }
TensorView view_of(const WritableArray& array, const std::string& what) { return host_view(array, what); }
TensorView strided_view(const ReadableArray& array, const std::string& what) {
  return make_view(array, what);
}
TensorView strided_view(const WritableArray& array, const std::string& what) {
  return make_view(array, what);
}

std::string typestr_of(DType dtype) {
  if (dtype == DType::bf16) return "";
  const int64_t bytes = dtype_bytes(dtype);
  const char* kind = "i";
  if (dtype_info(dtype).cls == DTypeClass::kFloat) kind = "f";
  if (dtype_info(dtype).cls == DTypeClass::kUnsigned) kind = "u";
  if (dtype_info(dtype).cls == DTypeClass::kBool) kind = "b";
  return std::string(bytes == 1 ? "|" : "<") + kind + std::to_string(bytes);
}

nb::tuple shape_tuple(const std::vector<int64_t>& sizes) {
  nb::list list;
  for (const int64_t size : sizes) list.append(size);
  return nb::tuple(list);
}

Array copy_array(nb::handle object, const std::string& what) {
  ReadableArray source;
  TensorView view;
  if (const ExchangeApi* api = exchange_api(object.type())) {
    view = exchange_view(*api, object, {}, {"array", what});
  } else {
    source = readable(object, what);
    view = view_of(source, what);
  }
  Array copy = Array::uninitialized(view.dtype, view.sizes);
  const auto bytes = static_cast<size_t>(dtype_bytes(view.dtype));
  auto* to = static_cast<std::byte*>(copy.mutable_data());
  const auto* from = static_cast<const std::byte*>(view.data);
  if (view.row_major()) {
    if (copy.bytes() > 0) std::memcpy(to, from, static_cast<size_t>(copy.bytes()));
    return copy;
  }
  std::vector<int64_t> index(view.sizes.size(), 0);
  int64_t offset = 0;
  for (int64_t i = 0; i < copy.count(); ++i, to += bytes) {
    std::memcpy(to, from + offset * static_cast<int64_t>(bytes), bytes);
    for (size_t axis = index.size(); axis-- > 0;) {
      offset += view.strides[axis];
      if (++index[axis] < view.sizes[axis]) break;
      offset -= view.strides[axis] * view.sizes[axis];
      index[axis] = 0;
    }
  }
  return copy;
}

nb::object to_python(Array array, bool writable) { return nb::cast(Tensor{std::move(array), writable}); }

nb::dict to_dict(std::map<std::string, Array> arrays, bool writable) {
  nb::dict dict;
  for (auto& [name, array] : arrays) dict[name.c_str()] = to_python(std::move(array), writable);
  return dict;
}

std::string text_of(nb::handle object, const char* what) {
  std::string text;
  if (nb::try_cast(object, text)) return text;
  throw UserError(ErrorCode::kU_bad_option, std::string(what) + " is no text")
      .with_expected("a str that has a form in UTF-8")
      .with_actual(nb::repr(object).c_str());
}

std::string describe_dtype(nb::dlpack::dtype dtype) {
  constexpr const char* kNames[] = {"integer", "unsigned integer", "float", "handle",
                                    "bfloat",  "complex",          "bool"};
  const std::string name =
      dtype.code < std::size(kNames) ? kNames[dtype.code] : "DLPack code " + std::to_string(dtype.code);
  return name + " of " + std::to_string(dtype.bits) + " bits" +
         (dtype.lanes == 1 ? "" : ", " + std::to_string(dtype.lanes) + " together");
}

namespace {

Tensor rounded(nb::handle object, const std::string& dtype) {
  const Array from = copy_array(object, "array");
  Array to = Array::uninitialized(dtype_by_name(dtype), from.sizes());
  for (int64_t i = 0; i < from.count(); ++i) to.set_f64(i, from.get_f64(i));
  return {std::move(to), true};
}

}  // namespace

void bind_tensor(nb::module_& module) {
  module.def("rounded", rounded, "A copy in another float dtype, also in one that numpy does not have.");
  nb::class_<Tensor>(module, "Tensor",
                     "A dense array on the CPU that owns its memory; numpy.asarray and DLPack share it.")
      .def_prop_ro("shape", [](const Tensor& t) { return shape_tuple(t.array.sizes()); })
      .def_prop_ro("dtype", [](const Tensor& t) { return std::string(dtype_name(t.array.dtype())); })
      .def_prop_ro("ndim", [](const Tensor& t) { return t.array.rank(); })
      .def_prop_ro("nbytes", [](const Tensor& t) { return t.array.bytes(); })
      .def("numpy", numpy, "The same memory as a numpy array.")
      .def("__array__", array_protocol, nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none())
      .def("__dlpack__", dlpack)
      .def("__dlpack_device__", [](const Tensor&) { return nb::make_tuple(nb::device::cpu::value, 0); })
      .def("__len__",
           [](const Tensor& t) {
             if (t.array.rank() == 0) throw nb::type_error("len() of a scalar");
             return t.array.sizes()[0];
           })
      .def("__repr__", [](const Tensor& t) {
        return "aicf.Tensor(" + std::string(dtype_name(t.array.dtype())) + to_string(t.array.sizes()) + ")";
      });
}

}  // namespace aicf::python
