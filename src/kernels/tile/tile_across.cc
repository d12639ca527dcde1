#include "kernels/tile/tile_across.h"

#include <algorithm>
#include <cstring>

#include "base/dim.h"
#include "base/error.h"
#include "kernels/tile/tile_compile.h"

namespace aicf {
namespace {

constexpr int64_t kShortRow = 32;   // up to here gathering its elements costs less than walking it by itself
constexpr int64_t kFewestRows = 8;  // in one run of the last outer axis
constexpr int64_t kMaxScratch = 1 << 20;
constexpr int64_t kTileWork = 16384, kTileRows = 64;  // elements, or rows, that are worth a tile

int64_t round_up(int64_t value, int64_t unit) { return checked_add(value, unit - 1) / unit * unit; }

int64_t lanes_of(const TileState& state) {
  return state.inner_count > kTileBlock ? 2 * kTileLanes : kTileLanes;
}

int64_t row_stride(const TileState& state, int32_t operand) {
  return state.operands[operand].outer_strides[state.outer_rank - 1];
}

// Bytes for the lanes of the reductions and for registers that keep their rows.
int64_t kept_bytes(const TileProgram& program, const TileState& state) {
  int64_t bytes = 0;
  for (TileType type : program.scalars)
    bytes = checked_add(bytes, lanes_of(state) * kTileAcross * tile_type_bytes(type));
  for (const TileRegister& r : program.registers)
    if (r.row)
      bytes = checked_add(bytes, checked_mul(state.inner_count, kTileAcross * tile_type_bytes(r.type)));
  return bytes;
}

// Inner elements of neighbouring rows are neighbours, of everything that varies along a row.
bool side_by_side(const BoundCall& call, const TileState& state) {
  bool found = false;
  for (size_t i = 0; i < call.inputs.size() + call.outputs.size(); ++i) {
    const TileOperand& operand = state.operands[i];
    if (operand.inner_strides[0] == 0) continue;
    const int64_t stride = row_stride(state, static_cast<int32_t>(i));
    if (stride != operand.bytes && !(stride == 0 && i < call.inputs.size())) return false;
    found = found || stride == operand.bytes;
  }
  return found;
}

class Compiler {
 public:
  Compiler(const BoundCall& call, TileState& state)
      : program_(*call.program), isa_(call.isa), state_(state), writers_(program_.registers.size()) {
    for (const auto& stage : program_.stages)
      for (const TileInstr& instr : stage)
        if (instr.dst >= 0 && !is_tile_scalar(instr.dst)) ++writers_[static_cast<size_t>(instr.dst)];
  }

  std::vector<TileStep> compile() {
    std::vector<TileStageSteps> stages;
    for (const auto& stage : program_.stages) {
      before_.clear(), chunk_.clear(), after_.clear();
      stores_ = std::any_of(stage.begin(), stage.end(),
                            [](const TileInstr& instr) { return instr.op == TileOp::store; });
      for (const TileInstr& instr : stage) add(instr);
      if (state_.inner_count == 0) chunk_.clear();
      stages.push_back({before_, chunk_, after_});
    }
    return join_tile_steps(once_, stages, state_);
  }

 private:
  void add(const TileInstr& instr) {
    TileStep step = {nullptr,
                     TileStepKind::kCompute,
                     tile_slot(instr.dst),
                     tile_slot(instr.a),
                     tile_slot(instr.b),
                     tile_slot(instr.c),
                     instr.operand,
                     tile_type_bytes(tile_result_type(instr)),
                     tile_immediate(instr)};
    if (instr.op == TileOp::load) return add_load(instr, step);
    if (instr.op == TileOp::store || instr.op == TileOp::store_scalar) return add_store(instr, step);
    if (is_tile_reduction(instr.op)) return add_reduction(instr, step);
    if (instr.op == TileOp::inner_index) {
      step.kind = TileStepKind::kIndex;
      step.fn = step.bytes == 4 ? state_.fill_words : state_.fill_double_words;
      return chunk_.push_back(step);
    }
    step.fn = tile_compute(isa_, instr);
    const bool once = instr.op == TileOp::constant && (is_tile_scalar(instr.dst) || hoistable(instr));
    (once ? once_ : is_tile_scalar(instr.dst) ? before_ : chunk_).push_back(step);
  }

  bool keeps_row(const TileInstr& instr) const {
    return !is_tile_scalar(instr.dst) && program_.registers[static_cast<size_t>(instr.dst)].row;
  }
  bool hoistable(const TileInstr& instr) const {
    return writers_[static_cast<size_t>(instr.dst)] == 1 && !keeps_row(instr);
  }

  void add_load(const TileInstr& instr, TileStep step) {
    const TileOperand& operand = state_.operands[instr.operand];
    const bool per_row = operand.inner_strides[0] == 0;
    if (is_tile_scalar(instr.dst) && !per_row)
      throw UserError(
          ErrorCode::kU_bad_artifact,
          "step of kernel 'tile': a row scalar is loaded from an operand that varies along the row")
          .with_op("tile");
    bool identical = false;
    step.fn = tile_loader(isa_, program_.inputs[static_cast<size_t>(instr.operand)], instr.type, &identical);
    const int64_t stride = row_stride(state_, instr.operand);
    if (stride == 0)
      step.kind = TileStepKind::kLoadUniform;
    else if (stride != operand.bytes)
      step.kind = TileStepKind::kLoadStrided;
    else
      // Outputs may share the operand's memory, so it is named only where nothing is stored.
      step.kind =
          identical && !stores_ && !keeps_row(instr) ? TileStepKind::kLoadAlias : TileStepKind::kLoadConvert;
    if (step.kind == TileStepKind::kLoadStrided && identical) step.fn = nullptr;
    (is_tile_scalar(instr.dst) || (per_row && hoistable(instr)) ? before_ : chunk_).push_back(step);
  }

  void add_store(const TileInstr& instr, TileStep step) {
    const TileOperand& operand = state_.operands[instr.operand];
    const bool per_row = instr.op == TileOp::store_scalar;
    if (per_row && operand.inner_strides[0] != 0)
      throw UserError(ErrorCode::kU_bad_artifact,
                      "step of kernel 'tile': a row scalar is stored to an operand that varies along the row")
          .with_op("tile");
    const size_t output = static_cast<size_t>(instr.operand) - program_.inputs.size();
    step.fn = tile_storer(isa_, instr.type, program_.outputs[output], nullptr);
    step.kind = row_stride(state_, instr.operand) == operand.bytes ? TileStepKind::kStore
                                                                   : TileStepKind::kStoreStrided;
    (per_row ? after_ : chunk_).push_back(step);
  }

  void add_reduction(const TileInstr& instr, TileStep step) {
    const TileReduction reduction =
        AICF_PICK_ISA(isa_, tile_reduction)(static_cast<int>(instr.op), static_cast<int>(instr.type));
    AICF_CHECK(reduction.combine, std::string(tile_op_info(instr.op).name));
    step.imm = reduction.neutral;
    step.fn = step.bytes == 4 ? state_.fill_words : state_.fill_double_words;
    step.kind = TileStepKind::kReduceBegin;
    before_.push_back(step);
    step.fn = reduction.combine;
    step.kind = TileStepKind::kReduce;
    chunk_.push_back(step);
    step.kind = TileStepKind::kReduceEnd;
    after_.insert(after_.begin(), step);  // before the stores of row scalars, which may stand earlier
  }

  const TileProgram& program_;
  IsaLevel isa_;
  TileState& state_;
  std::vector<int> writers_;  // per register: instructions that write it
  bool stores_ = false;
  std::vector<TileStep> once_, before_, chunk_, after_;
};

int64_t lay_out_scratch(const TileProgram& program, TileState& state) {
  int64_t bytes = 0;
  const auto take = [&bytes](int64_t elements, int64_t element_bytes) {
    const int64_t offset = bytes;
    bytes = checked_add(bytes, round_up(checked_mul(elements, element_bytes), 64));
    return offset;
  };
  state.exchange_offset = take(kTileAcross, 8);
  for (size_t r = 0; r < program.registers.size(); ++r) {
    const int element = tile_type_bytes(program.registers[r].type);
    const bool row = program.registers[r].row;
    state.slot_offset[r] = take(kTileAcross * (row ? std::max<int64_t>(state.inner_count, 1) : 1), element);
    if (!row) continue;
    state.row_register[state.row_registers] = static_cast<int32_t>(r);
    state.row_register_bytes[state.row_registers++] = element;
  }
  for (size_t s = 0; s < program.scalars.size(); ++s) {
    const int element = tile_type_bytes(program.scalars[s]);
    state.slot_offset[kMaxTileRegisters + s] = take(kTileAcross, element);
    state.accumulator_offset[s] = take(kTileAcross * lanes_of(state), element);
  }
  return bytes;
}

// One worker's view of up to kTileAcross rows.
struct Rows {
  const TileState& state;
  std::byte* scratch;
  int64_t count;
  std::byte* base[kMaxTileOperands];  // operands at the first row
  const void* where[kTileSlots];
  std::byte* own[kTileSlots];

  void set_index(int64_t i) {
    for (int k = 0; k < state.row_registers; ++k) {
      const int r = state.row_register[k];
      own[r] = scratch + state.slot_offset[r] + i * kTileAcross * state.row_register_bytes[k];
      where[r] = own[r];
    }
  }

  std::byte* address(const TileStep& step, int64_t i) const {
    const int64_t offset = i * state.operands[step.operand].inner_strides[0];
    return base[step.operand] == nullptr ? nullptr : base[step.operand] + offset;
  }
  void call(const TileStep& step, const void* a, void* dst) const {
    step.fn({a, nullptr, nullptr, dst, count, step.imm});
  }
  void fill(void* dst, int bytes, int64_t value) const {
    (bytes == 4 ? state.fill_words : state.fill_double_words)({nullptr, nullptr, nullptr, dst, count, value});
  }

  void load(const TileStep& step, int64_t i) {
    std::byte* from = address(step, i);
    std::byte* to = own[step.dst];
    where[step.dst] = to;
    const int bytes = state.operands[step.operand].bytes;
    switch (step.kind) {
      case TileStepKind::kLoadAlias:
        where[step.dst] = from;
        return;
      case TileStepKind::kLoadUniform: {
        step.fn({from, nullptr, nullptr, to, 1, 0});
        int64_t value = 0;
        std::memcpy(&value, to, static_cast<size_t>(step.bytes));
        return fill(to, step.bytes, value);
      }
      case TileStepKind::kLoadStrided: {
        std::byte* gathered = step.fn ? scratch + state.exchange_offset : to;
        copy_elements(gathered, bytes, from, row_stride(state, step.operand), count, bytes);
        if (step.fn) call(step, gathered, to);
        return;
      }
      default:
        return call(step, from, to);
    }
  }

  void store(const TileStep& step, int64_t i) {
    if (step.kind == TileStepKind::kStore) return call(step, where[step.a], address(step, i));
    std::byte* packed = scratch + state.exchange_offset;
    const int bytes = state.operands[step.operand].bytes;
    call(step, where[step.a], packed);
    copy_elements(address(step, i), row_stride(state, step.operand), packed, bytes, count, bytes);
  }

  std::byte* lane(const TileStep& step, int64_t number) const {
    return scratch + state.accumulator_offset[step.dst - kMaxTileRegisters] +
           number * kTileAcross * step.bytes;
  }
  // Lanes that any element goes to; the others stay neutral, and one is there even for empty rows.
  int64_t live_lanes() const { return std::clamp<int64_t>(state.inner_count, 1, kTileLanes); }

  void begin_reduction(const TileStep& step) const {
    const int64_t lanes = state.inner_count > kTileBlock ? lanes_of(state) : live_lanes();
    for (int64_t l = 0; l < lanes; ++l) fill(lane(step, l), step.bytes, step.imm);
  }
  void close_block(const TileStep& step) const {
    for (int64_t l = 0; l < kTileLanes; ++l) {
      call(step, lane(step, l), lane(step, kTileLanes + l));
      fill(lane(step, l), step.bytes, step.imm);
    }
  }
  void reduce(const TileStep& step, int64_t i) const {
    if (i > 0 && i % kTileBlock == 0) close_block(step);
    call(step, where[step.a], lane(step, i % kTileLanes));
  }
  void end_reduction(const TileStep& step) {
    int64_t first = 0;
    if (state.inner_count > kTileBlock) close_block(step), first = kTileLanes;
    int64_t live = live_lanes();
    for (int64_t half = kTileLanes / 2; half > 0; live = std::min(live, half), half /= 2)
      for (int64_t l = 0; l + half < live; ++l)
        call(step, lane(step, first + l + half), lane(step, first + l));
    where[step.dst] = lane(step, first);
  }

  void run(const TileStep& step, int64_t i) {
    switch (step.kind) {
      case TileStepKind::kStore:
      case TileStepKind::kStoreStrided:
        return store(step, i);
      case TileStepKind::kIndex:
        where[step.dst] = own[step.dst];
        return fill(own[step.dst], step.bytes, i);
      case TileStepKind::kReduceBegin:
        return begin_reduction(step);
      case TileStepKind::kReduce:
        return reduce(step, i);
      case TileStepKind::kReduceEnd:
        return end_reduction(step);
      case TileStepKind::kCompute:
        step.fn({where[step.a], where[step.b], where[step.c], own[step.dst], count, step.imm});
        where[step.dst] = own[step.dst];
        return;
      default:
        return load(step, i);
    }
  }
  void run_all(const TileStep* step, const TileStep* end, int64_t i) {
    for (; step != end; ++step) run(*step, i);
  }

  void run_stages(const TileStep* steps) {
    run_all(steps + state.begin[0], steps + state.begin[1], 0);
    for (int stage = 0; stage < state.stages; ++stage) {
      const int32_t* begin = state.begin + 1 + 3 * stage;
      run_all(steps + begin[0], steps + begin[1], 0);
      for (int64_t i = 0; begin[1] != begin[2] && i < state.inner_count; ++i) {
        set_index(i);
        run_all(steps + begin[1], steps + begin[2], i);
      }
      run_all(steps + begin[2], steps + begin[3], 0);
    }
  }
};

void run_tile_across(const BoundCall& call, int64_t tile, std::byte* scratch) {
  const TileState& state = tile_state(call);
  const int64_t first = tile * state.tile_rows, end = std::min(first + state.tile_rows, state.rows);
  const int64_t run = state.outer_sizes[state.outer_rank - 1];
  for (int64_t row = first; row < end;) {
    Rows rows = {state, scratch, std::min({kTileAcross, end - row, run - row % run}), {}, {}, {}};
    for (int slot = 0; slot < kTileSlots; ++slot) {
      rows.own[slot] = scratch + state.slot_offset[slot];
      rows.where[slot] = rows.own[slot];
    }
    set_tile_row(call, state, row, rows.base);
    rows.run_stages(tile_steps(call));
    row += rows.count;
  }
}

}  // namespace

bool runs_across(const BoundCall& call, const TileState& state) {
  if (state.inner_rank != 1 || state.outer_sizes[state.outer_rank - 1] < kFewestRows) return false;
  if (kept_bytes(*call.program, state) > kMaxScratch) return false;
  return state.inner_count <= kShortRow || side_by_side(call, state);
}

std::vector<TileStep> prepare_across(BoundCall& call, TileState& state) {
  call.scratch_bytes = lay_out_scratch(*call.program, state);
  const int64_t most = std::max(kTileRows, kTileWork / std::max<int64_t>(1, state.inner_count));
  const int64_t wanted = (state.rows + most - 1) / most;
  // Two workers get the same, and no line of an output belongs to both.
  const int64_t shares = wanted > 1 ? round_up(wanted, 2) : 1;
  state.tile_rows = round_up((state.rows + shares - 1) / shares, 16);
  call.tiles = (state.rows + state.tile_rows - 1) / state.tile_rows;
  call.run = run_tile_across;
  return Compiler(call, state).compile();
}

}  // namespace aicf
