// The program of a product that does in its epilogue what a region does with its results, and the windows
// that it then reads and writes.
#pragma once

#include <optional>
#include <vector>

#include "calls/decision.h"
#include "kernels/common/tile_program.h"
#include "select/call_program.h"

namespace aicf {

// One program for `second`, whose input `middle` is output `from` of `first`: the inputs of `first`, then the
// others of `second`; the outputs of `first` that are kept, then those of `second`. `first` has one stage.
TileProgram joined_program(const TileProgram& first, size_t from, const std::vector<bool>& kept,
                           const TileProgram& second, size_t middle);

// Whether one program can forward a value of this dtype to the next in a register.
inline bool is_forwarded(DType dtype) { return is_half(dtype) || dtype == DType::f32; }
// Whether a program of one stage forwards its result `from` as a half.
Decision forwards_half(const TileProgram& program, size_t from);
// Whether the program has as few registers, and the call that runs it as few operands, as kernels take.
Decision program_fits(const TileProgram& program, const KernelCall& call);

// A program with the windows of a call that it reads and writes; the sums of a product, its first inputs,
// have none.
struct BoundProgram {
  TileProgram program;
  std::vector<Window> inputs, outputs;
};
BoundProgram bound_program(const KernelCall& call, const CallGraph& graph);
// With windows over the axes of a product, of which all but the last may be one; none if one is not.
std::optional<BoundProgram> over_rows(BoundProgram region, size_t rank);
// Of these columns of the only result; none if the window is no columns of it.
std::optional<BoundProgram> columns_of(const BoundProgram& program, const Window& columns);
// As joined_program; `middle` counts the windows that `second` reads.
BoundProgram joined(const BoundProgram& first, size_t from, const std::vector<bool>& kept,
                    const BoundProgram& second, size_t middle);

// The program, of one stage, with a further result: the sums over all rows of result `from`, as a reader of
// memory would add them.
TileProgram with_sums(TileProgram program, size_t from, DType sum);

// Whether an element depends on nothing but the operands' elements, as epilogues see them.
bool has_elements_alone(const TileProgram& program);

// The program with input `from` as input `to`, before it; the others keep their order.
TileProgram with_input_at(TileProgram program, size_t from, size_t to);

}  // namespace aicf
