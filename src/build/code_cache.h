// Compiled CUDA text by content: the folder AICF_CACHE_DIR holds a file per translation unit. Its name is the
// hash of all that decides its bytes: text, included headers, compiler version, target. Files appear by
// rename, so readers never see half of one, and a folder that cannot be written only costs time.
#pragma once

#include <string>
#include <vector>

#include "build/nvrtc.h"

namespace aicf {

// As compile_cuda, each unit at most once for every content while the cache lives. Without AICF_CACHE_DIR
// nothing is kept. `milliseconds`: as there, 0 for what the cache has.
std::vector<std::string> compile_cached(const std::vector<CudaUnit>& units,
                                        std::vector<double>* milliseconds = nullptr);

}  // namespace aicf
