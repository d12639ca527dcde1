// Work that several threads share out among themselves, where there is no pool of them.
#pragma once

#include <cstdint>
#include <functional>

namespace aicf {

// `work`, which takes the next piece until none is left and must not throw, on this thread and on helpers:
// as many as `bytes` and the machine's cores are worth. Returns when all have returned.
void run_with_helpers(int64_t bytes, const std::function<void()>& work);

}  // namespace aicf
