// What recompute_values decides, and the graph that follows from it. Regions of a graph are units; values
// that units give are removed, and computed again by the units that read them, for which others are stored.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "passes/region_body.h"

namespace aicf {

// A region with its results by the ids of the graph.
struct RecomputedRegion : RegionBody {
  const Node* node = nullptr;
  std::vector<ValueId> results;
  std::set<ValueId> needs;  // operands after the changes
  bool changed = false;
};

// A value of a unit's body.
using Inner = std::pair<size_t, ValueId>;

struct RecomputePlan {
  const Graph& graph;
  std::vector<RecomputedRegion> units = {};
  std::vector<int> unit_of = {};          // by node; -1: none
  std::map<ValueId, Inner> removed = {};  // results that readers compute again
  std::vector<Inner> gained = {};         // stored from now on; their ids follow those of the graph
  std::map<Inner, ValueId> gained_ids = {};

  // Of a value of the graph, or of one that is gained.
  const TensorType& type_of(ValueId id) const;
  // The id of a body's value that its unit stores; kNoValue: it does not, or no longer.
  ValueId stored_as(const Inner& value) const;
};

Graph emit_recomputed(const RecomputePlan& plan);

}  // namespace aicf
