// Compiled CUDA text by content: the folder AICF_CACHE_DIR holds, for every version of the compiler, a file
// per translation unit. Its name is the hash of all else that decides its bytes: text, included headers,
// options, target. Files appear by rename, so readers never see half of one; of processes that want the same
// unit at once one compiles it and the others wait. The folder may be moved, and one that cannot be written
// only costs time.
#pragma once

#include <string>
#include <vector>

#include "build/nvrtc.h"

namespace aicf {

// As compile_cuda, each unit at most once for every content while the cache lives. Without AICF_CACHE_DIR
// nothing is kept; with AICF_JIT=0 nothing is compiled, and what the cache lacks is unsupported_option.
// `milliseconds`: as there, 0 for what the cache has.
std::vector<std::string> compile_cached(const std::vector<CudaUnit>& units,
                                        std::vector<double>* milliseconds = nullptr);

}  // namespace aicf
