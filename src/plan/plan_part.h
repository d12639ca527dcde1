// A part of a plan: some of its entries, and what they need of the rest.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace aicf {

struct PlanPart {
  Plan plan;
  std::vector<size_t> modules;  // those of the whole that the part keeps, by number
};

// Entries of these names, with init's steps for the weights that they read packed. Steps, arenas and places
// of packed weights are those of the whole, so every entry computes the same bits.
PlanPart part_of(const Plan& whole, const std::set<std::string>& names);

// Names of the buffers of this kind in all entries, buckets and bodies.
std::set<std::string> buffer_names(const Plan& plan, BufferKind kind);

}  // namespace aicf
