#include <algorithm>
#include <cstring>

#include "kernels/tile/cpu/tile_across.h"
#include "kernels/tile/cpu/tile_compile.h"
#include "kernels/tile/cpu/tile_links.h"

namespace aicf {
namespace {

// One worker's view of up to kTileAcross rows.
struct Rows {
  const TileState& state;
  IsaLevel isa;
  std::byte* scratch;
  int64_t count;                      // rows, now
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
        copy_elements(gathered, bytes, from, tile_row_stride(state, step.operand), count, bytes);
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
    copy_elements(address(step, i), tile_row_stride(state, step.operand), packed, bytes, count, bytes);
  }

  std::byte* lane(const TileStep& step, int64_t number) const {
    return scratch + state.accumulator_offset[step.dst - kMaxTileRegisters] +
           number * kTileAcross * step.bytes;
  }
  // Lanes that any element goes to; the others stay neutral, and one is there even for empty rows.
  int64_t live_lanes() const { return std::clamp<int64_t>(state.inner_count, 1, kTileLanes); }

  // With links: those of one row.
  std::byte* accumulators(int32_t slot, int64_t row, int64_t bytes) const {
    return scratch + state.accumulator_offset[slot - kMaxTileRegisters] + row * 2 * kTileLanes * bytes;
  }

  void begin_reduction(const TileStep& step) const {
    for (int64_t row = 0; state.linked && row < kTileLinkRows; ++row)
      step.fn({nullptr, nullptr, nullptr, accumulators(step.dst, row, step.bytes), 1, 0});
    if (state.linked) return;
    const int64_t lanes = state.inner_count > kTileBlock ? tile_lanes(state) : live_lanes();
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
    for (int64_t row = 0; state.linked && row < count; ++row)
      step.fn({accumulators(step.dst, row, step.bytes), nullptr, nullptr, own[step.dst] + row * step.bytes, 1,
               0});
    if (state.linked) return;
    int64_t first = 0;
    if (state.inner_count > kTileBlock) close_block(step), first = kTileLanes;
    int64_t live = live_lanes();
    for (int64_t half = kTileLanes / 2; half > 0; live = std::min(live, half), half /= 2)
      for (int64_t l = 0; l + half < live; ++l)
        call(step, lane(step, first + l + half), lane(step, first + l));
    where[step.dst] = lane(step, first);
  }

  // Rows that are missing repeat the last one: what is written twice is written alike.
  const void* link_address(const TileStep& link, int64_t row) const {
    const int64_t there = std::min(row, count - 1);
    if (link.operand >= 0) return base[link.operand] + there * tile_row_stride(state, link.operand);
    if (link.dst >= kLinkSum && link.dst <= kLinkMinimum) return accumulators(link.c, row, sizeof(float));
    if (link.dst == kLinkFill || link.dst == kLinkScalar)
      return static_cast<const float*>(where[link.c]) + there;
    return reinterpret_cast<float*>(own[link.c]) + row * tile_link_pitch(state);
  }

  void run_links(const TileStep* step, const TileStep* end) const {
    if (step == end) return;
    TileLinks links;
    links.count = static_cast<int32_t>(end - step);
    for (TileLink* link = links.links; step != end; ++step, ++link) {
      link->kind = static_cast<TileLinkKind>(step->dst);
      link->op = static_cast<TileChainOp>(step->a);
      link->reversed = step->b;
      if (link->kind == kLinkSelf) continue;
      for (int64_t row = 0; row < kTileLinkRows; ++row)
        link->at[row] = static_cast<float*>(const_cast<void*>(link_address(*step, row)));
    }
    AICF_PICK_ISA(isa, tile_links_function)()(links, state.inner_count);
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

  // What all rows of a tile share: constants have their value in as many elements as any rows need.
  void begin(const TileProgram& program, const TileStep* steps) {
    const auto place = [this](size_t slot) {
      own[slot] = scratch + state.slot_offset[slot];
      where[slot] = own[slot];
    };
    for (size_t r = 0; r < std::max<size_t>(program.registers.size(), 1); ++r) place(r);
    for (size_t s = 0; s < program.scalars.size(); ++s) place(kMaxTileRegisters + s);
    count = state.linked ? kTileLinkRows : kTileAcross;
    run_all(steps + state.begin[0], steps + state.begin[1], 0);
  }

  void run_stages(const TileStep* steps) {
    for (int stage = 0; stage < state.stages; ++stage) {
      const int32_t* begin = state.begin + 1 + 3 * stage;
      run_all(steps + begin[0], steps + begin[1], 0);
      if (state.linked)
        run_links(steps + begin[1], steps + begin[2]);
      else
        for (int64_t i = 0; begin[1] != begin[2] && i < state.inner_count; ++i) {
          set_index(i);
          run_all(steps + begin[1], steps + begin[2], i);
        }
      run_all(steps + begin[2], steps + begin[3], 0);
    }
  }
};

}  // namespace

void run_tile_across(const BoundCall& call, int64_t tile, std::byte* scratch) {
  const TileState& state = tile_state(call);
  const int64_t first = tile * state.tile_rows, end = std::min(first + state.tile_rows, state.rows);
  const int64_t run = state.outer_sizes[state.outer_rank - 1];
  Rows rows = {state, call.isa, scratch, 0, {}, {}, {}};
  rows.begin(*call.program, tile_steps(call));
  for (int64_t row = first; row < end; row += rows.count) {
    rows.count = std::min({state.linked ? kTileLinkRows : kTileAcross, end - row, run - row % run});
    set_tile_row(call, state, row, rows.base);
    rows.run_stages(tile_steps(call));
  }
}

}  // namespace aicf
