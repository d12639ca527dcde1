// The passes over a graph's selected calls, on a GPU, in their order: those that make one call of two, then
// the one that lets small calls share launches. Names are those of CompileOptions::skip_passes.
#pragma once

#include "select/choose.h"
#include "select/kernel_call.h"
#include "target/target.h"

namespace aicf {

struct CallPassInput {
  KernelCalls& calls;
  const Graph& graph;
  std::vector<TileProgram>& programs;  // of the calls' regions
  const Target& target;
  const SelectOptions& options;
};

struct CallPass {
  const char* name;
  bool joins;  // runs before the calls' choices are told; a bundle would hide those of its members
  void (*run)(const CallPassInput& input);
};

const std::vector<CallPass>& call_passes();

}  // namespace aicf
