// Runs a region program over a small rectangle of its index space that is in cache: the epilogue of a
// contraction or a convolution. The program has one stage and no op that needs whole rows (reductions,
// store_scalar, inner_index), so rows and columns are independent; check_tile_program must have accepted it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/common/abi.h"
#include "kernels/common/tile_program.h"
#include "kernels/tile/cpu/tile_chain.h"
#include "kernels/tile/cpu/tile_functions.h"

namespace aicf {

// Operand of a rectangle: address of its element (0, 0) and strides in elements; 0 broadcasts. Inputs first,
// then outputs.
struct TileWindow {
  void* data = nullptr;
  int64_t row_stride = 0, column_stride = 0;
};

// Bytes of scratch that run_tile_rows needs, at most; a multiple of 64.
int64_t tile_rows_scratch_bytes(const TileProgram& program);

// Runs such a program row by row. Registers name the operands' memory where they can, so that a wide
// row costs a pass for each computation and none for loads and stores. Program and windows must outlive it;
// their addresses may change between runs, their strides may not.
class TileRowRunner {
 public:
  // Whether it serves the program and rows of this width; otherwise use run_tile_rows.
  static bool fits(const TileProgram& program, int64_t columns);
  TileRowRunner(const TileProgram& program, IsaLevel isa, const TileWindow* windows, std::byte* scratch);
  void run(int64_t first_row, int64_t rows, int64_t columns);
  // The program as a chain over rows of this width from row 0 on, if it is one whose `x` is operand 0 and
  // nothing else reads that operand.
  std::optional<TileChain> chain(int64_t columns) const;

 private:
  static constexpr int kMaxSteps = 96, kMaxSlots = 2 * kMaxTileRegisters;
  enum class Kind : uint8_t { kAlias, kLoad, kCompute, kComputeInto, kStore };
  struct BoundInstr {
    Kind kind;
    TileOp op;
    TileType type;
    TileFunction fn;
    int dst, a, b, c;  // slots
    int operand, bytes;
    int64_t imm;
  };

  int slot(int16_t number) const;
  std::byte* memory(int slot) const;
  std::byte* exchange() const;
  DType output_dtype(const TileInstr& store) const;
  void add(const TileInstr& instr, const TileInstr* next);
  void run_step(const BoundInstr& step, int64_t row, int64_t column, int64_t n);
  std::byte* address(int operand, int bytes, int64_t row, int64_t column) const;
  // Whether the steps are one chain (tile_chain.h), and it.
  bool find_chain();
  TileChain chain_at(int64_t first_row, int64_t column) const;

  const TileProgram& program_;
  IsaLevel isa_;
  const TileWindow* windows_;
  std::byte* scratch_;
  bool one_store_ = false, written_ = false;
  int count_ = 0;
  BoundInstr steps_[kMaxSteps];
  const void* where_[kMaxSlots] = {};

  struct Link {
    TileChainOp op;
    bool reversed;
    int operand;  // number, or -1: none, or the constant at `constant`
    const float* constant;
  };
  int chain_first_ = -1, chain_output_ = -1, links_ = 0;  // operand numbers; no links: no chain
  Link chain_[kMaxChainSteps];
};

void run_tile_rows(const TileProgram& program, IsaLevel isa, int64_t rows, int64_t columns,
                   const TileWindow* windows, std::byte* scratch);

}  // namespace aicf
