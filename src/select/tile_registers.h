// Real registers for a tile program written over virtual ones. Takes the type of each virtual register and
// instructions that name them; gives the program its registers and renames the instructions. A register that
// lives within one stage is used again after its last read; one that a later stage reads keeps the row.
#pragma once

#include <vector>

#include "kernels/common/tile_program.h"

namespace aicf {

void assign_registers(const std::vector<TileType>& types, TileProgram& program);

}  // namespace aicf
