// Which calls share a launch on a GPU. Takes the selected calls of a graph and the programs of their regions;
// where several small calls take less time in one launch than in one each, a bundle takes their place. The
// rest keep their order, but for calls that share no memory with a bundle, which may pass it.
#pragma once

#include "calls/call_code.h"
#include "select/call_program.h"
#include "select/choose.h"

namespace aicf {

// The name that leaves bundles out (CompileOptions::skip_passes).
inline constexpr char kBundleCalls[] = "bundle_calls";

// Whether a call with this code can be a member.
bool joins_bundle(const CudaCode& code);

// Blocks of one cluster, or 1, that a bundle of several stages runs in, if its widest stage has so many.
int bundle_blocks(int64_t widest_stage, const Target& target);

void bundle_calls(CallGraph& calls, const Target& target, const SelectOptions& options);

}  // namespace aicf
