// What the passes that make one call of two and choose its variant have at hand; see CallPass.
#pragma once

#include "calls/call_windows.h"
#include "select/call_program.h"
#include "select/choose.h"

namespace aicf {

class CallJoiner {
 public:
  CallJoiner(CallGraph& calls, const Target& target, const SelectOptions& options)
      : all_(calls),
        calls_(calls.calls),
        graph_(calls.graph),
        programs_(calls.programs),
        ranges_(calls.ranges),
        target_(target),
        options_(options) {}

 protected:
  const TileProgram& program_of(const KernelCall& call) const { return all_.program_of(call); }

  // Whether anybody but these two calls needs a value.
  bool is_needed(ValueId root, size_t one, size_t other) const {
    if (is_kept(root, all_)) return true;
    for (size_t i = 0; i < calls_.size(); ++i)
      if (i != one && i != other && meets(calls_[i].inputs, root)) return true;
    return false;
  }

  const CallGraph& all_;
  std::vector<KernelCall>& calls_;
  const Graph& graph_;
  std::vector<TileProgram>& programs_;
  const SymbolRanges& ranges_;
  const Target& target_;
  const SelectOptions& options_;
};

}  // namespace aicf
