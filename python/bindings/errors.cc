// Coded errors as Python exceptions. The classes live in aicf.errors; a thrown C++ error is rebuilt there
// from its fields.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "base/printable.h"
#include "bindings.h"

namespace aicf::python {
namespace {

// What a model brings into a message need not be UTF-8.
nb::str text(const std::string& bytes) {
  return nb::steal<nb::str>(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "backslashreplace"));
}

void raise_in_python(const Error& e) {
  const ErrorInfo& info = error_info(e.code);
  nb::object error =
      nb::module_::import_("aicf.errors")
          .attr("make_error")(nb::str(info.name.data(), info.name.size()), text(e.message), text(e.op),
                              text(e.value), text(e.expected), text(e.actual), text(e.remedy));
  PyErr_SetObject(error.type().ptr(), error.ptr());
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& e) {
    try {
      raise_in_python(e);
    } catch (nb::python_error& failed) {
      failed.restore();
    }
  } catch (const std::exception& e) {
    if (!says_out_of_memory(e)) throw;
    // Python's MemoryError where there is no memory for ours.
    try {
      raise_in_python(out_of_memory_error(e));
    } catch (nb::python_error& failed) {
      failed.restore();
    }
  }
}

std::string kind_name(ErrorKind kind) {
  if (kind == ErrorKind::kUser) return "user";
  return kind == ErrorKind::kEnvironment ? "environment" : "internal";
}

// (code, kind, name, meaning) of every error.
std::vector<std::tuple<std::string, std::string, std::string, std::string>> error_rows() {
  std::vector<std::tuple<std::string, std::string, std::string, std::string>> rows;
  for (const ErrorInfo& info : error_table())
    rows.emplace_back(info.text, kind_name(info.kind), std::string(info.name), std::string(info.meaning));
  return rows;
}

}  // namespace

void bind_errors(nb::module_& module) {
  nb::register_exception_translator(translate);
  module.def("error_table", error_rows);
  // What a stranger's names may hold is shown as its code: as one line, or as lines of a message.
  module.def("met_memory_limit", met_memory_limit);
  module.def("printable_name", [](const std::string& name) { return text(printable_name(name)); });
  module.def("error_lines", [](const std::string& lines) { return text(error_lines(lines)); });
}

}  // namespace aicf::python
