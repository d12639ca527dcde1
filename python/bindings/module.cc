// The extension module aicf._aicf. The package aicf wraps it; its names are not public.
#include "base/option_text.h"
#include "bindings.h"

NB_MODULE(_aicf, module) {
  // Caches of other packages (torch's of compiled graphs) hold our objects until the interpreter is gone.
  nanobind::set_leak_warnings(false);
  module.attr("__version__") = AICF_VERSION;
  aicf::set_caller(aicf::Caller::kPython);
  aicf::python::bind_errors(module);
  aicf::python::bind_tensor(module);
  aicf::python::bind_device_tensor(module);
  aicf::python::bind_program(module);
  aicf::python::bind_graph(module);
  aicf::python::bind_executable(module);
  aicf::python::bind_custom(module);
  aicf::python::bind_files(module);
  aicf::python::bind_training(module);
}
