// What the passes that make one call of two and choose its variant have at hand; see CallPass.
#pragma once

#include "calls/legality.h"
#include "select/call_program.h"
#include "select/choose.h"

namespace aicf {

class CallJoiner {
 public:
  CallJoiner(CallGraph& calls, const Target& target, const SelectOptions& options)
      : all_(calls),
        calls_(calls.calls),
        programs_(calls.programs),
        ranges_(calls.ranges),
        target_(target),
        options_(options),
        legality_(calls) {}

 protected:
  const TileProgram& program_of(const KernelCall& call) const { return all_.program_of(call); }

  const CallGraph& all_;
  const std::vector<KernelCall>& calls_;
  std::vector<TileProgram>& programs_;
  const SymbolRanges& ranges_;
  const Target& target_;
  const SelectOptions& options_;
  Legality legality_;  // changes the calls
};

}  // namespace aicf
