// The matrix instruction of wgmma.cuh as text: its operand list depends on the number of columns.
#pragma once

#include <string>

#include "base/dtype.h"
#include "kernels/common/cuda_launch.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/common/tile_program.h"
#include "kernels/matmul/cuda/matmul_way.h"

namespace aicf {

// Defines `struct Multiply` with run(float (&d)[columns / 2], uint64_t a, uint64_t b): d += a · b for 64 rows
// and 16 steps of k, of f32 in tf32 8. The flags say whether the matrices' rows in shared memory run along k,
// as those of f32 do.
std::string wgmma_multiply_text(DType dtype, int columns, bool x_along_k, bool y_along_k);
// `struct MultiplyRs` with run(float (&d)[columns / 2], uint32_t low, uint32_t high, uint64_t b), the same
// with eight rows of a in registers: k and k + 1 of the first and of the last eight steps.
std::string wgmma_multiply_rs_text(DType dtype, int columns, bool y_along_k);

// `struct Multiply` with run(float (&d)[columns / 2], const uint32_t (&a)[4], uint64_t b): the same of f32 in
// tf32, 8 steps of k, with the thread's part of a in registers and both along k. Not `adds`: `struct
// MultiplyFirst`, with d = a · b.
std::string wgmma_multiply_tf32_text(int columns, bool adds = true);

// Registers in which a thread has the epilogue's operands of one chunk (WgmmaChunks in wgmma_epilogue.cuh).
struct ChunkRegisters {
  int shared = 0;   // by all rows
  int own = 0;      // of one vector of a row
  int vectors = 1;  // of the chunk
  int rows = 0;     // where the rows of a block of 64 lie, of f32
  int all() const { return shared + own * vectors; }
};

// What the template arguments of WgmmaMatmul in wgmma.cuh say beside the way.
struct WgmmaTile {
  bool x_along_k = true, y_along_k = true;
  int x_rows = 0;  // that are loaded, at most block_m
  bool constant_y = false;
  bool early_x = false;       // x is read before the wait, too (CudaWindow::ready)
  int64_t kept_bytes = 0;     // of x where every block keeps it (wgmma_rs.cuh); 0: it comes in stages
  int kept_steps = 0;         // of K, where x is stationary (wgmma_epilogue_warps.cuh)
  bool own_part = true;       // of K, in what is kept
  bool half_tile = true;      // the epilogue takes the results as halves
  int own_bytes = 0;          // of a group's epilogue, that it reads for each result
  bool rounds_x = false;      // x passes through registers (wgmma_tf32.cuh)
  ChunkRegisters chunk = {};  // of what the epilogue reads
  bool boxes = false;         // rows are pixels of boxes (conv_tma.cuh)
  int reductions = 0;         // of rows, in the epilogue
  int epilogue_warps = 4;     // that run the epilogue and nothing else
  CudaMachine machine = {};
};
// Warps of an epilogue by dedicated warps: more where that of four would take longer than the
// product of a tile.
int epilogue_warps(const MatmulWay& way, const TileProgram& epilogue, const Dim& k);
// "aicf::WgmmaMatmul<Multiply, …>"; Multiply is what wgmma_multiply_text defines. `sums`: that of the launch
// that adds up the parts of stream-K.
std::string wgmma_type_text(const MatmulWay& way, const WgmmaTile& tile, bool sums = false);
// `struct MultiplyOnes` with run(float (&d)[12], uint32_t one, uint64_t x): d += 64 rows of ones, two of
// which are `one`, times 24 rows of x as columns (row_sums.cuh).
std::string wgmma_multiply_ones_text(DType dtype, bool x_along_k);
// Bytes of shared memory as wgmma.cuh and what it includes lay it out: of a stage with its barriers; of the
// epilogue behind the stages, of parts of K that cluster_barrier() separates none, as they lie over the
// stages; of x that is stationary, before them.
int64_t wgmma_stage_bytes(const MatmulWay& way, const WgmmaTile& tile);
int64_t wgmma_epilogue_bytes(const MatmulWay& way, const WgmmaTile& tile);
int64_t stationary_x_bytes(const MatmulWay& way, const WgmmaTile& tile);
// How often a warp waits for what the epilogue of a tile reads; of operands that find no registers, several
// times each.
double wgmma_operand_waits(const MatmulWay& way, const WgmmaTile& tile);
// Stages that fit beside the epilogue's memory.
int wgmma_most_stages(const MatmulWay& way, const WgmmaTile& tile);
// The same of wgmma_tf32x3.cuh: "aicf::WgmmaTf32x3<Multiply, MultiplyFirst, …>", bytes of a stage with its
// barriers and of all, and the stages that fit, whatever the epilogue.
std::string tf32x3_type_text(const MatmulWay& way, const WgmmaTile& tile);
int64_t tf32x3_stage_bytes(const MatmulWay& way, bool y_along_k);
int64_t tf32x3_bytes(const MatmulWay& way, bool y_along_k, bool half_tile);
int tf32x3_stages(const MatmulWay& way, bool y_along_k);
CudaLaunch tf32x3_launch(const MatmulWay& way, const WgmmaTile& tile, const Dim& tiles);
// Threads, cluster, shared memory and grid for so many tiles.
CudaLaunch wgmma_launch(const MatmulWay& way, const WgmmaTile& tile, const Dim& tiles);

}  // namespace aicf
