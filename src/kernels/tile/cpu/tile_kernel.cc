// The kernel "tile": fused regions. All tensors have the rank of the domain; on every axis a size is that of
// the domain or 1, and stride 0 repeats. The last params[0] axes are the inner space.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "kernels/common/kernel.h"
#include "kernels/tile/cpu/tile_across.h"
#include "kernels/tile/cpu/tile_compile.h"
#include "kernels/tile/cpu/tile_prepare.h"

namespace aicf {
namespace {

// Without values per row and inner indices the domain is one row that can be cut anywhere.
bool is_pointwise(const TileProgram& program) {
  if (program.stages.size() != 1) return false;
  for (const TileInstr& instr : program.stages[0]) {
    const bool per_row =
        is_tile_reduction(instr.op) || (instr.op == TileOp::load && is_tile_scalar(instr.dst));
    if (per_row || instr.op == TileOp::inner_index || instr.op == TileOp::store_scalar) return false;
  }
  return true;
}

void check_call(const BoundCall& call) {
  if (!call.program) reject_tile("no program");
  check_tile_program(*call.program);
  const auto same = [](const std::vector<TensorArg>& args, const std::vector<DType>& dtypes) {
    if (args.size() != dtypes.size()) return false;
    for (size_t i = 0; i < args.size(); ++i)
      if (args[i].dtype != dtypes[i]) return false;
    return true;
  };
  if (!same(call.inputs, call.program->inputs) || !same(call.outputs, call.program->outputs))
    reject_tile("operands do not match the program");
  if (call.outputs.empty()) reject_tile("no outputs");
  if (sums_rows(*call.program)) reject_tile("a sum over rows, which only GPUs compute");
}

// Row-major strides of a tensor without elements may be 0; nothing is written through them.
bool has_no_elements(const TileState& state, bool per_row) {
  const bool no_rows = std::find(state.outer_sizes, state.outer_sizes + state.outer_rank, 0) !=
                       state.outer_sizes + state.outer_rank;
  return no_rows || (!per_row && std::find(state.inner_sizes, state.inner_sizes + state.inner_rank, 0) !=
                                     state.inner_sizes + state.inner_rank);
}

// An output axis with stride 0 would make tiles write the same element.
void check_outputs(const BoundCall& call, const TileState& state) {
  for (size_t i = call.inputs.size(); i < call.inputs.size() + call.outputs.size(); ++i) {
    const TileOperand& operand = state.operands[i];
    bool per_row = false;
    for (const auto& stage : call.program->stages)
      for (const TileInstr& instr : stage)
        per_row = per_row || (instr.op == TileOp::store_scalar && instr.operand == static_cast<int16_t>(i));
    if (has_no_elements(state, per_row)) continue;
    for (int axis = 0; axis < state.outer_rank; ++axis)
      if (state.outer_sizes[axis] > 1 && operand.outer_strides[axis] == 0)
        reject_tile("an output repeats along an outer axis");
    for (int axis = 0; axis < state.inner_rank && !per_row; ++axis)
      if (state.inner_sizes[axis] > 1 && operand.inner_strides[axis] == 0)
        reject_tile("an output repeats along an inner axis");
  }
}

}  // namespace

void reject_tile(const std::string& what, const std::string& value) {
  throw UserError(ErrorCode::kU_bad_artifact, "step of kernel 'tile': " + what)
      .with_op("tile")
      .with_value(value);
}

void take_register(TileScratch& scratch, const TileProgram& program, size_t index, bool keeps_row,
                   int64_t elements, TileState& state) {
  const int bytes = tile_type_bytes(program.registers[index].type);
  state.slot_offset[index] = scratch.take(elements, bytes);
  if (!keeps_row) return;
  state.row_register[state.row_registers] = static_cast<int32_t>(index);
  state.row_register_bytes[state.row_registers++] = bytes;
}

bool can_run_tile(const Problem& problem) {
  return !problem.outputs.empty() && problem.inputs.size() + problem.outputs.size() <= kMaxTileOperands;
}

void prepare_tile(BoundCall& call) {
  check_call(call);
  const bool pointwise = is_pointwise(*call.program);
  call.state.assign(static_cast<size_t>(kTileStateWords), 0);
  TileState state = {};
  set_tile_domain(call, pointwise, state);
  check_outputs(call, state);
  state.fill_words = tile_compute(call.isa, {TileOp::constant, TileType::i32});
  state.fill_double_words = tile_compute(call.isa, {TileOp::constant, TileType::i64});
  const auto across = pointwise ? std::nullopt : prepare_across(call, state);
  const std::vector<TileStep> steps = across ? *across : prepare_along(call, state, pointwise);
  const int64_t step_words = static_cast<int64_t>((steps.size() * sizeof(TileStep) + 7) / 8);
  state.shared_words = kTileStateWords + step_words;
  const int64_t shared = state.parts > 0 ? state.rows * tile_shared_words(state) : 0;
  call.state.assign(static_cast<size_t>(state.shared_words + shared), 0);
  std::memcpy(call.state.data(), &state, sizeof state);
  if (!steps.empty())
    std::memcpy(call.state.data() + kTileStateWords, steps.data(), steps.size() * sizeof(TileStep));
}

}  // namespace aicf
