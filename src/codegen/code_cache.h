// Compiled CUDA text by content: the folder AICF_CACHE_DIR holds, for every version of the compiler, a file
// per translation unit. Its name is the hash of all else that decides its bytes: text, included headers,
// options, target. Files appear by rename, so readers never see half of one; of processes and threads that
// want the same units at once one compiles them and the others wait; if they do not compile, those who wait
// get its error. The folder may be moved, and one that cannot be written only costs time.
#pragma once

#include <string>
#include <vector>

#include "codegen/nvrtc.h"

namespace aicf {

// As compile_cuda, each unit at most once for every content while the cache lives. Without AICF_CACHE_DIR
// nothing is kept; with AICF_JIT=0 nothing is compiled, and what the cache lacks is unsupported_option.
// `milliseconds`: as there, 0 for what the cache has; `here`: for what is compiled, as in run_forked.
std::vector<std::string> compile_cached(const std::vector<CudaUnit>& units,
                                        std::vector<double>* milliseconds = nullptr,
                                        const WhileForked& here = {});

}  // namespace aicf
