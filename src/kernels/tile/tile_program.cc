#include "kernels/common/tile_program.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "kernels/tile/tile_info.h"

namespace aicf {

namespace {

constexpr TileOpInfo kOps[] = {
#define AICF_TILE_OP(name, arity, types) {#name, arity, types},
#include "kernels/common/tile_ops.def"
#undef AICF_TILE_OP
};
constexpr int kOpCount = static_cast<int>(sizeof(kOps) / sizeof(kOps[0]));
constexpr std::string_view kTypeNames[] = {"f32", "f64", "i32", "i64", "mask"};
constexpr std::string_view kTypeLetters = "fdilm";

[[noreturn]] void reject(const std::string& what, const std::string& where = "") {
  UserError error(ErrorCode::kU_bad_artifact, "tile program: " + what);
  if (!where.empty()) error.with_value(where);
  throw error.with_remedy("compile the model again");
}

// Walks a program in execution order and keeps what has been written so far.
class Checker {
 public:
  explicit Checker(const TileProgram& program) : program_(program) {}

  void run() {
    check_tables();
    for (stage_ = 0; stage_ < static_cast<int>(program_.stages.size()); ++stage_) {
      std::fill(fresh_.begin(), fresh_.end(), false);
      for (const TileInstr& instr : program_.stages[static_cast<size_t>(stage_)]) check(instr);
      for (int s : pending_) complete_[static_cast<size_t>(s)] = true;
      for (int s : stored_scalars_)
        if (!complete_[static_cast<size_t>(s)])
          reject("store_scalar reads a row scalar that is never written");
      pending_.clear();
      stored_scalars_.clear();
    }
    for (size_t i = 0; i < stored_.size(); ++i)
      if (!stored_[i]) reject("output " + std::to_string(i) + " is never stored");
  }

 private:
  void check_tables() {
    const size_t operands = program_.inputs.size() + program_.outputs.size();
    if (operands > kMaxTileOperands) reject("more than " + std::to_string(kMaxTileOperands) + " operands");
    if (program_.registers.size() > kMaxTileRegisters) reject("too many registers");
    if (program_.scalars.size() > kMaxTileScalars) reject("too many row scalars");
    if (program_.stages.empty() || program_.stages.size() > kMaxTileStages) reject("bad number of stages");
    for (const auto* list : {&program_.inputs, &program_.outputs})
      for (DType dtype : *list)
        if (static_cast<int>(dtype) >= kDTypeCount) reject("unknown dtype");
    for (const TileRegister& r : program_.registers) check_type(r.type);
    for (TileType type : program_.scalars) check_type(type);
    written_.assign(program_.registers.size(), false);
    fresh_.assign(program_.registers.size(), false);
    complete_.assign(program_.scalars.size(), false);
    assigned_.assign(program_.scalars.size(), false);
    stored_.assign(program_.outputs.size(), false);
  }

  void check_type(TileType type) {
    if (static_cast<int>(type) > static_cast<int>(TileType::mask)) reject("unknown register type");
  }

  void check(const TileInstr& instr) {
    if (static_cast<int>(instr.op) >= kOpCount) reject("unknown operation");
    check_type(instr.type);
    // Also the numbers that the operation does not use: tables are indexed by them before anyone asks for the
    // operation.
    for (int16_t number : {instr.dst, instr.a, instr.b, instr.c})
      if (number >= 0 && !exists(number)) fail(instr, "register or row scalar out of bounds");
    const TileOpInfo& info = tile_op_info(instr.op);
    if (info.types.find(kTypeLetters[static_cast<size_t>(instr.type)]) == std::string_view::npos)
      fail(instr, "the operation does not exist for this type");
    switch (instr.op) {
      case TileOp::load:
        return check_load(instr);
      case TileOp::store:
      case TileOp::store_sum:
        return check_store(instr);
      case TileOp::store_scalar:
        return check_store_scalar(instr);
      default:
        break;
    }
    const bool row_level = is_scalar(instr.dst) && !is_tile_reduction(instr.op);
    const int16_t sources[] = {instr.a, instr.b, instr.c};
    for (int i = 0; i < info.arity; ++i)
      read(instr, sources[i], i == 0 && instr.op == TileOp::select ? TileType::mask : instr.type, row_level);
    if (row_level && instr.op == TileOp::inner_index) fail(instr, "a row scalar has no inner index");
    if (is_tile_reduction(instr.op) && !is_scalar(instr.dst)) fail(instr, "a reduction writes a row scalar");
    write(instr, tile_result_type(instr), is_tile_reduction(instr.op));
  }

  void check_load(const TileInstr& instr) {
    if (instr.operand < 0 || instr.operand >= static_cast<int>(program_.inputs.size()))
      fail(instr, "not an input operand");
    if (!tile_type_loads(program_.inputs[static_cast<size_t>(instr.operand)], instr.type))
      fail(instr, "the operand's dtype is not loaded to this type");
    write(instr, instr.type, false);
  }

  size_t output_of(const TileInstr& instr) {
    const int first = static_cast<int>(program_.inputs.size());
    if (instr.operand < first || instr.operand - first >= static_cast<int>(program_.outputs.size()))
      fail(instr, "not an output operand");
    const size_t output = static_cast<size_t>(instr.operand - first);
    if (!tile_type_stores(instr.type, program_.outputs[output]))
      fail(instr, "this type is not stored to the operand's dtype");
    if (stored_[output]) fail(instr, "the output is stored twice");
    stored_[output] = true;
    return output;
  }

  void check_store(const TileInstr& instr) {
    if (instr.imm_i != 0) fail(instr, "a store has no number");
    read(instr, instr.a, instr.type, false);
    output_of(instr);
  }

  void check_store_scalar(const TileInstr& instr) {
    if (!is_scalar(instr.a) || instr.a - kTileScalarBase >= static_cast<int>(program_.scalars.size()))
      fail(instr, "operand a is not a row scalar");
    const int s = instr.a - kTileScalarBase;
    if (program_.scalars[static_cast<size_t>(s)] != instr.type)
      fail(instr, "the row scalar has another type");
    stored_scalars_.push_back(s);
    output_of(instr);
  }

  void read(const TileInstr& instr, int16_t source, TileType type, bool row_level) {
    if (is_scalar(source)) {
      const size_t s = static_cast<size_t>(source - kTileScalarBase);
      if (s >= program_.scalars.size()) fail(instr, "row scalar out of bounds");
      if (!complete_[s]) fail(instr, "row scalar read before it is complete");
      if (program_.scalars[s] != type) fail(instr, "operand of another type");
      return;
    }
    if (row_level) fail(instr, "an instruction that writes a row scalar reads a register");
    if (source < 0 || source >= static_cast<int>(program_.registers.size()))
      fail(instr, "register out of bounds");
    const size_t r = static_cast<size_t>(source);
    if (!(fresh_[r] || (written_[r] && program_.registers[r].row)))
      fail(instr, "register read before it is written");
    if (program_.registers[r].type != type) fail(instr, "operand of another type");
  }

  void write(const TileInstr& instr, TileType type, bool reduction) {
    if (is_scalar(instr.dst)) {
      const size_t s = static_cast<size_t>(instr.dst - kTileScalarBase);
      if (s >= program_.scalars.size()) fail(instr, "row scalar out of bounds");
      if (assigned_[s]) fail(instr, "row scalar written twice");
      if (program_.scalars[s] != type) fail(instr, "result of another type");
      assigned_[s] = true;
      if (reduction)
        pending_.push_back(static_cast<int>(s));
      else
        complete_[s] = true;
      return;
    }
    if (instr.dst < 0 || instr.dst >= static_cast<int>(program_.registers.size()))
      fail(instr, "register out of bounds");
    const size_t r = static_cast<size_t>(instr.dst);
    if (program_.registers[r].type != type) fail(instr, "result of another type");
    fresh_[r] = written_[r] = true;
  }

  [[noreturn]] void fail(const TileInstr& instr, const std::string& what) {
    reject(what, "stage " + std::to_string(stage_) + ": " + std::string(tile_op_info(instr.op).name) + "." +
                     std::string(kTypeNames[static_cast<size_t>(instr.type)]));
  }

  static bool is_scalar(int16_t number) { return number >= kTileScalarBase; }
  bool exists(int16_t number) const {
    return is_scalar(number) ? number - kTileScalarBase < static_cast<int>(program_.scalars.size())
                             : number < static_cast<int>(program_.registers.size());
  }

  const TileProgram& program_;
  int stage_ = 0;
  std::vector<bool> written_, fresh_;      // registers: in any stage, in this stage
  std::vector<bool> assigned_, complete_;  // row scalars
  std::vector<bool> stored_;               // outputs
  std::vector<int> pending_, stored_scalars_;
};

std::string place(int16_t number) {
  return number >= kTileScalarBase ? "s" + std::to_string(number - kTileScalarBase)
                                   : "r" + std::to_string(number);
}

std::string number_text(double value) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::general, 17).ptr};
}

std::string instr_text(const TileInstr& instr) {
  const TileOpInfo& info = tile_op_info(instr.op);
  const bool stores = instr.op >= TileOp::store && instr.op <= TileOp::store_sum;
  std::string text = stores ? "t" + std::to_string(instr.operand) : place(instr.dst);
  text += " = " + std::string(info.name) + "." + std::string(kTypeNames[static_cast<size_t>(instr.type)]);
  const int16_t sources[] = {instr.a, instr.b, instr.c};
  for (int i = 0; i < info.arity; ++i) text += (i ? ", " : " ") + place(sources[i]);
  if (instr.op == TileOp::load) text += " t" + std::to_string(instr.operand);
  if (instr.op == TileOp::constant)
    text += " " + (instr.type <= TileType::f64 ? number_text(instr.imm_f) : std::to_string(instr.imm_i));
  else if (instr.imm_i != 0)
    text += " #" + std::to_string(instr.imm_i);
  return text;
}

}  // namespace

const TileOpInfo& tile_op_info(TileOp op) { return kOps[static_cast<size_t>(op)]; }

std::optional<TileOp> find_tile_op(std::string_view name) {
  for (int i = 0; i < kOpCount; ++i)
    if (kOps[i].name == name) return static_cast<TileOp>(i);
  return std::nullopt;
}

std::string_view tile_type_name(TileType type) { return kTypeNames[static_cast<size_t>(type)]; }
char tile_type_letter(TileType type) { return kTypeLetters[static_cast<size_t>(type)]; }

std::optional<TileType> tile_type_from_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kTypeNames); ++i)
    if (kTypeNames[i] == name) return static_cast<TileType>(i);
  return std::nullopt;
}

TileType tile_result_type(const TileInstr& instr) {
  switch (instr.op) {
    case TileOp::is_nan:
    case TileOp::is_inf:
    case TileOp::to_mask:
    case TileOp::eq:
    case TileOp::ne:
    case TileOp::lt:
    case TileOp::le:
    case TileOp::gt:
    case TileOp::ge:
      return TileType::mask;
    case TileOp::to_f32:
      return TileType::f32;
    case TileOp::to_f64:
      return TileType::f64;
    case TileOp::to_i32:
    case TileOp::clamp_i16:
    case TileOp::clamp_i8:
    case TileOp::clamp_u8:
      return TileType::i32;
    case TileOp::to_i64:
      return TileType::i64;
    default:
      return instr.type;
  }
}

TileType tile_register_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return TileType::f64;
    case DType::f32:
    case DType::f16:
    case DType::bf16:
      return TileType::f32;
    case DType::i64:
      return TileType::i64;
    case DType::boolean:
      return TileType::mask;
    default:
      return TileType::i32;
  }
}

bool tile_type_loads(DType dtype, TileType type) { return tile_register_type(dtype) == type; }
bool tile_type_stores(TileType type, DType dtype) {
  return tile_register_type(dtype) == type || (type == TileType::f64 && is_float(dtype));
}

bool sums_rows(const TileProgram& program) {
  return std::any_of(program.stages.begin(), program.stages.end(), [](const auto& stage) {
    return std::any_of(stage.begin(), stage.end(), [](const auto& i) { return i.op == TileOp::store_sum; });
  });
}

std::string to_string(const TileProgram& program) {
  std::string text = "operands:";
  int number = 0;
  for (const auto* list : {&program.inputs, &program.outputs})
    for (DType dtype : *list)
      text += " t" + std::to_string(number++) + ":" + (list == &program.outputs ? "out " : "") +
              std::string(dtype_name(dtype));
  text += "\n";
  for (size_t i = 0; i < program.registers.size(); ++i)
    if (program.registers[i].row) text += "row r" + std::to_string(i) + "\n";
  for (size_t i = 0; i < program.stages.size(); ++i) {
    text += "stage " + std::to_string(i) + "\n";
    for (const TileInstr& instr : program.stages[i]) text += "  " + instr_text(instr) + "\n";
  }
  return text;
}

void check_tile_program(const TileProgram& program) { Checker(program).run(); }

}  // namespace aicf
