// What join_gathers and join_scatters share: a call whose result one region alone reads is done by that
// region, and one call takes the place of two.
#pragma once

#include <functional>

#include "select/call_program.h"

namespace aicf {

struct RegionJoin {
  const char* kernel;  // of the call that does both
  const char* reason;  // what its region does itself
  size_t source;       // the call's input that takes the place of its result among the region's inputs
  size_t indices;      // the call's input that comes after the region's own
  std::function<bool(const KernelCall& call)> may_join;
  std::function<bool(const KernelCall& region, const KernelCall& call)> takes;
};

// Wherever a call that may join is read by one region alone, which takes it, and may run as late.
void join_into_regions(CallGraph& calls, const RegionJoin& join);

// Whether a call is that of one region, which reads this window and nothing else of the same value.
bool is_region_that_reads(const KernelCall& call, const Window& result);

}  // namespace aicf
