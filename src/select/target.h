// What passes may know about a target: its name and which ops its kernels serve. A pure function of the
// kernel tables, so that compiling for a machine needs no such machine.
#pragma once

#include <string>

#include "ir/graph.h"

namespace aicf {

struct Target {
  std::string name = "cpu";

  // Whether a kernel serves this node as it stands. A claimed node always gets a kernel; an unclaimed
  // composite is decomposed, an unclaimed primitive is the error no_kernel.
  bool claims(const Graph& graph, const Node& node) const;
  // Whether generated code can compute this node as part of a region.
  bool fuses(const Graph& graph, const Node& node) const;
  // Whether a kernel for this contraction can run a region over its result while a tile of it is in cache.
  bool takes_epilogue(const Graph& graph, const Node& node) const;
};

}  // namespace aicf
