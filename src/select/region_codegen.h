// Turns a region into a tile program, which the CPU interprets and a GPU's text is made from. Takes a region
// whose body holds only ops that tile_claims accepts and reductions over exactly the inner axes of the
// schedule; gives code whose operands are the body's inputs (in order, constants left out) and outputs. The
// plan binds every operand as a window broadcast to the domain.
#pragma once

#include "ir/graph.h"
#include "kernels/common/tile_program.h"
#include "select/call_program.h"

namespace aicf {

TileProgram generate_tile_program(const Region& region, const Schedule& schedule);
// Gives a program over virtual registers, of these types, its real ones, and renames the instructions' own. A
// register that lives within one stage is used again after its last read; one that a later stage reads keeps
// the row.
void assign_registers(const std::vector<TileType>& types, TileProgram& program);
// Of calls.regions, each as the first call that uses it runs it.
std::vector<TileProgram> generate_tile_programs(const CallGraph& calls);

}  // namespace aicf
