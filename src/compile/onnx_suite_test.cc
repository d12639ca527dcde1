// The ONNX backend suite through the whole flow: import, compile, load, run on the CPU, compare; unoptimised
// with portable kernels, and optimised with the best of this machine. AICF_ONNX_TESTS names the folder of
// cases (or of folders of cases); AICF_ONNX_FILTER (a substring) picks cases, without judging the list. The
// set of failing cases must be that of onnx_expected_failures.txt (case, tab, reason); AICF_ONNX_WRITE=path
// writes such a list, keeping the reasons of cases that are listed already.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <set>

#include "base/comma_list.h"
#include "compile/compile.h"
#include "compile/testing/test_device.h"
#include "import/testing/onnx_case.h"
#include "kernels/common/kernel.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/executable.h"

namespace aicf::onnx_suite_test {
namespace {

using namespace onnx_testing;

struct Outcome {
  std::string stage = "passed";  // or the stage that failed: read import compile load run compare
  std::string reason, detail;
  bool passed() const { return stage == "passed"; }
};

std::string case_name(const fs::path& folder) {
  return folder.parent_path().filename().string() + "/" + folder.filename().string();
}

// "  Loop (1, first 'y'): its reason" of the importer's list as "Loop: its reason".
std::string first_unsupported(const std::string& message) {
  const size_t line = message.find("\n  "), open = message.find(" (", line),
               close = message.find("): ", line);
  if (line == std::string::npos || open == std::string::npos || close == std::string::npos) return "";
  const size_t end = message.find('\n', close);
  return message.substr(line + 3, open - line - 3) + ": " +
         message.substr(close + 3, end == std::string::npos ? end : end - close - 3);
}

// One line, the op without the node's own name.
std::string reason_of(const Error& error) {
  const std::string code(error_info(error.code).name);
  if (const std::string listed = first_unsupported(error.message); !listed.empty())
    return code + ", " + listed;
  std::string op = error.op.substr(0, error.op.find(' '));
  if (op.empty()) op = error.message;
  if (!error.actual.empty() && error.code == ErrorCode::kU_unsupported_opset) op += " (" + error.actual + ")";
  std::replace(op.begin(), op.end(), '\n', ' ');
  return code + ", " + op;
}

// What kinds of values in the signature the IR does not have; "" if it has all.
std::string unserved_types(const fs::path& path) {
  const auto file = MappedFile::open(path.string());
  const onnx::ModelProto model = onnx::parse_model(file->text(), file, path.string());
  std::set<std::string> kinds;
  for (const auto* list : {&model.graph.inputs, &model.graph.outputs})
    for (const onnx::ValueInfo& value : *list) {
      const std::string type = onnx::data_type_name(value.elem_type);
      if (value.kind != "tensor")
        kinds.insert(value.kind + " types");
      else if (type == "STRING")
        kinds.insert("string tensors");
      else if (type.starts_with("FLOAT8") || type.starts_with("FLOAT4"))
        kinds.insert("f8 and f4 types");
      else if (type.starts_with("COMPLEX"))
        kinds.insert("complex types");
    }
  return comma_list(kinds);
}

std::string run_set(const fs::path& model, const fs::path& set, const std::shared_ptr<Device>& device,
                    int opt_level, std::string& stage) {
  stage = "read";
  const std::map<std::string, Array> inputs = read_inputs(model, set);
  const std::vector<Array> wanted = read_set(set, "output_");
  stage = "import";
  const Program program = import_for(model, inputs);
  stage = "compile";
  CompileOptions options;
  options.opt_level = opt_level;
  options.target = testing::TestDevice::get().target;
  Artifact artifact = compile(program, options);
  if (!testing::TestDevice::get().runs) return "";
  stage = "load";
  Executable exe(Model::load(std::move(artifact), device));
  stage = "run";
  const std::map<std::string, Array> results = exe.run("", inputs);
  stage = "compare";
  const std::vector<std::string>& names = program.entries[0].output_names();
  if (wanted.size() > names.size()) return "too few outputs";
  for (size_t i = 0; i < wanted.size(); ++i)
    if (std::string text = compare(names[i], wanted[i], results.at(names[i])); !text.empty()) return text;
  return "";
}

Outcome run_case(const fs::path& folder, const std::shared_ptr<Device>& device, int opt_level) {
  std::string stage;
  try {
    for (const fs::path& set : data_sets(folder))
      if (std::string text = run_set(folder / "model.onnx", set, device, opt_level, stage); !text.empty())
        return {stage, "wrong result", text};
    return {};
  } catch (const Error& error) {
    const std::string types = stage == "read" ? unserved_types(folder / "model.onnx") : "";
    return {stage, types.empty() ? reason_of(error) : types, error.text()};
  } catch (const std::exception& error) {
    return {stage, std::string("exception: ") + error.what(), error.what()};
  }
}

std::map<std::string, std::string> read_list(const fs::path& path) {
  std::map<std::string, std::string> list;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t tab = line.find('\t');
    EXPECT_TRUE(tab != std::string::npos && tab + 1 < line.size()) << "no reason: " << line;
    list[line.substr(0, tab)] = tab == std::string::npos ? "" : line.substr(tab + 1);
  }
  return list;
}

void write_list(const std::string& path, const std::map<std::string, Outcome>& outcomes,
                const std::map<std::string, std::string>& known) {
  std::ofstream file(path);
  for (const auto& [name, outcome] : outcomes) {
    if (outcome.passed()) continue;
    const auto old = known.find(name);
    file << name << '\t' << (old != known.end() ? old->second : outcome.reason) << '\n';
  }
}

void print_table(const std::map<std::string, Outcome>& outcomes) {
  std::map<std::string, std::pair<int, int>> folders;  // passed, total
  std::map<std::pair<std::string, std::string>, int> reasons;
  for (const auto& [name, outcome] : outcomes) {
    std::string folder = name.substr(0, name.find('/'));
    if (name.find("_expanded") != std::string::npos) folder += " (expanded)";
    folders[folder].first += outcome.passed();
    ++folders[folder].second;
    if (!outcome.passed()) ++reasons[{outcome.stage, outcome.reason}];
  }
  std::multimap<int, std::string, std::greater<>> sorted;
  for (const auto& [key, count] : reasons) sorted.emplace(count, key.first + "  " + key.second);
  for (const auto& [count, text] : sorted) std::cout << count << "  " << text << "\n";
  for (const auto& [folder, counts] : folders)
    std::cout << folder << ": " << counts.first << " of " << counts.second << " passed\n";
}

void compare_with_list(const std::map<std::string, Outcome>& outcomes,
                       std::map<std::string, std::string> list) {
  for (const auto& [name, outcome] : outcomes) {
    const bool listed = list.erase(name) != 0;
    if (outcome.passed() && listed) ADD_FAILURE() << name << " passes: remove it from the list";
    if (!outcome.passed() && !listed)
      ADD_FAILURE() << name << " fails in " << outcome.stage << ": " << outcome.detail;
  }
  for (const auto& [name, reason] : list)
    ADD_FAILURE() << name << " is listed but does not exist: remove it from the list";
}

struct Config {
  int opt_level;
  IsaLevel isa;
};
void PrintTo(const Config& config, std::ostream* out) {
  *out << "opt " << config.opt_level << ", " << isa_name(config.isa);
}

class OnnxSuite : public ::testing::TestWithParam<Config> {};

TEST_P(OnnxSuite, FailsExactlyWhereExpected) {
  const char* root = std::getenv("AICF_ONNX_TESTS");
  if (root == nullptr) GTEST_SKIP() << "set AICF_ONNX_TESTS to a folder of ONNX backend cases";
  const char* filter = std::getenv("AICF_ONNX_FILTER");
  const testing::TestDevice& where = testing::TestDevice::get();
  const std::shared_ptr<Device> device =
      where.cuda && where.runs ? open_device({"cuda"}) : make_cpu_device({2, GetParam().isa});
  std::vector<fs::path> folders;
  for (const fs::path& folder : find_cases(root))
    if (filter == nullptr || case_name(folder).find(filter) != std::string::npos) folders.push_back(folder);
  std::vector<Outcome> results(folders.size());
  where.for_each(folders.size(),
                 [&](size_t i) { results[i] = run_case(folders[i], device, GetParam().opt_level); });
  std::map<std::string, Outcome> outcomes;
  for (size_t i = 0; i < folders.size(); ++i) {
    outcomes[case_name(folders[i])] = results[i];
    if (filter != nullptr)
      std::cout << case_name(folders[i]) << " " << results[i].stage << " " << results[i].detail << std::endl;
  }
  print_table(outcomes);
  if (!where.runs) {
    for (const auto& [name, outcome] : outcomes)
      if (outcome.stage == "compile" && outcome.reason.find("no_kernel") == std::string::npos)
        std::cout << name << " " << outcome.detail << "\n";
  }
  const std::map<std::string, std::string> list =
      read_list(fs::path(AICF_SOURCE_DIR) / "src/compile/onnx_expected_failures.txt");
  if (const char* path = std::getenv("AICF_ONNX_WRITE"))
    write_list(path, outcomes, list);
  else if (filter == nullptr)
    compare_with_list(outcomes, list);
}

INSTANTIATE_TEST_SUITE_P(Configs, OnnxSuite,
                         ::testing::Values(Config{0, IsaLevel::kPortable}, Config{2, detect_isa()}));

}  // namespace
}  // namespace aicf::onnx_suite_test
