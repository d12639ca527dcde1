// safetensors files for Python: the tensors that are read share the file's bytes (base/mapped_file.h).
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>

#include "base/safetensors.h"
#include "bindings.h"

namespace aicf::python {
namespace {

nb::tuple read_file(const std::string& path) {
  SafetensorsFile file;
  {
    const nb::gil_scoped_release unlocked;
    file = read_safetensors(path);
  }
  return nb::make_tuple(to_dict(std::move(file.tensors), /*writable=*/false), file.metadata);
}

void write_file(const std::string& path, nb::dict tensors, const SafetensorsMetadata& metadata) {
  std::vector<SafetensorsTensor> list;
  for (const auto& [key, value] : tensors) {
    const std::string name = text_of(key, "the name of a tensor");
    list.push_back({name, copy_array(value, "tensor '" + name + "'")});
  }
  const nb::gil_scoped_release unlocked;
  sort_for_safetensors(list);
  write_safetensors(path, list, metadata);
}

}  // namespace

void bind_files(nb::module_& module) {
  module.def("read_safetensors", read_file);
  module.def("write_safetensors", write_file);
}

}  // namespace aicf::python
