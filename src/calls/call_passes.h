// The passes over a GPU's calls, in their order: those that make one call of two, then the one that stores
// weights for their readers, then the one that lets small calls share launches. Names are those of
// CompileOptions::skip_passes.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "select/call_program.h"
#include "select/choose.h"

namespace aicf {

// A pass over the calls of a graph.
struct CallPass {
  const char* name;
  bool joins;  // runs before the calls' choices are told; a bundle would hide those of its members
  void (*run)(CallGraph& calls, const Target& target, const SelectOptions& options);
};

const std::vector<CallPass>& call_passes();
// And that over a whole program.
std::vector<std::string> call_pass_names();

// All passes but those of `skip`, over every graph. `joined` gets each of them when its calls are joined.
void run_call_passes(CallProgram& program, const SelectOptions& options, const std::set<std::string>& skip,
                     const std::function<void(const CallGraph&)>& joined);

}  // namespace aicf
