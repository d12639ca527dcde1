#include <climits>

#include "select/region_codegen.h"

namespace aicf {
namespace {

// Stages and positions of a register's first and last use.
struct Life {
  int first_stage = -1, last_stage = -1, last = -1;
  bool keeps_row() const { return first_stage != last_stage; }
};

// Calls `visit(r, stage, position)` for every register of every instruction in order, those read first.
template <class Visit>
void each_register(TileProgram& program, Visit visit) {
  int position = 0;
  for (size_t s = 0; s < program.stages.size(); ++s)
    for (TileInstr& instr : program.stages[s]) {
      for (int16_t* r : {&instr.a, &instr.b, &instr.c, &instr.dst})
        if (*r >= 0 && *r < kTileScalarBase) visit(*r, static_cast<int>(s), position);
      ++position;
    }
}

}  // namespace

void assign_registers(const std::vector<TileType>& types, TileProgram& program) {
  std::vector<Life> lives(types.size());
  each_register(program, [&](int16_t r, int stage, int position) {
    Life& life = lives[static_cast<size_t>(r)];
    if (life.first_stage < 0) life.first_stage = stage;
    life.last_stage = stage;
    life.last = position;
  });
  // Linear scan over the program's real registers.
  std::vector<int> free_at;  // by real register: the position after which it may be taken
  const auto take = [&](TileType type, const Life& life, int position) {
    size_t r = 0;
    const auto is_free = [&] { return program.registers[r].type == type && free_at[r] < position; };
    while (r < free_at.size() && (life.keeps_row() || !is_free())) ++r;
    if (r == free_at.size()) {
      program.registers.push_back({type, life.keeps_row()});
      free_at.emplace_back();
    }
    free_at[r] = life.keeps_row() ? INT_MAX : life.last;
    return static_cast<int>(r);
  };
  std::vector<int> real(types.size(), -1);
  each_register(program, [&](int16_t& r, int, int position) {
    const auto v = static_cast<size_t>(r);
    if (real[v] < 0) real[v] = take(types[v], lives[v], position);
    r = static_cast<int16_t>(real[v]);
  });
}

}  // namespace aicf
