// What runs where a row of the table is asked for a way of running a product: everything that the writer of
// the text (matmul_code.cc) needs and that sizes, strides, the epilogue and the architecture decide. Plain
// data; pure, needs no GPU.
#pragma once

#include "kernels/common/cuda_kernel.h"
#include "kernels/matmul/cuda/matmul_view.h"
#include "kernels/matmul/cuda/matmul_ways.h"
#include "kernels/matmul/cuda/wgmma_text.h"

namespace aicf {

struct MatmulPlan {
  // As asked, but for the schedule: dedicated warps get results as halves only, and x is stationary only
  // where its size is known and fits. A schedule that is not possible becomes the next plainer one; a
  // pipeline that then has room for one more stage gets it.
  MatmulWay way;
  MatmulView view;
  bool dual = false;  // two products of one x, whose columns alternate in the tile
  WarpTile warp;      // mma: results of a warp
  SimtLoad x_load = SimtLoad::element, y_load = SimtLoad::element;  // of simt.cuh
  bool keeps_x = false;      // x, of few rows, lies whole in the shared memory of every block (wgmma_rs.cuh)
  int tile_columns = 0;      // of the result
  Dim tiles;                 // of the result, of all batches; those of a multicast's blocks count as one
  Dim part_depth;            // of K, of one part of a split
  int64_t row_blocks = 0;    // that share a row of tiles, where x is stationary
  WgmmaTile wgmma;           // where operands have tensor maps
  int threads = 0;           // of a block that multiplies, but of those (wgmma_launch, tf32x3_launch)
  int min_blocks = 0;        // of a multiprocessor, for which the compiler keeps registers; 0: as it likes
  int64_t shared_bytes = 0;  // dynamic, of a block that multiplies, but of those
  int depth = 0;             // of K, of batched.cuh and warp_products.cuh
  SharedOperands shared;     // of all products of warp_products.cuh
  int sum_warps = 0;         // of a block that adds up parts from the workspace
  int64_t result_bytes = 0;  // of a tile's sums
};

// The problem has a program; the way is without fault and its family fits.
MatmulPlan resolve(const MatmulWay& way, const CudaProblem& problem);

// Elements of K that a step of single.cuh takes, of accumulators of this type.
int single_depth(DType dtype);

}  // namespace aicf
