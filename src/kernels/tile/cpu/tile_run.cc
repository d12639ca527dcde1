#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/tile/cpu/tile_compile.h"
#include "kernels/tile/cpu/tile_state.h"

namespace aicf {

namespace {

constexpr int64_t kShortAxis = 8;  // elements of the last axis, too few for a run of their own

// Splits inner elements [first, first + n) into runs: run(offset, stride, position, step, count) is for the
// elements first + position + i * step, i < count, which lie at offset + i * stride bytes. Along the last
// axis, or along the one before if that one is short.
template <class Run>
void for_each_run(const TileState& state, const TileOperand& operand, int64_t first, int64_t n, Run run) {
  const int last = state.inner_rank - 1;
  const int64_t *sizes = state.inner_sizes, *strides = operand.inner_strides;
  int64_t index[kMaxRank];
  int64_t offset = 0;
  for (int axis = last; axis >= 0; --axis) {
    index[axis] = axis > 0 ? first % sizes[axis] : first;
    first /= sizes[axis];
    offset += index[axis] * strides[axis];
  }
  const bool is_short = last > 0 && sizes[last] <= kShortAxis;
  for (int64_t done = 0; done < n;) {
    const bool turned = is_short && index[last] == 0 && n - done >= sizes[last];
    const int axis_of_run = turned ? last - 1 : last;
    const int64_t width = turned ? sizes[last] : 1;
    const int64_t count = std::min(sizes[axis_of_run] - index[axis_of_run], (n - done) / width);
    for (int64_t i = 0; i < width; ++i)
      run(offset + i * strides[last], strides[axis_of_run], done + i, width, count);
    done += count * width;
    index[axis_of_run] += count;
    offset += count * strides[axis_of_run];
    for (int axis = axis_of_run; axis > 0 && index[axis] == sizes[axis]; --axis) {
      offset += strides[axis - 1] - index[axis] * strides[axis];
      index[axis] = 0;
      ++index[axis - 1];
    }
  }
}

// Where inner elements [first, first + n) lie, if one after another along the last axis; else null.
const std::byte* neighbours(const TileState& state, const TileOperand& operand, const std::byte* base,
                            int64_t first, int64_t n) {
  const int last = state.inner_rank - 1;
  const int64_t *sizes = state.inner_sizes, *strides = operand.inner_strides;
  if (strides[last] != operand.bytes || first % sizes[last] + n > sizes[last]) return nullptr;
  for (int axis = last; axis >= 0; --axis) {
    base += (axis > 0 ? first % sizes[axis] : first) * strides[axis];
    first /= sizes[axis];
  }
  return base;
}

void gather(const TileState& state, const TileOperand& operand, const std::byte* base, int64_t first,
            int64_t n, std::byte* dst) {
  for_each_run(state, operand, first, n,
               [&](int64_t offset, int64_t stride, int64_t position, int64_t step, int64_t count) {
                 copy_elements(dst + position * operand.bytes, step * operand.bytes, base + offset, stride,
                               count, operand.bytes);
               });
}

void scatter(const TileState& state, const TileOperand& operand, std::byte* base, int64_t first, int64_t n,
             const std::byte* src) {
  for_each_run(state, operand, first, n,
               [&](int64_t offset, int64_t stride, int64_t position, int64_t step, int64_t count) {
                 copy_elements(base + offset, stride, src + position * operand.bytes, step * operand.bytes,
                               count, operand.bytes);
               });
}

// rows × n elements: dst[row][i] = src[i][row], in blocks whose lines stay in the L1 cache.
template <class T>
void transpose(std::byte* dst, int64_t pitch, const std::byte* src, int64_t stride, int64_t rows, int64_t n) {
  constexpr int64_t kBlock = 16;
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t end = std::min(first + kBlock, n);
    for (int64_t row = 0; row < rows; ++row) {
      T* to = reinterpret_cast<T*>(dst + row * pitch);
      const std::byte* from = src + row * static_cast<int64_t>(sizeof(T));
      for (int64_t i = first; i < end; ++i) std::memcpy(to + i, from + i * stride, sizeof(T));
    }
  }
}

void transpose(std::byte* dst, int64_t pitch, const std::byte* src, int64_t stride, int64_t rows, int64_t n,
               int bytes) {
  switch (bytes) {
    case 1:
      return transpose<uint8_t>(dst, pitch, src, stride, rows, n);
    case 2:
      return transpose<uint16_t>(dst, pitch, src, stride, rows, n);
    case 4:
      return transpose<uint32_t>(dst, pitch, src, stride, rows, n);
    default:
      return transpose<uint64_t>(dst, pitch, src, stride, rows, n);
  }
}

// One worker's view of a tile: where every slot and operand lies now.
struct Machine {
  const TileState& state;
  std::byte* scratch;
  std::byte* base[kMaxTileOperands];  // operands at the current row
  const void* where[kTileSlots];      // current contents of registers and row scalars
  std::byte* own[kTileSlots];         // their memory in scratch

  // Transposes the staged operands for `count` rows from the current one, which must lie in one run of the
  // last outer axis.
  void stage_group(int64_t count) {
    for (int i = 0; i < kMaxTileOperands; ++i) {
      const TileOperand& operand = state.operands[i];
      if (operand.staged_pitch > 0)
        transpose(scratch + operand.staged_offset, operand.staged_pitch, base[i], operand.inner_strides[0],
                  count, state.inner_count, operand.bytes);
    }
  }

  void use_staged(int64_t row_in_group) {
    for (int i = 0; i < kMaxTileOperands; ++i) {
      const TileOperand& operand = state.operands[i];
      if (operand.staged_pitch > 0)
        base[i] = scratch + operand.staged_offset + row_in_group * operand.staged_pitch;
    }
  }

  void set_chunk(int64_t first) {
    for (int i = 0; i < state.row_registers; ++i) {
      const int r = state.row_register[i];
      own[r] = scratch + state.slot_offset[r] + first * state.row_register_bytes[i];
      where[r] = own[r];
    }
  }

  // Repeats the first element of dst.
  void repeat(void* dst, int bytes, int64_t n) {
    int64_t value = 0;
    std::memcpy(&value, dst, static_cast<size_t>(bytes));
    if (n > 1)
      (bytes == 4 ? state.fill_words : state.fill_double_words)({nullptr, nullptr, nullptr, dst, n, value});
  }

  void compute(const TileStep& step, void* dst, int64_t n, int64_t imm) {
    const TileArgs args = {where[step.a], where[step.b], where[step.c], dst, n, imm};
    step.fn(args);
    where[step.dst] = dst;
  }

  void convert(TileFunction fn, const void* from, void* to, int64_t n) {
    fn({from, nullptr, nullptr, to, n, 0});
  }

  std::byte* contiguous(const TileStep& step, int64_t first) {
    return base[step.operand] + first * state.operands[step.operand].bytes;
  }

  void run(const TileStep& step, int64_t first, int64_t n) {
    switch (step.kind) {
      case TileStepKind::kCompute:
        return compute(step, own[step.dst], n, step.imm);
      case TileStepKind::kComputeInto:
        return compute(step, contiguous(step, first), n, step.imm);
      case TileStepKind::kIndex:
        return compute(step, own[step.dst], n, first);
      case TileStepKind::kLoadAlias:
        where[step.dst] = contiguous(step, first);
        return;
      case TileStepKind::kLoadConvert:
        convert(step.fn, contiguous(step, first), own[step.dst], n);
        where[step.dst] = own[step.dst];
        return;
      case TileStepKind::kLoadUniform:
        convert(step.fn, base[step.operand], own[step.dst], 1);
        repeat(own[step.dst], step.bytes, n);
        where[step.dst] = own[step.dst];
        return;
      case TileStepKind::kLoadStrided:
      case TileStepKind::kLoadRun:
        return load_strided(step, first, n);
      case TileStepKind::kStore:
        return convert(step.fn, where[step.a], contiguous(step, first), n);
      case TileStepKind::kStoreStrided:
        convert(step.fn, where[step.a], scratch + state.exchange_offset, n);
        return scatter(state, state.operands[step.operand], base[step.operand], first, n,
                       scratch + state.exchange_offset);
      case TileStepKind::kReduce:
        return step.fn({where[step.a], nullptr, nullptr, accumulators(step.dst), n, first});
      case TileStepKind::kScalar:
        compute(step, own[step.dst], 1, step.imm);
        return repeat(own[step.dst], step.bytes, step.operand ? n : 1);
      case TileStepKind::kReduceBegin:
        return convert(step.fn, nullptr, accumulators(step.dst), 1);
      case TileStepKind::kReduceEnd:
        convert(step.fn, accumulators(step.dst), own[step.dst], 1);
        return repeat(own[step.dst], step.bytes, step.operand ? n : 1);
      case TileStepKind::kStoreScalar:
        return convert(step.fn, where[step.a], base[step.operand], 1);
      case TileStepKind::kLink:
        return;  // of tile_across_run.cc
    }
  }

  std::byte* accumulators(int slot) { return scratch + state.accumulator_offset[slot - kMaxTileRegisters]; }

  void load_strided(const TileStep& step, int64_t first, int64_t n) {
    const TileOperand& operand = state.operands[step.operand];
    std::byte* dst = own[step.dst];
    where[step.dst] = dst;
    const std::byte* from = neighbours(state, operand, base[step.operand], first, n);
    if (from != nullptr && step.kind == TileStepKind::kLoadRun) {
      where[step.dst] = from;
      return;
    }
    if (from == nullptr || !step.fn) {
      std::byte* gathered = step.fn ? scratch + state.exchange_offset : dst;
      gather(state, operand, base[step.operand], first, n, gathered);
      from = gathered;
    }
    if (step.fn) convert(step.fn, from, dst, n);
  }

  void run_all(const TileStep* step, const TileStep* end, int64_t first, int64_t n) {
    for (; step != end; ++step) run(*step, first, n);
  }
};

// Inner elements [first, end) of the current row through every stage.
void run_row(Machine& machine, const TileStep* steps, int64_t first, int64_t end) {
  const TileState& state = machine.state;
  for (int stage = 0; stage < state.stages; ++stage) {
    const int32_t* begin = state.begin + 1 + 3 * stage;
    machine.run_all(steps + begin[0], steps + begin[1], 0, state.repeat);
    if (begin[1] != begin[2]) {
      for (int64_t i = first; i < end; i += kTileChunk) {
        machine.set_chunk(i);
        machine.run_all(steps + begin[1], steps + begin[2], i, std::min(kTileChunk, end - i));
      }
    }
    machine.run_all(steps + begin[2], steps + begin[3], 0, state.repeat);
  }
}

Machine start_tile(const BoundCall& call, std::byte* scratch) {
  const TileState& state = tile_state(call);
  Machine machine = {state, scratch, {}, {}, {}};
  for (int slot = 0; slot < kTileSlots; ++slot) {
    machine.own[slot] = scratch + state.slot_offset[slot];
    machine.where[slot] = machine.own[slot];
  }
  machine.run_all(tile_steps(call) + state.begin[0], tile_steps(call) + state.begin[1], 0, state.repeat);
  return machine;
}

// Calls f(step, number) for the reductions of stage 0.
template <class F>
void each_reduction(const TileState& state, const TileStep* steps, F f) {
  int64_t number = 0;
  for (int32_t i = state.begin[2]; i < state.begin[3]; ++i)
    if (steps[i].kind == TileStepKind::kReduce) f(steps[i], number++);
}

// The end of the row, from the lanes of all its blocks.
void combine_blocks(Machine& machine, const TileStep* steps, int64_t* lanes) {
  const TileState& state = machine.state;
  machine.run_all(steps + state.begin[1], steps + state.begin[2], 0, state.repeat);
  each_reduction(state, steps, [&](const TileStep& step, int64_t number) {
    for (int64_t block = 0; block < tile_blocks(state); ++block)
      step.fn({lanes + (block * state.reductions + number) * kTileLanes, nullptr, nullptr,
               machine.accumulators(step.dst), kTileLanes, block > 0 ? kTileBlock : 0});
  });
  machine.run_all(steps + state.begin[3], steps + state.begin[4], 0, state.repeat);
  for (int stage = 1; stage < state.stages; ++stage) {
    const int32_t* begin = state.begin + 1 + 3 * stage;
    machine.run_all(steps + begin[0], steps + begin[1], 0, state.repeat);
    machine.run_all(steps + begin[2], steps + begin[3], 0, state.repeat);
  }
}

}  // namespace

void run_tile_part(const BoundCall& call, int64_t tile, std::byte* scratch) {
  const TileState& state = tile_state(call);
  const TileStep* steps = tile_steps(call);
  const int64_t row = tile / state.parts, part = tile % state.parts;
  // One run is in flight, and of its tiles only the last of a row reads what the others write here.
  auto* counter =
      const_cast<int64_t*>(call.state.data()) + state.shared_words + row * tile_shared_words(state);
  int64_t* lanes = counter + 1;
  Machine machine = start_tile(call, scratch);
  set_tile_row(call, state, row, machine.base);
  const int64_t end = std::min((part + 1) * state.part_blocks, tile_blocks(state));
  for (int64_t block = part * state.part_blocks; block < end; ++block) {
    machine.run_all(steps + state.begin[1], steps + state.begin[2], 0, state.repeat);
    const int64_t last = std::min((block + 1) * kTileBlock, state.inner_count);
    for (int64_t i = block * kTileBlock; i < last; i += kTileChunk)
      machine.run_all(steps + state.begin[2], steps + state.begin[3], i, std::min(kTileChunk, last - i));
    each_reduction(state, steps, [&](const TileStep& step, int64_t number) {
      std::memcpy(lanes + (block * state.reductions + number) * kTileLanes, machine.accumulators(step.dst),
                  static_cast<size_t>(kTileLanes * step.bytes));
    });
  }
  std::atomic_ref<int64_t> done(*counter);
  if (done.fetch_add(1, std::memory_order_acq_rel) + 1 < state.parts) return;
  done.store(0, std::memory_order_relaxed);
  combine_blocks(machine, steps, lanes);
}

std::vector<TileStep> join_tile_steps(const std::vector<TileStep>& once,
                                      const std::vector<TileStageSteps>& stages, TileState& state) {
  std::vector<TileStep> steps = once;
  state.stages = static_cast<int32_t>(stages.size());
  int32_t* begin = state.begin;
  *begin++ = 0;
  for (const TileStageSteps& stage : stages)
    for (const auto& part : stage) {
      *begin++ = static_cast<int32_t>(steps.size());
      steps.insert(steps.end(), part.begin(), part.end());
    }
  *begin = static_cast<int32_t>(steps.size());
  return steps;
}

void set_tile_row(const BoundCall& call, const TileState& state, int64_t row, std::byte** base) {
  int64_t index[kMaxRank];
  for (int axis = state.outer_rank - 1; axis >= 0; --axis) {
    index[axis] = axis > 0 ? row % state.outer_sizes[axis] : row;
    row /= state.outer_sizes[axis];
  }
  const size_t inputs = call.inputs.size();
  for (size_t i = 0; i < inputs + call.outputs.size(); ++i) {
    const TensorArg& arg = i < inputs ? call.inputs[i] : call.outputs[i - inputs];
    int64_t offset = 0;
    for (int axis = 0; axis < state.outer_rank; ++axis)
      offset += index[axis] * state.operands[i].outer_strides[axis];
    // An empty tensor has no address, and nothing may be added to that.
    base[i] = arg.data == nullptr ? nullptr : static_cast<std::byte*>(arg.data) + offset;
  }
}

void run_tile(const BoundCall& call, int64_t tile, std::byte* scratch) {
  const TileState& state = tile_state(call);
  const TileStep* steps = tile_steps(call);
  Machine machine = start_tile(call, scratch);
  if (state.tile_rows == 0) {
    set_tile_row(call, state, 0, machine.base);
    const int64_t first = tile * state.tile_elements;
    run_row(machine, steps, first, std::min(first + state.tile_elements, state.inner_count));
    return;
  }
  const int64_t first = tile * state.tile_rows, end = std::min(first + state.tile_rows, state.rows);
  const int64_t run = state.outer_sizes[state.outer_rank - 1];
  for (int64_t row = first, group = 0, group_end = first; row < end; ++row) {
    set_tile_row(call, state, row, machine.base);
    if (state.staged > 0) {
      if (row == group_end) {
        group = row;
        group_end = std::min({row + kTileGroup, end, row + run - row % run});
        machine.stage_group(group_end - group);
      }
      machine.use_staged(row - group);
    }
    run_row(machine, steps, 0, state.inner_count);
  }
}

}  // namespace aicf
