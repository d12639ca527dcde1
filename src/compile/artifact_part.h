// A part of an artifact: some entries of its program, in every variant as they are compiled, with the params,
// states and constants that they need. Nothing is compiled.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "artifact/artifact.h"

namespace aicf {

// Those of a model as it is used: without the entries that training adds.
std::set<std::string> inference_entries(const Artifact& artifact);

// bad_option, listing them, if the artifact has no entry of one of these names.
Artifact part_of(const Artifact& whole, const std::set<std::string>& entries);

}  // namespace aicf
