// Ops of the user's: the function for the CPU by its address, and the conversion of ONNX nodes.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "base/custom_op.h"
#include "bindings.h"
#include "import/custom_ops.h"

namespace aicf::python {
namespace {

void register_function(const std::string& name, uintptr_t address) {
  register_custom_op(name, {reinterpret_cast<CustomFunction>(address), nullptr});
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
  module.def("register_custom_op", register_function);
  module.def("load_custom_ops", load_custom_ops);
  module.def("is_custom_op", [](const std::string& name) { return find_custom_op(name) != nullptr; });
  module.def("register_onnx_op", register_onnx);
}

}  // namespace aicf::python
