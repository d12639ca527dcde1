#include <algorithm>

#include "kernels/common/kernel.h"
#include "kernels/tile/cpu/tile_compile.h"
#include "kernels/tile/cpu/tile_prepare.h"

namespace aicf {
namespace {

// Elements that one tile should cover: enough to hide handing out tiles, few enough to share out the work.
constexpr int64_t kTileGrain = 32768;
constexpr int64_t kTileRowGrain = 8192;  // elements with their reductions: about 10 µs of one core
constexpr int64_t kTileShares = 8;
constexpr int64_t kTilePart = 8 * kTileBlock;
constexpr int64_t kMaxSharedWords = 1 << 22;

// Translates instructions to steps, deciding what runs once per tile, once per row and per chunk.
class AlongCompiler {
 public:
  AlongCompiler(const BoundCall& call, TileState& state, bool pointwise)
      : program_(*call.program),
        isa_(call.isa),
        state_(state),
        pointwise_(pointwise),
        writers_(register_writers(program_)),
        repeated_(program_.scalars.size()) {
    for (const auto& stage : program_.stages)
      for (const TileInstr& instr : stage) {
        if (instr.op == TileOp::store_scalar || (is_tile_scalar(instr.dst) && !is_tile_reduction(instr.op)))
          continue;
        for (int16_t source : {instr.a, instr.b, instr.c})
          if (is_tile_scalar(source)) repeated_[static_cast<size_t>(source - kTileScalarBase)] = true;
      }
  }

  std::vector<TileStep> compile() {
    std::vector<TileStageSteps> stages;
    for (const auto& stage : program_.stages) {
      before_.clear(), chunk_.clear(), after_.clear();
      for (size_t i = 0; i < stage.size(); ++i) add(stage, i);
      if (!chunk_.empty()) write_last_result_directly();
      if (state_.inner_count == 0) chunk_.clear();
      stages.push_back({before_, chunk_, after_});
    }
    return join_tile_steps(once_, stages, state_);
  }

 private:
  using Stage = std::vector<TileInstr>;

  void add(const Stage& stage, size_t position) {
    const TileInstr& instr = stage[position];
    TileStep step = plain_step(instr);
    switch (instr.op) {
      case TileOp::load:
        return add_load(stage, position, step);
      case TileOp::store:
        return add_store(instr, step);
      case TileOp::store_scalar:
        return add_store_scalar(instr, step);
      default:
        break;
    }
    step.bytes = tile_type_bytes(tile_result_type(instr));
    if (is_tile_reduction(instr.op)) return add_reduction(instr, step);
    step.fn = tile_compute(isa_, instr);
    if (is_tile_scalar(instr.dst)) {
      step.kind = TileStepKind::kScalar;
      step.operand = repeats(instr.dst);
      (instr.op == TileOp::constant ? once_ : before_).push_back(step);
    } else if (instr.op == TileOp::constant && hoistable(instr)) {
      once_.push_back(step);
    } else {
      if (instr.op == TileOp::inner_index) add_index(instr, step);
      chunk_.push_back(step);
    }
  }

  void add_index(const TileInstr& instr, TileStep& step) {
    if (instr.type == TileType::i32 && state_.inner_count > INT32_MAX)
      reject_tile("inner index does not fit in i32");
    step.kind = TileStepKind::kIndex;
  }

  bool repeats(int16_t scalar) const { return repeated_[static_cast<size_t>(scalar - kTileScalarBase)]; }
  bool row_register(int16_t r) const { return !pointwise_ && program_.registers[static_cast<size_t>(r)].row; }
  // Its value can be put in place before the chunks, because nothing else writes the register.
  bool hoistable(const TileInstr& instr) const {
    return writers_[static_cast<size_t>(instr.dst)] == 1 && !row_register(instr.dst);
  }

  void add_load(const Stage& stage, size_t position, TileStep step) {
    const TileInstr& instr = stage[position];
    const TileMode mode = state_.operands[instr.operand].mode;
    bool identical = false;
    const DType dtype = program_.inputs[static_cast<size_t>(instr.operand)];
    step.fn = tile_loader(isa_, dtype, instr.type, &identical);
    step.bytes = tile_type_bytes(instr.type);
    step.kind = mode == TileMode::kContiguous ? TileStepKind::kLoadConvert : TileStepKind::kLoadStrided;
    if (mode == TileMode::kUniform || is_tile_scalar(instr.dst)) {
      if (mode != TileMode::kUniform)
        reject_tile("a row scalar is loaded from an operand that varies along the row");
      step.kind = TileStepKind::kLoadUniform;
      if (is_tile_scalar(instr.dst)) return before_.push_back(step);
      if (hoistable(instr)) {
        if (state_.inner_count > 0) before_.push_back(step);
        return;
      }
    } else if (mode == TileMode::kContiguous && identical && !row_register(instr.dst) &&
               may_alias(stage, position)) {
      step.kind = TileStepKind::kLoadAlias;
    } else if (mode == TileMode::kStrided && identical) {
      step.fn = nullptr;
      if (!row_register(instr.dst) && may_alias(stage, position)) step.kind = TileStepKind::kLoadRun;
    }
    chunk_.push_back(step);
  }

  // The register may name the operand's memory if nothing is stored before its last use: outputs may share
  // that memory.
  static bool may_alias(const Stage& stage, size_t position) {
    const int16_t r = stage[position].dst;
    bool stored = false;
    for (size_t i = position + 1; i < stage.size(); ++i) {
      const TileInstr& instr = stage[i];
      const int arity = tile_op_info(instr.op).arity;
      const bool reads =
          (arity > 0 && instr.a == r) || (arity > 1 && instr.b == r) || (arity > 2 && instr.c == r);
      if (reads && stored) return false;
      if (instr.op == TileOp::store)
        stored = true;
      else if (instr.dst == r)
        return true;
    }
    return true;
  }

  void add_store(const TileInstr& instr, TileStep step) {
    const TileMode mode = state_.operands[instr.operand].mode;
    bool identical = false;
    step.fn = store_function(instr, &identical);
    step.dst = 0;
    // A uniform mode is left only for inner spaces of one element: prepare() refused stores that overlap
    // themselves.
    step.kind = mode == TileMode::kStrided ? TileStepKind::kStoreStrided : TileStepKind::kStore;
    step.imm = identical && mode == TileMode::kContiguous;  // for write_last_result_directly
    chunk_.push_back(step);
  }

  TileFunction store_function(const TileInstr& instr, bool* identical) const {
    const size_t output = static_cast<size_t>(instr.operand) - program_.inputs.size();
    return tile_storer(isa_, instr.type, program_.outputs[output], identical);
  }

  void add_store_scalar(const TileInstr& instr, TileStep step) {
    if (state_.operands[instr.operand].mode != TileMode::kUniform)
      reject_tile("a row scalar is stored to an operand that varies along the row");
    bool identical = false;
    step.fn = store_function(instr, &identical);
    step.kind = TileStepKind::kStoreScalar;
    step.dst = 0;
    after_.push_back(step);
  }

  void add_reduction(const TileInstr& instr, TileStep step) {
    const TileReduction reduction = tile_reducer(isa_, instr);
    step.kind = TileStepKind::kReduceBegin, step.fn = reduction.begin;
    before_.push_back(step);
    step.kind = TileStepKind::kReduce, step.fn = reduction.step;
    chunk_.push_back(step);
    step.kind = TileStepKind::kReduceEnd, step.fn = reduction.end, step.operand = repeats(instr.dst);
    // Before the stores of row scalars, which may stand earlier in the stage.
    after_.insert(after_.begin(), step);
  }

  // The last computed value goes straight to its output, saving a copy, if only stores of computed values
  // follow: then no operand is read any more through which the output's memory might be seen.
  void write_last_result_directly() {
    size_t last = chunk_.size();
    while (last > 0 && is_store(chunk_[last - 1])) --last;
    if (last == 0) return;
    TileStep& producer = chunk_[last - 1];
    if (producer.kind != TileStepKind::kCompute || row_register(static_cast<int16_t>(producer.dst))) return;
    for (size_t i = last; i < chunk_.size(); ++i)
      if (chunk_[i].a != producer.dst && names_operand(chunk_[i].a, last)) return;
    for (size_t i = last; i < chunk_.size(); ++i) {
      if (chunk_[i].a != producer.dst || !chunk_[i].imm) continue;
      producer.kind = TileStepKind::kComputeInto;
      producer.operand = chunk_[i].operand;
      chunk_.erase(chunk_.begin() + static_cast<std::ptrdiff_t>(i));
      return;
    }
  }

  static bool is_store(const TileStep& step) {
    return step.kind == TileStepKind::kStore || step.kind == TileStepKind::kStoreStrided;
  }
  bool names_operand(int32_t slot, size_t end) const {
    for (size_t i = end; i-- > 0;)
      if (!is_store(chunk_[i]) && chunk_[i].kind != TileStepKind::kReduce && chunk_[i].dst == slot)
        return chunk_[i].kind == TileStepKind::kLoadAlias || chunk_[i].kind == TileStepKind::kLoadRun;
    return false;
  }

  const TileProgram& program_;
  IsaLevel isa_;
  TileState& state_;
  bool pointwise_;
  std::vector<int> writers_;    // per register: instructions that write it
  std::vector<bool> repeated_;  // per row scalar: chunks read it
  std::vector<TileStep> once_, before_, chunk_, after_;
};

// Marks the inputs worth transposing: one inner axis that strides, neighbours along the last outer axis.
void stage_columns(const BoundCall& call, TileState& state) {
  const int last = state.outer_rank - 1;
  if (state.inner_rank != 1 || state.outer_sizes[last] < kTileGroup) return;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    TileOperand& operand = state.operands[i];
    // A pitch off the powers of two keeps the rows of a group in different cache sets.
    const int64_t pitch =
        checked_add(checked_round_up(checked_mul(state.inner_count, operand.bytes), 64), 64);
    if (operand.mode != TileMode::kStrided || operand.outer_strides[last] != operand.bytes) continue;
    if (pitch > kTileStagedBytes / kTileGroup) continue;
    operand.mode = TileMode::kContiguous;
    operand.staged_pitch = pitch;
    ++state.staged;
  }
}

int64_t lay_out_scratch(const TileProgram& program, TileState& state, bool pointwise) {
  TileScratch scratch;
  state.exchange_offset = scratch.take(kTileChunk, 8);
  for (size_t r = 0; r < program.registers.size(); ++r) {
    const bool row = program.registers[r].row && !pointwise;
    take_register(scratch, program, r, row, row ? checked_round_up(state.inner_count, 16) : kTileChunk,
                  state);
  }
  for (size_t s = 0; s < program.scalars.size(); ++s) {
    state.slot_offset[kMaxTileRegisters + s] = scratch.take(kTileChunk, tile_type_bytes(program.scalars[s]));
    state.accumulator_offset[s] = scratch.take(kTileAccumulatorBytes, 1);
  }
  for (TileOperand& operand : state.operands)
    if (operand.staged_pitch > 0) operand.staged_offset = scratch.take(kTileGroup, operand.staged_pitch);
  return scratch.bytes();
}

void split_into_tiles(BoundCall& call, TileState& state, bool pointwise) {
  if (pointwise) {
    state.tile_rows = 0;
    state.tile_elements = kTileGrain;
    call.tiles = ceil_div(state.inner_count, kTileGrain);
  } else {
    const int64_t most = std::max<int64_t>(1, kTileRowGrain / std::max<int64_t>(1, state.inner_count));
    // Shares of equal size for any few workers.
    const int64_t tiles = state.rows <= most ? 1 : checked_round_up(ceil_div(state.rows, most), kTileShares);
    state.tile_rows = std::max<int64_t>(1, ceil_div(state.rows, tiles));
    if (state.staged > 0) state.tile_rows = checked_round_up(state.tile_rows, kTileGroup);
    call.tiles = ceil_div(state.rows, state.tile_rows);
  }
}

// A few long rows whose only work on elements comes before their reductions end: several tiles to a row.
void split_rows_into_parts(BoundCall& call, TileState& state, const std::vector<TileStep>& steps) {
  if (state.rows >= kTileShares || state.inner_count < 2 * kTilePart || state.row_registers > 0 ||
      state.staged > 0)
    return;
  for (int stage = 1; stage < state.stages; ++stage)
    if (state.begin[1 + 3 * stage + 1] != state.begin[1 + 3 * stage + 2]) return;
  state.reductions = std::count_if(steps.begin() + state.begin[2], steps.begin() + state.begin[3],
                                   [](const TileStep& step) { return step.kind == TileStepKind::kReduce; });
  if (state.reductions == 0 || checked_mul(state.rows, tile_shared_words(state)) > kMaxSharedWords) return;
  state.part_blocks = kTilePart / kTileBlock;
  state.parts = ceil_div(tile_blocks(state), state.part_blocks);
  call.tiles = state.rows * state.parts;
  call.run = run_tile_part;
}

}  // namespace

std::vector<TileStep> prepare_along(BoundCall& call, TileState& state, bool pointwise) {
  if (!pointwise) stage_columns(call, state);
  call.scratch_bytes = lay_out_scratch(*call.program, state, pointwise);
  const std::vector<TileStep> steps = AlongCompiler(call, state, pointwise).compile();
  call.run = run_tile;
  split_into_tiles(call, state, pointwise);
  if (!pointwise) split_rows_into_parts(call, state, steps);
  return steps;
}

}  // namespace aicf
