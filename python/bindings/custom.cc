// Ops of the user's: the function for the CPU by its address, and the conversion of ONNX nodes.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <tuple>
#include <utility>

#include "base/custom_op.h"
#include "bindings.h"
#include "import/custom_ops.h"

namespace aicf::python {
namespace {

void register_function(const std::string& name, uintptr_t address, bool checked) {
  register_custom_op(name, checked ? custom_op(reinterpret_cast<CheckedFunction>(address), nullptr)
                                   : custom_op(reinterpret_cast<CustomFunction>(address), nullptr));
}

// The functions of numpy and ml_dtypes that operands are made with.
nb::object numpy_dtype(DType dtype, const std::string& op) {
  if (dtype != DType::bf16) {
    const std::string_view name = dtype_info(dtype).numpy;
    return nb::module_::import_("numpy").attr("dtype")(nb::str(name.data(), name.size()));
  }
  try {
    return nb::module_::import_("numpy").attr("dtype")(nb::module_::import_("ml_dtypes").attr("bfloat16"));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_ImportError)) throw;
    throw EnvironmentError(ErrorCode::kE_tool_missing,
                           "a custom op in Python takes bfloat16 as an array of ml_dtypes, which is not "
                           "installed")
        .with_op(op)
        .with_remedy("pip install ml_dtypes");
  }
}

// Python functions are called with copies, which belong to their arrays: a function may keep an array, or a
// view of one, for as long as it likes, and neither reads nor writes memory of ours through it later.
class PythonFunction {
 public:
  // `attributes`: names, and whether their values are whole numbers.
  PythonFunction(std::string name, std::vector<std::pair<std::string, bool>> attributes,
                 nb::callable function)
      : name_(std::move(name)), attributes_(std::move(attributes)), function_(std::move(function)) {}

  void operator()(const CustomCall& call) {
    const nb::gil_scoped_acquire locked;
    // Another thread may be in the function already, as it may let go of the GIL.
    std::vector<nb::object> memory = std::move(memory_);
    memory.resize(static_cast<size_t>(call.input_count) + static_cast<size_t>(call.output_count));
    nb::object* operand = memory.data();
    nb::list inputs, outputs;
    for (int32_t i = 0; i < call.input_count; ++i, ++operand) {
      const CustomTensor& tensor = call.inputs[i];
      char* copy = room(*operand, tensor);
      if (const size_t bytes = bytes_of(tensor); bytes > 0) std::memcpy(copy, tensor.data, bytes);
      nb::object x = array(tensor, *operand);
      x.attr("flags").attr("writeable") = false;
      inputs.append(std::move(x));
    }
    for (int32_t i = 0; i < call.output_count; ++i, ++operand) {
      std::memset(room(*operand, call.outputs[i]), 0, bytes_of(call.outputs[i]));
      outputs.append(array(call.outputs[i], *operand));
    }
    check_returned(function_(*inputs, *outputs, **attributes(call)), outputs);
    operand -= call.output_count;
    for (int32_t i = 0; i < call.output_count; ++i, ++operand)
      if (const size_t bytes = bytes_of(call.outputs[i]); bytes > 0)
        std::memcpy(call.outputs[i].data, PyByteArray_AS_STRING(operand->ptr()), bytes);
    memory_ = std::move(memory);
  }

 private:
  // Memory of the operand's size: that of the last call, unless the function kept an array of it.
  static char* room(nb::object& memory, const CustomTensor& tensor) {
    const auto bytes = static_cast<Py_ssize_t>(bytes_of(tensor));
    if (!memory.is_valid() || Py_REFCNT(memory.ptr()) != 1 || PyByteArray_GET_SIZE(memory.ptr()) != bytes) {
      memory = nb::steal(PyByteArray_FromStringAndSize(nullptr, bytes));
      if (!memory.is_valid()) throw nb::python_error();
    }
    return PyByteArray_AS_STRING(memory.ptr());
  }

  static size_t bytes_of(const CustomTensor& tensor) {
    int64_t bytes = dtype_bytes(static_cast<DType>(tensor.dtype));
    for (int32_t axis = 0; axis < tensor.rank; ++axis) bytes *= tensor.sizes[axis];
    return static_cast<size_t>(bytes);
  }

  nb::object array(const CustomTensor& tensor, const nb::object& memory) const {
    const nb::module_ numpy = nb::module_::import_("numpy");
    const nb::object dtype = numpy_dtype(static_cast<DType>(tensor.dtype), name_);
    const nb::object shape = shape_tuple(std::vector<int64_t>(tensor.sizes, tensor.sizes + tensor.rank));
    if (bytes_of(tensor) == 0) return numpy.attr("empty")(shape, dtype);
    // It holds a memoryview, so the bytearray cannot be resized meanwhile.
    return numpy.attr("frombuffer")(memory, dtype).attr("reshape")(shape);
  }

  nb::dict attributes(const CustomCall& call) const {
    nb::dict values;
    size_t whole = 0, real = 0;
    for (const auto& [name, is_whole] : attributes_)
      values[name.c_str()] = is_whole ? nb::cast(call.params[whole++]) : nb::cast(call.fparams[real++]);
    return values;
  }

  // Results are what the function fills: an array that it made itself and returned would be lost.
  void check_returned(const nb::object& returned, const nb::list& results) const {
    const nb::module_ numpy = nb::module_::import_("numpy");
    if (PyCoro_CheckExact(returned.ptr()) || PyGen_CheckExact(returned.ptr()))
      throw UserError(ErrorCode::kU_misuse, "a custom op's function is a coroutine or a generator")
          .with_op(name_)
          .with_remedy("pass a plain function");
    if (!nb::isinstance(returned, numpy.attr("ndarray"))) return;
    for (const nb::handle result : results)
      if (nb::cast<bool>(numpy.attr("may_share_memory")(returned, result))) return;
    throw UserError(ErrorCode::kU_misuse, "a custom op's function returned an array of its own")
        .with_op(name_)
        .with_expected("a function that fills its last arguments, and returns None or one of them")
        .with_remedy("write to the output: y[...] = value");
  }

  std::string name_;
  std::vector<std::pair<std::string, bool>> attributes_;
  nb::callable function_;
  std::vector<nb::object> memory_;  // of the last call's operands; empty while one is under way
};

// Registered for the life of the process, as the interpreter's end would come too late to free it.
void register_python(const std::string& name, const std::vector<std::pair<std::string, bool>>& attributes,
                     nb::callable function) {
  auto* kept = new PythonFunction(name, attributes, std::move(function));
  CustomOp op;
  op.function = [kept](const CustomCall& call) { (*kept)(call); };
  register_custom_op(name, std::move(op));
}

// `convert` takes [(dtype, shape)] of the inputs and the attributes' values, and gives those of the op
// `custom`.
void register_onnx(const std::string& name,
                   const std::vector<std::tuple<std::string, bool, double>>& attributes,
                   nb::callable convert) {
  OnnxCustomOp op;
  for (const auto& [attribute, whole, absent] : attributes)
    op.attributes.push_back({attribute, whole, absent});
  // Registered for the life of the process, as the interpreter's end would come too late to free it.
  op.convert = [held = convert.release()](const std::vector<TensorType>& inputs,
                                          const std::vector<double>& values) {
    const nb::gil_scoped_acquire locked;
    nb::list types;
    for (const TensorType& type : inputs)
      types.append(nb::make_tuple(std::string(dtype_name(type.dtype)), from_shape(type.shape)));
    const nb::object attrs = held(types, nb::cast(values));
    return to_attrs(op_info(Op::custom), nb::cast<nb::dict>(attrs));
  };
  register_onnx_op(name, std::move(op));
}

}  // namespace

void bind_custom(nb::module_& module) {
  module.def("register_custom_op", register_function, nb::arg("name"), nb::arg("address"),
             nb::arg("checked") = false);
  module.def("register_python_op", register_python);
  module.def("load_custom_ops", load_custom_ops);
  module.def("is_custom_op", [](const std::string& name) { return find_custom_op(name) != nullptr; });
  module.def("register_onnx_op", register_onnx);
}

}  // namespace aicf::python
