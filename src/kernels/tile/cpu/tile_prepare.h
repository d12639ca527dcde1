// What prepare() of the tile kernel is made of: errors, the domain of a call, scratch memory, and the way
// that every program can run, row by row (tile_across.h has the others).
#pragma once

#include <string>
#include <vector>

#include "base/rounding.h"
#include "kernels/tile/cpu/tile_state.h"

namespace aicf {

// bad_artifact: the step does not fit the kernel.
[[noreturn]] void reject_tile(const std::string& what, const std::string& value = "");

// Inputs, then outputs.
inline const TensorArg& operand_arg(const BoundCall& call, size_t i) {
  return i < call.inputs.size() ? call.inputs[i] : call.outputs[i - call.inputs.size()];
}

// Fills the domain and the operands of the state: axes of size 1 dropped, axes that every operand walks as
// one merged. A pointwise program has no outer axes. The program and the dtypes of the call are checked
// before.
void set_tile_domain(const BoundCall& call, bool pointwise, TileState& state);

// Hands out the scratch memory of a worker, in lines of 64 bytes.
class TileScratch {
 public:
  int64_t take(int64_t elements, int64_t element_bytes) {
    const int64_t offset = bytes_;
    bytes_ = checked_add(bytes_, checked_round_up(checked_mul(elements, element_bytes), 64));
    return offset;
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

// A register of so many elements; one that keeps its row is noted in the state.
void take_register(TileScratch& scratch, const TileProgram& program, size_t index, bool keeps_row,
                   int64_t elements, TileState& state);

// Row by row, in chunks. `state` has domain and operands; fills the rest of it, and tiles, scratch_bytes and
// run of the call.
std::vector<TileStep> prepare_along(BoundCall& call, TileState& state, bool pointwise);

}  // namespace aicf
