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

// Linear scan over the program's real registers.
class Registers {
 public:
  explicit Registers(TileProgram& program) : program_(program) {}

  int take(TileType type, const Life& life, int position) {
    const int found = life.keeps_row() ? -1 : find_free(type, position);
    const int index = found >= 0 ? found : add(type, life.keeps_row());
    free_at_[static_cast<size_t>(index)] = life.keeps_row() ? INT_MAX : life.last;
    return index;
  }

 private:
  int find_free(TileType type, int position) const {
    for (size_t i = 0; i < free_at_.size(); ++i)
      if (!program_.registers[i].row && program_.registers[i].type == type && free_at_[i] < position)
        return static_cast<int>(i);
    return -1;
  }
  int add(TileType type, bool row) {
    program_.registers.push_back({type, row});
    free_at_.push_back(-1);
    return static_cast<int>(free_at_.size()) - 1;
  }

  TileProgram& program_;
  std::vector<int> free_at_;  // by register: the position after which it may be taken
};

}  // namespace

void assign_registers(const std::vector<TileType>& types, TileProgram& program) {
  std::vector<Life> lives(types.size());
  each_register(program, [&](int16_t r, int stage, int position) {
    Life& life = lives[static_cast<size_t>(r)];
    if (life.first_stage < 0) life.first_stage = stage;
    life.last_stage = stage;
    life.last = position;
  });
  std::vector<int> real(types.size(), -1);
  Registers registers(program);
  each_register(program, [&](int16_t& r, int, int position) {
    const auto v = static_cast<size_t>(r);
    if (real[v] < 0) real[v] = registers.take(types[v], lives[v], position);
    r = static_cast<int16_t>(real[v]);
  });
}

}  // namespace aicf
