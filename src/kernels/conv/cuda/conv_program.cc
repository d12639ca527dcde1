#include "kernels/conv/cuda/conv_program.h"

namespace aicf {
namespace {

// Stores the sum.
TileProgram plain_store(TileType sum, DType dtype, DType result) {
  TileProgram program;
  program.inputs = {dtype};
  program.outputs = {result};
  program.registers = {{sum}};
  TileInstr load{TileOp::load, sum}, store{TileOp::store, sum};
  load.dst = 0, load.operand = 0;
  store.a = 0, store.operand = 1;
  program.stages = {{load, store}};
  return program;
}

int16_t add_register(TileProgram& program, TileType type) {
  program.registers.push_back({type});
  return static_cast<int16_t>(program.registers.size() - 1);
}

// Every load of the sum becomes sum + bias, before it is used.
TileProgram with_bias(TileProgram program, TileType sum, DType bias) {
  program.inputs.insert(program.inputs.begin() + 1, bias);
  const int16_t loaded = add_register(program, sum), addend = add_register(program, sum);
  for (std::vector<TileInstr>& stage : program.stages) {
    std::vector<TileInstr> changed;
    for (TileInstr instr : stage) {
      if (instr.operand > 0) ++instr.operand;
      const bool is_sum = instr.op == TileOp::load && instr.operand == 0;
      if (!is_sum) {
        changed.push_back(instr);
        continue;
      }
      TileInstr load = instr, load_bias = instr, add{TileOp::add, sum};
      load.dst = loaded;
      load_bias.dst = addend, load_bias.operand = 1;
      add.dst = instr.dst, add.a = loaded, add.b = addend;
      changed.insert(changed.end(), {load, load_bias, add});
    }
    stage = changed;
  }
  return program;
}

}  // namespace

TileProgram conv_program(const TileProgram* epilogue, DType type, DType result, bool has_bias) {
  const TileType sum = tile_register_type(type);
  const DType kept =
      type == DType::f64 ? DType::f64 : DType::f32;  // sums of halves are not rounded before the bias
  TileProgram program = epilogue != nullptr ? *epilogue : plain_store(sum, kept, result);
  return has_bias ? with_bias(std::move(program), sum, type) : program;
}

}  // namespace aicf
