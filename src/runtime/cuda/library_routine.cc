#include "runtime/cuda/library_routine.h"

#include "base/dynamic_library.h"
#include "base/error.h"
#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/cudnn.h"

namespace aicf::cuda {
namespace {

const char* library_name(const LibraryCall& call) {
  return std::holds_alternative<CublasLtCall>(call) ? "cuBLASLt" : "cuDNN";
}

int64_t installed_version(const LibraryCall& call) {
  return std::holds_alternative<CublasLtCall>(call) ? cublaslt_version() : cudnn_version();
}

}  // namespace

UserError refused_by_library(const LibraryCall& call, const std::string& origin, const std::string& why) {
  return UserError(ErrorCode::kU_bad_artifact,
                   std::string("a step cannot be handed to ") + library_name(call))
      .with_op(origin)
      .with_actual(why)
      .with_remedy("compile the model again");
}

std::unique_ptr<LibraryRoutine> open_library_routine(const LibraryCall& call, const BoundCall& step,
                                                     const std::string& origin) {
  const int64_t recorded = std::visit([](const auto& own) { return own.version; }, call);
  const int64_t installed = installed_version(call);
  if (recorded != installed) {
    if (library_fallback_wanted()) return nullptr;
    throw EnvironmentError(ErrorCode::kE_library_unusable,
                           std::string(library_name(call)) + " has another version than when this was tuned")
        .with_op(origin)
        .with_expected(std::to_string(recorded))
        .with_actual(std::to_string(installed))
        .with_remedy(
            "install that version, run own kernels in its place with AICF_LIBRARY_FALLBACK=1, or tune again");
  }
  if (const auto* cublaslt = std::get_if<CublasLtCall>(&call))
    return make_cublaslt_routine(*cublaslt, step, origin);
  return make_cudnn_routine(std::get<CudnnCall>(call), step, origin);
}

}  // namespace aicf::cuda
