// How much memory the values between calls take. Takes calls in their order, of which removed
// ones stand for none, and the calls of the graph that say what the values are; sizes are those of the upper
// bounds. An arena is at least as large.
#pragma once

#include "select/call_program.h"

namespace aicf {

int64_t peak_live_bytes(const std::vector<KernelCall>& order, const CallGraph& calls);

}  // namespace aicf
