// Imports every case of a folder in the layout of the ONNX backend suite (or of folders of cases), evaluates
// it with the reference evaluator and compares. AICF_ONNX_TESTS names the folder, AICF_ONNX_FILTER (a
// substring) picks cases; without the first the test is skipped. It prints a summary and fails only on a
// crash-like internal error: the checked-in list of expected failures belongs to the suite of compiled
// kernels, compile/onnx_suite_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "base/error.h"
#include "import/testing/onnx_case.h"
#include "ir/reference/evaluator.h"
#include "ir/verify.h"

namespace aicf {
namespace {

using namespace onnx_testing;

// "" if the case passes.
std::string run_set(const fs::path& model, const fs::path& set) {
  EvalInputs eval;
  eval.inputs = read_inputs(model, set);
  const Program program = import_for(model, eval.inputs);
  verify(program, Fault::kInternal);
  const EvalResult result = evaluate(program, program.entries[0], eval);
  const auto wanted = read_set(set, "output_");
  const auto& output_names = program.entries[0].output_names();
  if (wanted.size() > output_names.size()) return "too few outputs";
  for (size_t i = 0; i < wanted.size(); ++i)
    if (auto text = compare(output_names[i], wanted[i], result.outputs.at(output_names[i])); !text.empty())
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
    for (const fs::path& set : data_sets(folder))
      if (failure.empty()) failure = run_set(folder / "model.onnx", set);
    reason = failure.empty() ? "" : "wrong result";
  } catch (const Error& error) {
    failure = error.text();
    reason = std::string(error_info(error.code).name) + ": " +
             (error.op.empty() ? error.message.substr(0, 60) : error.op);
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
  std::vector<fs::path> folders = find_cases(root);
  if (filter != nullptr)
    std::erase_if(folders,
                  [&](const fs::path& p) { return p.filename().string().find(filter) == std::string::npos; });
  Summary summary;
  for (const fs::path& folder : folders) run_case(folder, summary, true);
  std::vector<std::pair<int, std::string>> reasons;
  for (const auto& [reason, count] : summary.reasons) reasons.emplace_back(-count, reason);
  std::sort(reasons.begin(), reasons.end());
  for (const auto& [count, reason] : reasons) std::cout << "REASON " << -count << "  " << reason << "\n";
  std::cout << "passed " << summary.passed << " of " << summary.total
            << " (not expanded: " << summary.passed_plain << ")\n";
  EXPECT_EQ(summary.internal, 0);
}

}  // namespace
}  // namespace aicf
