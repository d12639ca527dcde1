// A vendor library's routine that runs in place of a step's own kernels: made for the step's windows, then
// enqueued on streams, which a graph captures.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/common/library_call.h"
#include "runtime/cuda/driver.h"

namespace aicf::cuda {

class LibraryRoutine {
 public:
  virtual ~LibraryRoutine() = default;
  // Addresses are those of the windows given, which are the step's; the workspace has the bytes of its call.
  virtual void enqueue(const BoundCall& call, void* workspace, StreamHandle stream) = 0;
};

// In the current context. bad_artifact if the library cannot take the step, device_missing if it is not
// there, library_unusable if it has another version; null if own kernels may run in that case
// (library_fallback_wanted()).
std::unique_ptr<LibraryRoutine> open_library_routine(const LibraryCall& call, const BoundCall& step,
                                                     const std::string& origin);

// The call is none that the library can serve: bad_artifact that says why.
UserError refused_by_library(const LibraryCall& call, const std::string& origin, const std::string& why);

}  // namespace aicf::cuda
