#include "tune/library_candidates.h"

#include "base/dynamic_library.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/cudnn.h"
#include "select/choose.h"
#include "select/library_call.h"

namespace aicf {
namespace {

constexpr int64_t kMostWorkspace = int64_t{32} << 20;  // bytes; what the library's own users give it

// Calls of the library that the form is of, best first; none if it is not installed.
std::vector<LibraryCall> advised_calls(const LibraryCall& form, const BoundCall& step, int count) {
  std::vector<LibraryCall> calls;
  try {
    if (const auto* product = std::get_if<CublasLtCall>(&form)) {
      for (const CublasLtCall& call :
           cuda::cublaslt_algorithms(*product, step.inputs, step.outputs[0], count, kMostWorkspace))
        calls.emplace_back(call);
    } else {
      for (const CudnnCall& call :
           cuda::cudnn_engines(std::get<CudnnCall>(form), step, count, kMostWorkspace))
        calls.emplace_back(call);
    }
  } catch (const EnvironmentError& error) {
    log_at(LogLevel::kInfo, [&] { return std::string("tuning without a library: ") + error.what(); });
  }
  return calls;
}

}  // namespace

void add_library_candidates(std::vector<TuneProblem>& problems, int count) {
  if (!vendor_libraries_allowed()) return;
  for (TuneProblem& problem : problems) {
    const auto form = library_form(problem.call, problem.key.op, problem.region ? &*problem.region : nullptr);
    if (!form) continue;
    const Target target = Target::from_name(problem.key.target);
    for (const LibraryCall& call : advised_calls(*form, *plain_step(problem.call), count))
      problem.candidates.push_back(library_candidate(call, problem.call, problem.candidates[0], target, {}));
  }
}

}  // namespace aicf
