// From a plan's step with symbolic windows to a kernel's BoundCall with plain numbers, at bound sizes. Shared
// by the drivers.
#pragma once

#include <utility>
#include <vector>

#include "kernels/common/abi.h"
#include "plan/plan.h"

namespace aicf {

// Where an operand's address comes from, so that it can be set again.
struct AddressPatch {
  int32_t buffer;
  int32_t step;
  bool output;
  int32_t operand;
  int64_t byte_offset;
};

// The caller's memory has the bytes of its shape: every input and output must have a buffer of just as many
// at these sizes, else bad_artifact.
void check_io_bytes(const EntryPlan& entry, const SymbolValues& sizes);

// What a run at these sizes touches of the arena, which is mapped for the largest sizes: first byte and size
// of each range, in order and apart.
using ByteRanges = std::vector<std::pair<int64_t, int64_t>>;
ByteRanges touched_arena(const EntryPlan& entry, const SymbolValues& sizes);

// Fills inputs, outputs, params, fparams and program of `call` (addresses are left null) and appends a patch
// per operand. Every window must lie inside its buffer at these sizes, and no element that the step writes
// may be one that it reads or writes through another window (but for the same window of an operand that its
// kernel reads element by element): bad_artifact otherwise.
void bind_step(const Plan& plan, const EntryPlan& entry, int32_t step, const SymbolValues& sizes,
               BoundCall& call, std::vector<AddressPatch>& patches);

}  // namespace aicf
