#include "tune/library_candidates.h"

#include <algorithm>

#include "base/dynamic_library.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/cuda/cublaslt.h"
#include "select/library_call.h"

namespace aicf {
namespace {

constexpr int64_t kMostWorkspace = int64_t{32} << 20;  // bytes; what the library's own users give it

bool is_installed() {
  try {
    cuda::cublaslt_version();
    return true;
  } catch (const EnvironmentError& error) {
    log_at(LogLevel::kInfo, [&] { return std::string("tuning without cuBLASLt: ") + error.what(); });
    return false;
  }
}

}  // namespace

void add_library_candidates(std::vector<TuneProblem>& problems, int count) {
  if (!vendor_libraries_allowed() || !is_installed()) return;
  for (TuneProblem& problem : problems) {
    if (problem.key.op != "matmul") continue;
    const auto form = cublaslt_form(problem.call, problem.region ? &*problem.region : nullptr);
    if (!form) continue;
    const PlainOperands operands = *plain_operands(problem.call);
    double best = problem.candidates[0].microseconds;
    for (const Candidate& own : problem.candidates) best = std::min(best, own.microseconds);
    // There is no estimate of a library: its candidates count as fast as the best own one.
    for (const CublasLtCall& call :
         cuda::cublaslt_algorithms(*form, operands.inputs, operands.outputs[0], count, kMostWorkspace))
      problem.candidates.push_back({std::string(kCublasLtKernel), to_string(call), best});
  }
}

}  // namespace aicf
