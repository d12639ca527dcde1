// What others know of the calls that bundle_calls makes (kBundleKernel): which calls may be members, and in
// how many blocks their stages run.
#pragma once

#include "calls/call_code.h"
#include "target/target.h"

namespace aicf {

// Whether a call with this code can be a member.
bool joins_bundle(const CudaCode& code);

// Blocks of one cluster, or 1, that a bundle of several stages runs in, if its widest stage has so many.
int bundle_blocks(int64_t widest_stage, const Target& target);

}  // namespace aicf
