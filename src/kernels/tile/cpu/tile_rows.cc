#include "kernels/tile/cpu/tile_rows.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "kernels/tile/cpu/tile_compile.h"

namespace aicf {

namespace {

constexpr int64_t kSlotBytes = kTileChunk * 8;
constexpr int64_t kWideRow = 32;  // columns from which a row alone keeps the vectors busy

// A block of rows by columns (at most kTileChunk elements), packed row by row in the slots of the scratch
// memory: the last slot serves conversions. Row scalars are slots like registers here.
struct Block {
  const TileProgram& program;
  IsaLevel isa;
  const TileWindow* windows;
  std::byte* scratch;
  int64_t row, rows, column, columns;

  std::byte* slot(int16_t number) const {
    const int64_t registers = static_cast<int64_t>(program.registers.size());
    return scratch + (number >= kTileScalarBase ? registers + number - kTileScalarBase : number) * kSlotBytes;
  }
  std::byte* exchange() const {
    return scratch + static_cast<int64_t>(program.registers.size() + program.scalars.size()) * kSlotBytes;
  }
  int64_t count() const { return rows * columns; }
  bool dense(const TileWindow& w) const {
    return (w.column_stride == 1 || columns == 1) && (w.row_stride == columns || rows == 1);
  }
  std::byte* at(const TileWindow& w, int64_t r, int bytes) const {
    return static_cast<std::byte*>(w.data) + ((row + r) * w.row_stride + column * w.column_stride) * bytes;
  }

  void load(const TileInstr& instr) const {
    const TileWindow& window = windows[instr.operand];
    const DType dtype = program.inputs[static_cast<size_t>(instr.operand)];
    const int bytes = dtype_bytes(dtype);
    const TileFunction convert = tile_loader(isa, dtype, instr.type, nullptr);
    std::byte* dst = slot(instr.dst);
    if (dense(window)) return convert({at(window, 0, bytes), nullptr, nullptr, dst, count(), 0});
    for (int64_t r = 0; r < rows; ++r)
      copy_elements(exchange() + r * columns * bytes, bytes, at(window, r, bytes),
                    window.column_stride * bytes, columns, bytes);
    convert({exchange(), nullptr, nullptr, dst, count(), 0});
  }

  void store(const TileInstr& instr) const {
    const TileWindow& window = windows[instr.operand];
    const DType dtype = program.outputs[static_cast<size_t>(instr.operand) - program.inputs.size()];
    const int bytes = dtype_bytes(dtype);
    const TileFunction convert = tile_storer(isa, instr.type, dtype, nullptr);
    if (dense(window)) return convert({slot(instr.a), nullptr, nullptr, at(window, 0, bytes), count(), 0});
    convert({slot(instr.a), nullptr, nullptr, exchange(), count(), 0});
    for (int64_t r = 0; r < rows; ++r)
      copy_elements(at(window, r, bytes), window.column_stride * bytes, exchange() + r * columns * bytes,
                    bytes, columns, bytes);
  }

  void run(const TileInstr& instr) const {
    if (instr.op == TileOp::load) return load(instr);
    if (instr.op == TileOp::store) return store(instr);
    const auto source = [this](int16_t number) { return number >= 0 ? slot(number) : nullptr; };
    tile_compute(isa, instr)(
        {source(instr.a), source(instr.b), source(instr.c), slot(instr.dst), count(), tile_immediate(instr)});
  }
};

}  // namespace

int64_t tile_rows_scratch_bytes(const TileProgram& program) {
  return static_cast<int64_t>(program.registers.size() + program.scalars.size() + 1) * kSlotBytes;
}

// --- row by row

bool TileRowRunner::fits(const TileProgram& program, int64_t columns) {
  return columns >= kWideRow && static_cast<int>(program.stages[0].size()) <= kMaxSteps &&
         program.registers.size() + program.scalars.size() <= kMaxSlots;
}

TileRowRunner::TileRowRunner(const TileProgram& program, IsaLevel isa, const TileWindow* windows,
                             std::byte* scratch)
    : program_(program), isa_(isa), windows_(windows), scratch_(scratch) {
  const std::vector<TileInstr>& stage = program_.stages[0];
  const auto is_store = [](const TileInstr& instr) { return instr.op == TileOp::store; };
  const auto first_store = std::find_if(stage.begin(), stage.end(), is_store);
  // Operands may share memory with outputs: with a store before a read, or with two stores of which the first
  // may overwrite what the second one reads, nothing is named in place.
  one_store_ = stage.end() - first_store == 1;
  for (size_t i = 0; i < stage.size(); ++i) add(stage[i], i + 2 == stage.size() ? &stage[i + 1] : nullptr);
  if (!find_chain()) links_ = 0;
}

bool TileRowRunner::find_chain() {
  constexpr int kConstant = -1, kComputed = -2;
  int source[kMaxSlots];  // by slot: the operand it names, or one of the above
  for (int i = 0; i < kMaxSlots; ++i) source[i] = where_[i] != nullptr ? kConstant : kComputed;
  int value = -1;  // the slot of the running value
  for (int i = 0; i < count_; ++i) {
    const BoundInstr& step = steps_[i];
    if (step.kind == Kind::kAlias) {
      source[step.dst] = step.operand;
      continue;
    }
    const auto op = chain_op(step.op);
    const bool computes = step.kind == Kind::kCompute || step.kind == Kind::kComputeInto;
    if (!computes || !op || step.type != TileType::f32 || links_ == kMaxChainSteps) return false;
    if (value < 0 && source[step.a] >= 0) value = step.a, chain_first_ = source[step.a];
    if (value < 0) return false;
    if (*op >= kChainExp) {
      if (step.a != value) return false;
      chain_[links_++] = {*op, false, -1, nullptr};
    } else {
      if ((step.a == value) == (step.b == value)) return false;
      const bool reversed = step.b == value;
      const int other = reversed ? step.a : step.b;
      if (source[other] == kComputed) return false;
      chain_[links_++] = {*op, reversed, source[other], static_cast<const float*>(where_[other])};
    }
    value = step.dst;
    source[value] = kComputed;
    if (step.kind == Kind::kComputeInto) chain_output_ = step.operand;
  }
  return chain_output_ >= 0;
}

TileChain TileRowRunner::chain_at(int64_t first_row, int64_t column) const {
  constexpr int kBytes = sizeof(float);
  const auto at = [&](int operand) {
    return reinterpret_cast<float*>(address(operand, kBytes, first_row, column));
  };
  TileChain chain;
  chain.x = at(chain_first_);
  chain.x_stride = windows_[chain_first_].row_stride;
  chain.out = at(chain_output_);
  chain.out_stride = windows_[chain_output_].row_stride;
  chain.count = links_;
  for (int i = 0; i < links_; ++i) {
    const Link& link = chain_[i];
    const bool named = link.operand >= 0;
    chain.steps[i] = {link.op, link.reversed, named ? at(link.operand) : link.constant,
                      named ? windows_[link.operand].row_stride : 0};
  }
  return chain;
}

std::optional<TileChain> TileRowRunner::chain(int64_t columns) const {
  if (links_ == 0 || chain_first_ != 0 || columns > kTileChunk) return std::nullopt;
  for (int i = 0; i < links_; ++i)
    if (chain_[i].operand == 0) return std::nullopt;
  return chain_at(0, 0);
}

std::byte* TileRowRunner::address(int operand, int bytes, int64_t row, int64_t column) const {
  const TileWindow& w = windows_[operand];
  return static_cast<std::byte*>(w.data) + (row * w.row_stride + column * w.column_stride) * bytes;
}

int TileRowRunner::slot(int16_t number) const {
  const auto registers = static_cast<int>(program_.registers.size());
  return number < 0 ? 0 : number >= kTileScalarBase ? registers + number - kTileScalarBase : number;
}

std::byte* TileRowRunner::memory(int slot) const { return scratch_ + slot * kSlotBytes; }

std::byte* TileRowRunner::exchange() const {
  return memory(static_cast<int>(program_.registers.size() + program_.scalars.size()));
}

DType TileRowRunner::output_dtype(const TileInstr& store) const {
  return program_.outputs[static_cast<size_t>(store.operand) - program_.inputs.size()];
}

// `next` is the instruction after it if that is the last one.
void TileRowRunner::add(const TileInstr& instr, const TileInstr* next) {
  if (written_) return;  // kComputeInto did the store's work
  BoundInstr step = {};
  step.op = instr.op;
  step.type = instr.type;
  step.dst = slot(instr.dst);
  step.a = slot(instr.a);
  step.b = slot(instr.b);
  step.c = slot(instr.c);
  step.operand = instr.operand;
  step.imm = tile_immediate(instr);
  bool identical = false;
  if (instr.op == TileOp::load) {
    const DType dtype = program_.inputs[static_cast<size_t>(instr.operand)];
    step.fn = tile_loader(isa_, dtype, instr.type, &identical);
    step.bytes = dtype_bytes(dtype);
    const bool in_place = identical && one_store_ && windows_[instr.operand].column_stride == 1;
    step.kind = in_place ? Kind::kAlias : Kind::kLoad;
  } else if (instr.op == TileOp::store) {
    step.fn = tile_storer(isa_, instr.type, output_dtype(instr), nullptr);
    step.bytes = dtype_bytes(output_dtype(instr));
    step.kind = Kind::kStore;
  } else {
    step.kind = Kind::kCompute;
    step.fn = tile_compute(isa_, instr);
    if (instr.op == TileOp::constant && instr.dst >= kTileScalarBase) {  // the same in every row
      step.fn({nullptr, nullptr, nullptr, memory(step.dst), kTileChunk, step.imm});
      where_[step.dst] = memory(step.dst);
      return;
    }
    if (next != nullptr && next->op == TileOp::store && next->a == instr.dst) {
      (void)tile_storer(isa_, next->type, output_dtype(*next), &identical);
      if (identical && one_store_ && windows_[next->operand].column_stride == 1) {
        step.kind = Kind::kComputeInto;
        step.operand = next->operand;
        step.bytes = dtype_bytes(output_dtype(*next));
        written_ = true;
      }
    }
  }
  steps_[count_++] = step;
}

void TileRowRunner::run(int64_t first_row, int64_t rows, int64_t columns) {
  for (int64_t column = 0; column < columns; column += kTileChunk) {
    const int64_t n = std::min(columns - column, kTileChunk);
    if (links_ > 0) {
      AICF_PICK_ISA(isa_, tile_chain_function)()(chain_at(first_row, column), rows, n);
      continue;
    }
    for (int64_t row = first_row; row < first_row + rows; ++row)
      for (int i = 0; i < count_; ++i) run_step(steps_[i], row, column, n);
  }
}

void TileRowRunner::run_step(const BoundInstr& step, int64_t row, int64_t column, int64_t n) {
  switch (step.kind) {
    case Kind::kAlias:
      where_[step.dst] = address(step.operand, step.bytes, row, column);
      return;
    case Kind::kLoad: {
      const std::byte* from = address(step.operand, step.bytes, row, column);
      const int64_t stride = windows_[step.operand].column_stride;
      if (stride != 1) {
        copy_elements(exchange(), step.bytes, from, stride * step.bytes, n, step.bytes);
        from = exchange();
      }
      step.fn({from, nullptr, nullptr, memory(step.dst), n, 0});
      where_[step.dst] = memory(step.dst);
      return;
    }
    case Kind::kCompute:
    case Kind::kComputeInto: {
      std::byte* dst =
          step.kind == Kind::kCompute ? memory(step.dst) : address(step.operand, step.bytes, row, column);
      step.fn({where_[step.a], where_[step.b], where_[step.c], dst, n, step.imm});
      where_[step.dst] = dst;
      return;
    }
    case Kind::kStore: {
      const int64_t stride = windows_[step.operand].column_stride;
      std::byte* to = stride == 1 ? address(step.operand, step.bytes, row, column) : exchange();
      step.fn({where_[step.a], nullptr, nullptr, to, n, 0});
      if (stride != 1)
        copy_elements(address(step.operand, step.bytes, row, column), stride * step.bytes, to, step.bytes, n,
                      step.bytes);
      return;
    }
  }
}

void run_tile_rows(const TileProgram& program, IsaLevel isa, int64_t rows, int64_t columns,
                   const TileWindow* windows, std::byte* scratch) {
  if (TileRowRunner::fits(program, columns)) {
    TileRowRunner runner(program, isa, windows, scratch);
    runner.run(0, rows, columns);
    return;
  }
  Block block = {program, isa, windows, scratch, 0, 0, 0, 0};
  for (block.column = 0; block.column < columns; block.column += block.columns) {
    block.columns = std::min(columns - block.column, kTileChunk);
    const int64_t step = std::max<int64_t>(1, kTileChunk / block.columns);
    for (block.row = 0; block.row < rows; block.row += step) {
      block.rows = std::min(step, rows - block.row);
      for (const TileInstr& instr : program.stages[0]) block.run(instr);
    }
  }
}

}  // namespace aicf
