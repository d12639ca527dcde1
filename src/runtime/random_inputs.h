// Inputs made up for a model: what verify, bench and `run --input NAME=random` feed it. The values are a
// function of the seed, the input's name and the index, on every machine.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/array.h"
#include "runtime/executable.h"

namespace aicf {

using ValueRanges = std::map<std::string, Interval, std::less<>>;

// Floats are standard normal, or uniform in the input's range. Integers are uniform in it, default 0..1,
// which is a legal index for any axis of two or more; bools are fair coins. Sizes are those given, else the
// lowest of their ranges.
std::map<std::string, Array> random_inputs(const Plan& plan, const EntryPlan& entry,
                                           const SymbolValues& sizes, uint64_t seed,
                                           const ValueRanges& ranges = {});
// Every size of the plan: the given value, else the low end of its range. unset_size for a name that the plan
// does not have.
SymbolValues choose_sizes(const Plan& plan, const SymbolValues& wanted);

}  // namespace aicf
