// Programs in Python: made from ONNX here; the graph builder for tracing is bound in graph.cc.
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/printable.h"
#include "bindings.h"
#include "import/onnx.h"
#include "ir/graph.h"
#include "ir/text.h"

namespace aicf::python {
namespace {

ImportOptions import_options(const std::map<std::string, std::string>& dims,
                             const std::vector<std::pair<std::string, std::string>>& states,
                             nb::dict input_values, const std::vector<std::string>& results) {
  ImportOptions options;
  options.results = results;
  for (const auto& [name, text] : dims) options.dims[name] = parse_dim_option(text);
  options.states = states;
  for (const auto& [key, value] : input_values) {
    const std::string name = text_of(key, "the name of an input");
    options.input_values[name] = copy_array(value, "input '" + name + "'");
  }
  return options;
}

Program from_file(const std::string& path, const std::map<std::string, std::string>& dims,
                  const std::vector<std::pair<std::string, std::string>>& states, nb::dict input_values,
                  const std::vector<std::string>& results) {
  const ImportOptions options = import_options(dims, states, input_values, results);
  const nb::gil_scoped_release unlocked;
  return import_onnx(path, options);
}

Program from_bytes(nb::bytes model, const std::map<std::string, std::string>& dims,
                   const std::vector<std::pair<std::string, std::string>>& states, nb::dict input_values,
                   const std::vector<std::string>& results) {
  const ImportOptions options = import_options(dims, states, input_values, results);
  const std::string_view bytes(model.c_str(), model.size());
  const nb::gil_scoped_release unlocked;
  return import_onnx_bytes(bytes, options);
}

// One line: how much there is of what str() prints.
std::string summary(const Program& program) {
  std::string text = "<aicf.Program";
  for (const Graph& graph : program.entries)
    text += " " + printable_name(graph.name()) + ": " + std::to_string(graph.nodes().size()) + " ops,";
  text.back() = '>';
  return text;
}

}  // namespace

void bind_program(nb::module_& module) {
  nb::class_<Program>(module, "Program",
                      "What a model computes: entries over params and states. str() is its text form.")
      .def("__str__", [](const Program& program) { return print(program); })
      .def("__repr__", summary)
      .def("_repr_html_",
           [](const Program& program) {
             const nb::object escape = nb::module_::import_("html").attr("escape");
             return "<details><summary>" + nb::cast<std::string>(escape(summary(program))) +
                    "</summary><pre>" + nb::cast<std::string>(escape(print(program))) + "</pre></details>";
           })
      .def_rw("metadata", &Program::metadata)
      .def_prop_ro("entries", [](const Program& program) {
        std::vector<std::string> names;
        for (const Graph& graph : program.entries) names.push_back(graph.name());
        return names;
      });
  module.def("import_onnx", from_file);
  module.def("import_onnx_bytes", from_bytes);
}

}  // namespace aicf::python
