// What join_gathers and join_scatters share: a call whose result one region alone reads is done by that
// region, and one call takes the place of two, with the same bits and errors. Graph, regions and programs
// stay as they are.
#pragma once

#include "calls/decision.h"
#include "calls/join_site.h"

namespace aicf {

struct RegionJoin {
  const char* kernel;  // of the call that does both
  const char* reason;  // what its region does itself
  size_t source;       // the call's input that takes the place of its result among the region's inputs
  // Of a region that reads the call's result.
  Decision (*takes)(const KernelCall& region, const KernelCall& call, const CallGraph& graph);
};

// With the call at this place, whose indices come after the region's own inputs.
void join_into_region(JoinSite& site, size_t at, const RegionJoin& join);

}  // namespace aicf
