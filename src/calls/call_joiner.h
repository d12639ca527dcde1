// What the passes that make one call of two and choose its variant have at hand; see CallPassInput.
#pragma once

#include "calls/call_passes.h"
#include "calls/call_windows.h"

namespace aicf {

class CallJoiner {
 public:
  explicit CallJoiner(const CallPassInput& input)
      : all_(input.calls),
        calls_(input.calls.calls),
        graph_(input.graph),
        programs_(input.programs),
        target_(input.target),
        options_(input.options) {}

 protected:
  const TileProgram& program_of(const KernelCall& call) const {
    return programs_[static_cast<size_t>(call.region)];
  }

  // Whether anybody but these two calls needs a value.
  bool is_needed(ValueId root, size_t one, size_t other) const {
    if (is_kept(root, all_, graph_)) return true;
    for (size_t i = 0; i < calls_.size(); ++i)
      if (i != one && i != other && meets(calls_[i].inputs, root)) return true;
    return false;
  }

  const KernelCalls& all_;
  std::vector<KernelCall>& calls_;
  const Graph& graph_;
  std::vector<TileProgram>& programs_;
  const Target& target_;
  const SelectOptions& options_;
};

}  // namespace aicf
