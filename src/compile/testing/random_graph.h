// Random legal programs for property tests: a function of the seed alone. Sizes are small; about half of the
// programs have the symbolic size "batch". Values stay in ranges that make every index legal.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ir/graph.h"

namespace aicf::testing {

inline constexpr int64_t kMaxBatch = 5;

Program random_program(uint64_t seed);
// Inputs of the first entry at a batch size; integers lie in -3..3, those named "index…" are 0 or -1.
std::map<std::string, Array> random_inputs(const Program& program, int64_t batch, uint64_t seed);
// The program with "batch" replaced by a number everywhere.
Program with_batch(const Program& program, int64_t batch);

}  // namespace aicf::testing
