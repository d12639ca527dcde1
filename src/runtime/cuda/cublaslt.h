// Contractions by cuBLASLt, which is loaded at run time. Takes bound windows and a CublasLtCall. Names and
// values are those of NVIDIA's cuBLASLt reference.
#pragma once

#include "runtime/cuda/library_routine.h"

namespace aicf::cuda {

// 130101: 13.1.1. EnvironmentError device_missing if the library is not there.
int64_t cublaslt_version();

// bad_artifact if the library cannot take these windows or the algorithm is none for this problem.
std::unique_ptr<LibraryRoutine> make_cublaslt_routine(const CublasLtCall& call, const BoundCall& step,
                                                      const std::string& origin);

// Calls of the same meaning with the algorithms that the library recommends, best first, none of which needs
// more workspace than `most_workspace`. Empty if it has none.
std::vector<CublasLtCall> cublaslt_algorithms(const CublasLtCall& meaning,
                                              const std::vector<TensorArg>& inputs, const TensorArg& out,
                                              int count, int64_t most_workspace);

}  // namespace aicf::cuda
