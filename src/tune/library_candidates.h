// Calls of vendor libraries as candidates: only the library itself, on a GPU, knows its algorithms.
#pragma once

#include "tune/trial.h"

namespace aicf {

// Adds the algorithms that cuBLASLt recommends to every problem that it can compute; nothing if libraries are
// switched off or it is not installed. The device's context must be current in this thread.
void add_library_candidates(std::vector<TuneProblem>& problems, int count);

}  // namespace aicf
