#include "kernels/tile/tile_rows.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "kernels/tile/tile_compile.h"

namespace aicf {

namespace {

constexpr int64_t kSlotBytes = kTileChunk * 8;

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

void run_tile_rows(const TileProgram& program, IsaLevel isa, int64_t rows, int64_t columns,
                   const TileWindow* windows, std::byte* scratch) {
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
