#include "kernels/tile/cpu/tile_across.h"

#include <algorithm>

#include "kernels/tile/cpu/tile_compile.h"
#include "kernels/tile/cpu/tile_link_builder.h"
#include "kernels/tile/cpu/tile_prepare.h"

namespace aicf {
namespace {

constexpr int64_t kShortRow = 32;   // up to here gathering its elements costs less than walking it by itself
constexpr int64_t kFewestRows = 8;  // in one run of the last outer axis
constexpr int64_t kMaxScratch = 1 << 20;
constexpr int64_t kTileWork = 16384, kTileRows = 64;  // elements, or rows, that are worth a tile
constexpr int64_t kTileLinkWork = 8192;

// Bytes for the lanes of the reductions and for registers that keep their rows.
int64_t kept_bytes(const TileProgram& program, const TileState& state) {
  int64_t bytes = 0;
  for (TileType type : program.scalars)
    bytes = checked_add(bytes, tile_lanes(state) * kTileAcross * tile_type_bytes(type));
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
    const int64_t stride = tile_row_stride(state, static_cast<int32_t>(i));
    if (stride != operand.bytes && !(stride == 0 && i < call.inputs.size())) return false;
    found = found || stride == operand.bytes;
  }
  return found;
}

class AcrossCompiler {
 public:
  // `links` take the place of what a stage does per element, if there are any.
  AcrossCompiler(const BoundCall& call, TileState& state,
                 const std::optional<std::vector<TileStageLinks>>& links)
      : program_(*call.program),
        isa_(call.isa),
        state_(state),
        links_(links),
        writers_(register_writers(program_)) {}

  std::vector<TileStep> compile() {
    std::vector<TileStageSteps> stages;
    for (const auto& stage : program_.stages) {
      before_.clear(), chunk_.clear(), after_.clear();
      stores_ = std::any_of(stage.begin(), stage.end(),
                            [](const TileInstr& instr) { return instr.op == TileOp::store; });
      for (size_t i = 0; i < stage.size(); ++i)
        add(stage[i], is_tile_scalar(stage[i].dst) || (links_ && (*links_)[stages.size()].per_row[i]));
      if (links_) chunk_ = (*links_)[stages.size()].steps;
      if (state_.inner_count == 0) chunk_.clear();
      stages.push_back({before_, chunk_, after_});
    }
    return join_tile_steps(once_, stages, state_);
  }

 private:
  // per_row: what it gives is one value for the whole row.
  void add(const TileInstr& instr, bool per_row) {
    TileStep step = plain_step(instr);
    step.bytes = tile_type_bytes(tile_result_type(instr));
    if (instr.op == TileOp::load) return add_load(instr, step, per_row);
    if (instr.op == TileOp::store || instr.op == TileOp::store_scalar) return add_store(instr, step);
    if (is_tile_reduction(instr.op)) return add_reduction(instr, step);
    if (instr.op == TileOp::inner_index) {
      step.kind = TileStepKind::kIndex;
      step.fn = step.bytes == 4 ? state_.fill_words : state_.fill_double_words;
      return chunk_.push_back(step);
    }
    step.fn = tile_compute(isa_, instr);
    const bool once = instr.op == TileOp::constant && (is_tile_scalar(instr.dst) || hoistable(instr));
    (once ? once_ : per_row ? before_ : chunk_).push_back(step);
  }

  bool keeps_row(const TileInstr& instr) const {
    return !is_tile_scalar(instr.dst) && program_.registers[static_cast<size_t>(instr.dst)].row;
  }
  bool hoistable(const TileInstr& instr) const {
    return writers_[static_cast<size_t>(instr.dst)] == 1 && !keeps_row(instr);
  }

  void add_load(const TileInstr& instr, TileStep step, bool per_row) {
    const TileOperand& operand = state_.operands[instr.operand];
    if (per_row && operand.inner_strides[0] != 0)
      reject_tile("a row scalar is loaded from an operand that varies along the row");
    bool identical = false;
    step.fn = tile_loader(isa_, program_.inputs[static_cast<size_t>(instr.operand)], instr.type, &identical);
    const int64_t stride = tile_row_stride(state_, instr.operand);
    if (stride == 0)
      step.kind = TileStepKind::kLoadUniform;
    else if (stride != operand.bytes)
      step.kind = TileStepKind::kLoadStrided;
    else
      // Outputs may share the operand's memory, so it is named only where nothing is stored.
      step.kind =
          identical && !stores_ && !keeps_row(instr) ? TileStepKind::kLoadAlias : TileStepKind::kLoadConvert;
    if (step.kind == TileStepKind::kLoadStrided && identical) step.fn = nullptr;
    const bool early = per_row || (operand.inner_strides[0] == 0 && hoistable(instr));
    (early ? before_ : chunk_).push_back(step);
  }

  void add_store(const TileInstr& instr, TileStep step) {
    const TileOperand& operand = state_.operands[instr.operand];
    const bool per_row = instr.op == TileOp::store_scalar;
    if (per_row && operand.inner_strides[0] != 0)
      reject_tile("a row scalar is stored to an operand that varies along the row");
    const size_t output = static_cast<size_t>(instr.operand) - program_.inputs.size();
    step.fn = tile_storer(isa_, instr.type, program_.outputs[output], nullptr);
    step.kind = tile_row_stride(state_, instr.operand) == operand.bytes ? TileStepKind::kStore
                                                                        : TileStepKind::kStoreStrided;
    (per_row ? after_ : chunk_).push_back(step);
  }

  void add_reduction(const TileInstr& instr, TileStep step) {
    const TileReduction reduction = tile_reducer(isa_, instr);
    step.imm = reduction.neutral;
    step.fn = links_ ? reduction.begin : reduction.combine;
    step.kind = TileStepKind::kReduceBegin;
    before_.push_back(step);
    step.kind = TileStepKind::kReduce;
    chunk_.push_back(step);
    if (links_) step.fn = reduction.end;
    step.kind = TileStepKind::kReduceEnd;
    after_.insert(after_.begin(), step);  // before the stores of row scalars, which may stand earlier
  }

  const TileProgram& program_;
  IsaLevel isa_;
  TileState& state_;
  const std::optional<std::vector<TileStageLinks>>& links_;
  std::vector<int> writers_;  // per register: instructions that write it
  bool stores_ = false;
  std::vector<TileStep> once_, before_, chunk_, after_;
};

// Registers and lanes: arrays over the rows, or with links rows and their accumulators one after another.
int64_t lay_out_across(const TileProgram& program, TileState& state) {
  TileScratch scratch;
  state.exchange_offset = scratch.take(kTileAcross, 8);
  for (size_t r = 0; r < program.registers.size(); ++r) {
    const bool row = program.registers[r].row && !state.linked;
    const int64_t elements = state.linked ? kTileLinkRows * tile_link_pitch(state)
                                          : kTileAcross * (row ? std::max<int64_t>(state.inner_count, 1) : 1);
    take_register(scratch, program, r, row, elements, state);
  }
  for (size_t s = 0; s < program.scalars.size(); ++s) {
    const int element = tile_type_bytes(program.scalars[s]);
    state.slot_offset[kMaxTileRegisters + s] = scratch.take(kTileAcross, element);
    const int64_t lanes = state.linked ? kTileLinkRows * 2 * kTileLanes : kTileAcross * tile_lanes(state);
    state.accumulator_offset[s] = scratch.take(lanes, element);
  }
  return scratch.bytes();
}

// Rows of a tile of at least `least` of them and about kTileWork elements: a number that suits two workers,
// and so that no line of an output belongs to both.
void split_rows(BoundCall& call, TileState& state, int64_t work, int64_t least, int64_t unit) {
  const int64_t most = std::max(least, work / std::max<int64_t>(1, state.inner_count));
  const int64_t wanted = ceil_div(state.rows, most);
  const int64_t shares = wanted > 1 ? checked_round_up(wanted, 2) : 1;
  const int64_t share = std::max<int64_t>(1, ceil_div(state.rows, shares));  // of no rows, too
  state.tile_rows = checked_round_up(share, unit);
  call.tiles = ceil_div(state.rows, state.tile_rows);
}

std::vector<TileStep> prepare(BoundCall& call, TileState& state,
                              const std::optional<std::vector<TileStageLinks>>& links) {
  state.linked = links.has_value();
  call.scratch_bytes = lay_out_across(*call.program, state);
  call.run = run_tile_across;
  return AcrossCompiler(call, state, links).compile();
}

// Inner elements of this many make a row worth links.
bool may_link(const TileState& state) {
  return state.inner_rank == 1 && state.inner_count > kShortRow && state.inner_count <= kTileLinkedRow &&
         state.outer_sizes[state.outer_rank - 1] >= kTileLinkRows;
}

bool is_across(const BoundCall& call, const TileState& state) {
  if (state.inner_rank != 1 || state.outer_sizes[state.outer_rank - 1] < kFewestRows) return false;
  if (kept_bytes(*call.program, state) > kMaxScratch) return false;
  return state.inner_count <= kShortRow || side_by_side(call, state);
}

}  // namespace

std::optional<std::vector<TileStep>> prepare_across(BoundCall& call, TileState& state) {
  if (is_across(call, state)) {
    split_rows(call, state, kTileWork, kTileRows, 16);
    return prepare(call, state, std::nullopt);
  }
  if (!may_link(state)) return std::nullopt;
  const auto links = build_links(*call.program, state);
  if (!links) return std::nullopt;
  split_rows(call, state, kTileLinkWork, kTileLinkRows, kTileLinkRows);
  return prepare(call, state, links);
}

}  // namespace aicf
