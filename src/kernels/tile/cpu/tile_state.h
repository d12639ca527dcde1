// What prepare() of the tile kernel leaves for run(): the domain with mergeable axes collapsed, the strides
// of every operand, the layout of the scratch memory, and the program compiled to steps that hold function
// addresses. Fixed part, then the steps.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/common/abi.h"
#include "kernels/tile/cpu/tile_functions.h"
#include "kernels/tile/tile_info.h"

namespace aicf {

enum class TileMode : int32_t {
  kUniform,     // one element for the whole inner space
  kContiguous,  // inner elements lie one after another
  kStrided,
};

// Input whose rows lie side by side in memory, so that walking one row strides over the others: kTileGroup
// rows at a time are transposed into scratch, where they are contiguous. Values and order of accumulation
// stay the same.
constexpr int64_t kTileGroup = 16;
constexpr int64_t kTileStagedBytes = 1 << 20;  // beyond it per operand rows are walked where they lie

struct TileOperand {
  int32_t bytes;                        // of an element
  TileMode mode;                        // as steps see it: staged operands are contiguous
  int64_t staged_offset, staged_pitch;  // scratch of the group and bytes from row to row; pitch 0: not staged
  int64_t outer_strides[kMaxRank], inner_strides[kMaxRank];  // bytes
};

enum class TileStepKind : int32_t {
  kCompute,       // dst = fn(a, b, c) on a chunk
  kComputeInto,   // the same, dst is the output operand's memory
  kIndex,         // fn gets the first inner index
  kLoadAlias,     // dst becomes a name of the operand's memory
  kLoadConvert,   // contiguous memory through fn
  kLoadUniform,   // one element through fn, repeated
  kLoadStrided,   // gathered, or read where neighbours lie; through fn unless it is null
  kLoadRun,       // the same, but dst becomes a name of neighbours
  kStore,         // through fn to contiguous memory
  kStoreStrided,  // through fn to the exchange buffer, from there to memory
  kReduce,        // fn adds a to the accumulators of scalar dst
  kScalar,        // dst = fn(a, b, c) on one element, repeated
  kReduceBegin,
  kReduceEnd,  // fn combines the accumulators, repeated
  kStoreScalar,
  kLink,  // of tile_link_builder.h
};

struct TileStep {
  TileFunction fn;
  TileStepKind kind;
  int32_t dst, a, b, c;  // slots: registers, then row scalars
  int32_t operand;       // kScalar, kReduceEnd: whether chunks read the value, so that it must be repeated
  int32_t bytes;         // of a dst element
  int64_t imm;
};

constexpr int kTileSlots = kMaxTileRegisters + kMaxTileScalars;

struct TileState {
  int32_t outer_rank, inner_rank;
  int64_t outer_sizes[kMaxRank], inner_sizes[kMaxRank];
  int64_t rows, inner_count;
  int64_t staged;     // number of staged operands
  int64_t tile_rows;  // rows per tile; 0 for pointwise programs: one row, cut into pieces of tile_elements
  int64_t tile_elements;  // multiple of kTileChunk
  // Rows whose reductions several tiles share: tiles of a row, blocks of kTileBlock elements in each; 0: no.
  int64_t parts, part_blocks;
  int64_t reductions;  // of stage 0
  // Where in BoundCall::state the lanes of all blocks of a row begin, after its counter.
  int64_t shared_words;
  int64_t repeat;  // elements of a repeated value: min(inner_count, kTileChunk), at least 1
  int32_t linked;  // tile_across.h
  int32_t stages, row_registers;
  int32_t row_register[kMaxTileRegisters], row_register_bytes[kMaxTileRegisters];
  TileFunction fill_words, fill_double_words;  // dst[0 … n) = imm, for elements of 4 and 8 bytes
  int64_t slot_offset[kTileSlots];             // in scratch; bytes
  int64_t accumulator_offset[kMaxTileScalars];
  int64_t exchange_offset;  // one chunk of the widest element
  // Steps [begin[0], begin[1]) run once per tile, then for stage i three ranges from begin[1 + 3 i]: before
  // the chunks of a row, per chunk, after the chunks.
  int32_t begin[2 + 3 * kMaxTileStages];
  TileOperand operands[kMaxTileOperands];
};
static_assert(std::is_trivially_copyable_v<TileState> && std::is_trivially_copyable_v<TileStep>);

constexpr int64_t kTileStateWords = (sizeof(TileState) + 7) / 8;

inline const TileState& tile_state(const BoundCall& call) {
  return *reinterpret_cast<const TileState*>(call.state.data());
}
inline const TileStep* tile_steps(const BoundCall& call) {
  return reinterpret_cast<const TileStep*>(call.state.data() + kTileStateWords);
}

inline bool is_tile_scalar(int16_t number) { return number >= kTileScalarBase; }
// Where a register or row scalar lives; that of an absent operand is never looked at.
inline int32_t tile_slot(int16_t number) {
  if (number < 0) return 0;
  return is_tile_scalar(number) ? kMaxTileRegisters + number - kTileScalarBase : number;
}

// The steps of a stage: before its chunks, for every chunk, after them.
using TileStageSteps = std::array<std::vector<TileStep>, 3>;
// All steps in one list, with `begin` and `stages` of the state filled.
std::vector<TileStep> join_tile_steps(const std::vector<TileStep>& once,
                                      const std::vector<TileStageSteps>& stages, TileState& state);
// Addresses of all operands at a row.
void set_tile_row(const BoundCall& call, const TileState& state, int64_t row, std::byte** base);

void run_tile(const BoundCall& call, int64_t tile, std::byte* scratch);
// A part of a row: the lanes of its blocks go to call.state, and who comes last combines them in the order of
// the blocks, with the bits of a row that one tile walks.
void run_tile_part(const BoundCall& call, int64_t tile, std::byte* scratch);
inline int64_t tile_blocks(const TileState& state) {
  return (state.inner_count + kTileBlock - 1) / kTileBlock;
}
// Words of a row in call.state: its counter, then 16 lanes for every block and reduction.
inline int64_t tile_shared_words(const TileState& state) {
  return 1 + tile_blocks(state) * state.reductions * kTileLanes;
}

}  // namespace aicf
