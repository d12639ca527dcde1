// Test helper: cases in the layout of the ONNX backend suite (CASE/model.onnx,
// CASE/test_data_set_k/input_i.pb and output_i.pb). Takes folders; gives cases, their tensors, their programs
// and the comparison of arrays with what the suite expects. Errors of reading and importing pass through.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"
#include "import/onnx.h"
#include "import/onnx_wire.h"

namespace aicf::onnx_testing {

namespace fs = std::filesystem;

inline constexpr double kRelative = 1e-3, kAbsolute = 1e-6;  // the suite's own rtol; its atol is 1e-7

// All cases under `root`, or one level of folders below it, sorted.
inline std::vector<fs::path> find_cases(const fs::path& root) {
  std::vector<fs::path> cases;
  const auto is_case = [](const fs::path& p) {
    return fs::exists(p / "model.onnx") && fs::exists(p / "test_data_set_0");
  };
  for (const auto& entry : fs::directory_iterator(root)) {
    if (!entry.is_directory()) continue;
    if (is_case(entry.path())) {
      cases.push_back(entry.path());
      continue;
    }
    for (const auto& inner : fs::directory_iterator(entry.path()))
      if (inner.is_directory() && is_case(inner.path())) cases.push_back(inner.path());
  }
  std::sort(cases.begin(), cases.end());
  return cases;
}

inline std::vector<fs::path> data_sets(const fs::path& folder) {
  std::vector<fs::path> sets;
  for (int i = 0; fs::exists(folder / ("test_data_set_" + std::to_string(i))); ++i)
    sets.push_back(folder / ("test_data_set_" + std::to_string(i)));
  return sets;
}

inline Array read_tensor(const fs::path& path) {
  const auto file = MappedFile::open(path.string());
  return onnx::to_array(onnx::parse_tensor(file->text(), path.string()), file, "");
}

// `kind` is "input_" or "output_".
inline std::vector<Array> read_set(const fs::path& folder, const std::string& kind) {
  std::vector<Array> tensors;
  for (int i = 0; fs::exists(folder / (kind + std::to_string(i) + ".pb")); ++i)
    tensors.push_back(read_tensor(folder / (kind + std::to_string(i) + ".pb")));
  return tensors;
}

// Names in data files are not always those of the model; positions are.
inline std::vector<std::string> input_names(const fs::path& model) {
  const auto file = MappedFile::open(model.string());
  const onnx::ModelProto proto = onnx::parse_model(file->text(), file, model.string());
  std::vector<std::string> names;
  for (const auto& input : proto.graph.inputs)
    if (std::none_of(proto.graph.initializers.begin(), proto.graph.initializers.end(),
                     [&](const auto& tensor) { return tensor->name == input.name; }))
      names.push_back(input.name);
  return names;
}

inline std::map<std::string, Array> read_inputs(const fs::path& model, const fs::path& set) {
  const std::vector<std::string> names = input_names(model);
  const std::vector<Array> arrays = read_set(set, "input_");
  std::map<std::string, Array> inputs;
  for (size_t i = 0; i < arrays.size() && i < names.size(); ++i) inputs.emplace(names[i], arrays[i]);
  return inputs;
}

// Dynamic sizes get the sizes of these inputs; inputs that decide shapes are given to the importer one by
// one, as the error names them.
inline Program import_for(const fs::path& model, const std::map<std::string, Array>& inputs) {
  ImportOptions options;
  for (const OnnxDim& dim : dynamic_dims_onnx(model.string())) {
    const auto input = inputs.find(dim.input);
    if (input != inputs.end() && dim.axis < input->second.rank())
      options.dims[dim.name].values = {input->second.sizes()[static_cast<size_t>(dim.axis)]};
  }
  while (true) {
    try {
      return import_onnx(model.string(), options);
    } catch (const UserError& error) {
      const auto input = inputs.find(error.value);
      if (error.code != ErrorCode::kU_size_not_static || input == inputs.end() ||
          !options.input_values.emplace(input->first, input->second).second)
        throw;
    }
  }
}

// "" if equal (floats within the tolerance), else the first difference.
inline std::string compare(const std::string& name, const Array& want, const Array& got) {
  if (want.dtype() != got.dtype() || want.sizes() != got.sizes())
    return name + " is " + std::string(dtype_name(got.dtype())) + to_string(got.sizes()) + ", not " +
           std::string(dtype_name(want.dtype())) + to_string(want.sizes());
  const double relative = is_float(want.dtype()) ? kRelative : 0;
  for (int64_t i = 0; i < want.count(); ++i) {
    const double a = want.get_f64(i), b = got.get_f64(i);
    if (std::isnan(a) && std::isnan(b)) continue;
    const bool close = a == b || (std::isfinite(a) && std::abs(a - b) <= kAbsolute + relative * std::abs(a));
    if (!close)
      return name + "[" + std::to_string(i) + "] is " + std::to_string(b) + ", not " + std::to_string(a);
  }
  return "";
}

}  // namespace aicf::onnx_testing
