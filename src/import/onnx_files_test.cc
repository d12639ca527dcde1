// Imports every case of a folder in the layout of the ONNX backend suite (CASE/model.onnx, CASE/test_data_set_*/input_k.pb and
// output_k.pb), evaluates it with the reference evaluator and compares. AICF_ONNX_TESTS names the folder, AICF_ONNX_FILTER
// (a substring) picks cases; without the first the test is skipped. It prints a summary and fails only on a crash-like
// internal error: the checked-in expectation list lives with the backend suite of the Python package.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "base/error.h"
#include "base/mapped_file.h"
#include "import/onnx.h"
#include "import/onnx_wire.h"
#include "ir/reference/evaluator.h"
#include "ir/verify.h"

namespace aicf {
namespace {

namespace fs = std::filesystem;

constexpr double kRelative = 1e-3, kAbsolute = 1e-6;

std::pair<std::string, Array> read_tensor(const fs::path& path) {
  const auto file = MappedFile::open(path.string());
  const onnx::TensorProto tensor = onnx::parse_tensor(file->text(), path.string());
  return {tensor.name, onnx::to_array(tensor, file, "")};
}

std::vector<std::pair<std::string, Array>> read_set(const fs::path& folder, const std::string& kind) {
  std::vector<std::pair<std::string, Array>> tensors;
  for (int i = 0; fs::exists(folder / (kind + std::to_string(i) + ".pb")); ++i)
    tensors.push_back(read_tensor(folder / (kind + std::to_string(i) + ".pb")));
  return tensors;
}

// Names in data files are not always those of the model; positions are.
std::vector<std::string> input_names(const fs::path& model) {
  const auto file = MappedFile::open(model.string());
  const onnx::ModelProto proto = onnx::parse_model(file->text(), file, model.string());
  std::vector<std::string> names;
  for (const auto& input : proto.graph.inputs)
    if (std::none_of(proto.graph.initializers.begin(), proto.graph.initializers.end(),
                     [&](const auto& tensor) { return tensor->name == input.name; }))
      names.push_back(input.name);
  return names;
}

std::string compare(const std::string& name, const Array& want, const Array& got) {
  if (want.dtype() != got.dtype() || want.sizes() != got.sizes())
    return name + " is " + std::string(dtype_name(got.dtype())) + to_string(got.sizes()) + ", not " +
           std::string(dtype_name(want.dtype())) + to_string(want.sizes());
  for (int64_t i = 0; i < want.count(); ++i) {
    const double a = want.get_f64(i), b = got.get_f64(i);
    if (std::isnan(a) && std::isnan(b)) continue;
    const bool close = a == b || std::abs(a - b) <= kAbsolute + kRelative * std::abs(a);
    if (!close) return name + "[" + std::to_string(i) + "] is " + std::to_string(b) + ", not " + std::to_string(a);
  }
  return "";
}

// Inputs that decide shapes are given to the importer one by one, as the error names them.
Program import_with_values(const std::string& path, ImportOptions options, const std::map<std::string, Array>& inputs) {
  while (true) {
    try {
      return import_onnx(path, options);
    } catch (const UserError& error) {
      const auto input = inputs.find(error.value);
      if (error.code != ErrorCode::kU_size_not_static || input == inputs.end() ||
          !options.input_values.emplace(input->first, input->second).second)
        throw;
    }
  }
}

// "" if the case passes.
std::string run_set(const fs::path& model, const fs::path& set) {
  const std::vector<std::string> names = input_names(model);
  const auto inputs = read_set(set, "input_");
  EvalInputs eval;
  ImportOptions options;
  for (size_t i = 0; i < inputs.size() && i < names.size(); ++i) eval.inputs.emplace(names[i], inputs[i].second);
  for (const OnnxDim& dim : dynamic_dims_onnx(model.string())) {
    auto input = eval.inputs.find(dim.input);
    if (input != eval.inputs.end() && dim.axis < input->second.rank())
      options.dims[dim.name].values = {input->second.sizes()[static_cast<size_t>(dim.axis)]};
  }
  const Program program = import_with_values(model.string(), options, eval.inputs);
  verify(program, Fault::kInternal);
  const EvalResult result = evaluate(program, program.entries[0], eval);
  const auto wanted = read_set(set, "output_");
  const auto& output_names = program.entries[0].output_names();
  if (wanted.size() > output_names.size()) return "too few outputs";
  for (size_t i = 0; i < wanted.size(); ++i)
    if (auto text = compare(output_names[i], wanted[i].second, result.outputs.at(output_names[i])); !text.empty())
      return text;
  return "";
}

struct Summary {
  int passed = 0, passed_plain = 0, total = 0, internal = 0;
  std::map<std::string, int> reasons;
};

void run_case(const fs::path& folder, Summary& summary, bool verbose) {
  const std::string name = folder.filename().string();
  ++summary.total;
  std::string failure, reason;
  try {
    for (int i = 0; fs::exists(folder / ("test_data_set_" + std::to_string(i))) && failure.empty(); ++i)
      failure = run_set(folder / "model.onnx", folder / ("test_data_set_" + std::to_string(i)));
    reason = failure.empty() ? "" : "wrong result";
  } catch (const Error& error) {
    failure = error.text();
    reason = std::string(error_info(error.code).name) + ": " + (error.op.empty() ? error.message.substr(0, 60) : error.op);
    summary.internal += error.kind() == ErrorKind::kInternal;
  }
  if (failure.empty()) {
    ++summary.passed;
    summary.passed_plain += name.find("_expanded") == std::string::npos;
    return;
  }
  ++summary.reasons[reason];
  if (verbose) std::cout << "FAIL " << name << " | " << failure << "\n";
}

TEST(OnnxFiles, SuiteOnTheReferenceEvaluator) {
  const char* root = std::getenv("AICF_ONNX_TESTS");
  if (root == nullptr) GTEST_SKIP() << "set AICF_ONNX_TESTS to a folder of ONNX backend cases";
  const char* filter = std::getenv("AICF_ONNX_FILTER");
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(root))
    if (fs::exists(entry.path() / "model.onnx") &&
        (filter == nullptr || entry.path().filename().string().find(filter) != std::string::npos))
      folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  Summary summary;
  for (const fs::path& folder : folders) run_case(folder, summary, true);
  std::vector<std::pair<int, std::string>> reasons;
  for (const auto& [reason, count] : summary.reasons) reasons.emplace_back(-count, reason);
  std::sort(reasons.begin(), reasons.end());
  for (const auto& [count, reason] : reasons) std::cout << "REASON " << -count << "  " << reason << "\n";
  std::cout << "passed " << summary.passed << " of " << summary.total << " (not expanded: " << summary.passed_plain << ")\n";
  EXPECT_EQ(summary.internal, 0);
}

}  // namespace
}  // namespace aicf
