// Which calls share a launch on a GPU. Takes the selected calls of a graph and the programs of their regions;
// where several small calls take less time in one launch than in one each, a bundle takes their place. The
// rest keep their order, but for calls that share no memory with a bundle, which may pass it.
#pragma once

#include "build/call_code.h"

namespace aicf {

// The name that leaves bundles out (CompileOptions::skip_passes).
inline constexpr char kBundleCalls[] = "bundle_calls";

void bundle_calls(KernelCalls& calls, const std::vector<TileProgram>& programs, const Target& target,
                  const SymbolRanges& ranges);

}  // namespace aicf
