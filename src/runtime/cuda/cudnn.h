// Convolutions and attention by cuDNN, which is loaded at run time. Takes bound windows and a CudnnCall,
// whose engine and knobs it obeys.
#pragma once

#include "runtime/cuda/library_routine.h"

namespace aicf::cuda {

// 91901: 9.19.1. EnvironmentError device_missing if the library is not there.
int64_t cudnn_version();

// bad_artifact if the library cannot take the step or the engine is none for it.
std::unique_ptr<LibraryRoutine> make_cudnn_routine(const CudnnCall& call, const BoundCall& step,
                                                   const std::string& origin);

// Calls of the same meaning with the engines that the library recommends, best first, none of which needs
// more workspace than `most_workspace` or may give other bits in another run. Empty if it has none.
std::vector<CudnnCall> cudnn_engines(const CudnnCall& meaning, const BoundCall& step, int count,
                                     int64_t most_workspace);

}  // namespace aicf::cuda
