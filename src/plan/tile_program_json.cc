#include "plan/tile_program_json.h"

namespace aicf {
namespace {

// Instructions and types are written by name, so a later version may add some without renumbering.
TileOp tile_op_from(const ParsedJson& json) {
  const std::string& name = json.get_ref<const std::string&>();
  const auto op = find_tile_op(name);
  if (!op) throw malformed_plan("unknown instruction " + name);
  return *op;
}

TileType tile_type_from(const ParsedJson& json) {
  const std::string& name = json.get_ref<const std::string&>();
  const auto type = tile_type_from_name(name);
  if (!type) throw malformed_plan("unknown register type " + name);
  return *type;
}

Json instr_json(const TileInstr& i) {
  return {std::string(tile_op_info(i.op).name),
          std::string(tile_type_name(i.type)),
          i.dst,
          i.a,
          i.b,
          i.c,
          i.operand,
          float_json(i.imm_f),
          i.imm_i};
}

TileInstr instr_from(const ParsedJson& json) {
  TileInstr i{};
  i.op = tile_op_from(json.at(0));
  i.type = tile_type_from(json.at(1));
  i.dst = number_from<int16_t>(json.at(2));
  i.a = number_from<int16_t>(json.at(3));
  i.b = number_from<int16_t>(json.at(4));
  i.c = number_from<int16_t>(json.at(5));
  i.operand = number_from<int16_t>(json.at(6));
  i.imm_f = float_from(json.at(7));
  i.imm_i = integer_from(json.at(8));
  return i;
}

}  // namespace

Json program_json(const TileProgram& program) {
  Json inputs = Json::array(), outputs = Json::array(), registers = Json::array(), scalars = Json::array(),
       stages = Json::array();
  for (DType dtype : program.inputs) inputs.push_back(dtype_json(dtype));
  for (DType dtype : program.outputs) outputs.push_back(dtype_json(dtype));
  for (const TileRegister& r : program.registers)
    registers.push_back({std::string(tile_type_name(r.type)), r.row});
  for (TileType type : program.scalars) scalars.push_back(std::string(tile_type_name(type)));
  for (const auto& stage : program.stages) {
    Json list = Json::array();
    for (const TileInstr& instr : stage) list.push_back(instr_json(instr));
    stages.push_back(std::move(list));
  }
  return {{"inputs", inputs},
          {"outputs", outputs},
          {"registers", registers},
          {"scalars", scalars},
          {"stages", stages}};
}

TileProgram program_from(const ParsedJson& json) {
  TileProgram program;
  for (const ParsedJson& item : json.at("inputs")) program.inputs.push_back(dtype_from(item));
  for (const ParsedJson& item : json.at("outputs")) program.outputs.push_back(dtype_from(item));
  for (const ParsedJson& item : json.at("registers"))
    program.registers.push_back({tile_type_from(item.at(0)), item.at(1).get<bool>()});
  for (const ParsedJson& item : json.at("scalars")) program.scalars.push_back(tile_type_from(item));
  for (const ParsedJson& stage : json.at("stages")) {
    program.stages.emplace_back();
    for (const ParsedJson& item : stage) program.stages.back().push_back(instr_from(item));
  }
  return program;
}

}  // namespace aicf
