// What calls take of a GPU, for the rules that put calls together or side by side. All in microseconds, on
// the machine that the target's facts are of, at the upper ends of the ranges.
#pragma once

#include <vector>

#include "calls/call_code.h"

namespace aicf {

// The price of a call that stays as it is: of what was chosen, or by the cost model. A library's call without
// candidates has none: 0.
double price_of(const KernelCall& call, const CodeContext& context);

// Of a call that runs by itself. `busy`: for how long it needs the whole device, which it takes from others
// that run beside it.
struct CallCost {
  double time = 0, busy = 0;
};
CallCost cost_of(const KernelCall& call, const CodeContext& context);

// Of a member of a bundle: what its slowest block takes, its bytes at the memory's rate, and the part of the
// multiprocessors that its blocks keep busy side by side.
struct MemberCost {
  int64_t blocks = 0;  // at most
  double block_time = 0, bytes_time = 0, part = 0;
  int stage = 0;
};
// `launch`: that of the call's text as a member.
MemberCost member_cost(const KernelCall& call, const CudaLaunch& launch, const CodeContext& context);
// Of the launch: members of one stage run side by side; several stages one after the other, in one cluster.
CallCost bundle_cost(const std::vector<MemberCost>& members, const Target& target);

}  // namespace aicf
