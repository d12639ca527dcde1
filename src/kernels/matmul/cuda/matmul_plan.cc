#include "kernels/matmul/cuda/matmul_plan.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/common/product_group.h"
#include "kernels/common/prologue.h"
#include "kernels/matmul/cuda/matmul_cuda.h"
#include "kernels/matmul/cuda/matmul_cycles.h"
#include "kernels/matmul/cuda/matmul_operands.h"
#include "kernels/tile/cuda/tile_cuda.h"

namespace aicf {
namespace {

// Results of a tile's column.
size_t accumulators(const CudaProblem& problem) { return product_inputs(problem) - 1; }

bool takes_halves(const CudaProblem& problem) {
  return epilogue_tile(*problem.program, accumulators(problem)).has_value();
}

MatmulWay possible_schedule(MatmulWay way, const CudaProblem& problem, const MatmulView& a) {
  if (!has_epilogue_warps(way)) return way;
  if (!takes_halves(problem)) {
    way.schedule = MatmulSchedule::cooperative;
    ++way.stages;  // in the memory of the results between the warps
    return way;
  }
  const bool is_stationary = product_group(problem) == nullptr && a.m.constant() && a.k.constant() &&
                             a.batch.empty() && blocks_of_row(matmul_sizes(problem), way) > 0;
  if (!is_stationary) way.schedule = MatmulSchedule::epilogue_warps;
  return way;
}

int threads_of(const MatmulWay& way, const WarpTile& warp) {
  if (way.unit == MatmulUnit::single) return kSingleSide * kSingleSide;
  if (is_sliced(way)) return 32 * way.slices;
  if (is_batched(way)) return batched_threads(way);
  if (way.unit == MatmulUnit::warp) return 32 * way.batches;
  if (is_direct(way)) return 32 * way.slices;
  if (way.unit == MatmulUnit::mma) return way.block_m / warp.m * (way.block_n / warp.n) * 32;
  return simt_threads(way);
}

int min_blocks_of(const MatmulPlan& plan, DType dtype) {
  const MatmulWay& way = plan.way;
  // Warps of a multiprocessor whose registers are kept: of two launches that follow one another, or of one.
  if (is_sliced(way)) return sliced_min_blocks(way);
  if (way.unit == MatmulUnit::simt) return simt_min_blocks(way, plan.x_load, plan.y_load);
  if (is_batched(way)) return batched_min_blocks(way, accumulator_bytes(dtype));
  if (loads_all_of_k(way)) return mma_min_blocks(way, !plan.view.x.vector || !plan.view.y.vector);
  return is_wgmma(way) ? way.occupancy : 0;
}

int64_t shared_bytes_of(const MatmulPlan& plan, DType dtype) {
  const MatmulWay& way = plan.way;
  const int64_t bytes = accumulator_bytes(dtype);
  if (is_sliced(way)) return sliced_bytes(way);
  if (is_batched(way))
    return batched_bytes(way, plan.depth, plan.view.x.along_k, plan.view.y.along_k, accumulator_bytes(dtype));
  if (way.unit == MatmulUnit::warp) return warp_products_bytes(way, plan.depth, plan.shared);
  if (is_direct(way)) return 0;
  if (way.unit == MatmulUnit::single) {
    const int64_t depth = single_depth(dtype);
    return (kSingleSide * (depth + 16 / bytes) + depth * (kSingleSide + 1)) * bytes;
  }
  const int64_t stage =
      way.unit == MatmulUnit::simt
          ? (simt_stage_elements(way.block_m, plan.x_load) + simt_stage_elements(way.block_n, plan.y_load)) *
                bytes
          : (way.block_m + way.block_n) * kStageBytes;
  return std::max(way.stages * stage, splits_in_cluster(way) ? plan.result_bytes : 0);
}

// Of a block, by the cycles of a step of 64 k: 64 bytes loaded in each, 2,048 products made.
bool loads_longer_than_it_multiplies(const MatmulWay& way) {
  return (way.block_m + way.block_n) * kStepDepth * 2 / 64 > way.block_m * way.block_n * kStepDepth / 2048;
}

bool has_one_tile(const MatmulPlan& plan, const CudaProblem& problem) {
  return plan.way.schedule == MatmulSchedule::cooperative && row_blocks(plan.way) == 0 &&
         largest(plan.tiles, ranges_of(problem)) <= concurrent_blocks(plan.way, problem.machine) /
                                                        split_parts(plan.way) / multicast_blocks(plan.way);
}

// Whether x is read before the wait for the launches before (wgmma.cuh). By two warpgroups only where it is
// the loads that take long: on an H100 256 x 4096 x 4096 in tiles of 128 x 64 took 19.2 us so, 19.5 without,
// 512 x 4096 x 4096 in tiles of 128 x 128 29.7, and 28.3 without.
bool reads_x_early(const MatmulPlan& plan, const CudaProblem& problem) {
  const CudaWindow &x = problem.inputs[0], &y = problem.inputs[1];
  if (is_fused(problem) || !x.ready || !y.constant) return false;
  return plan.way.warpgroups == 1 ||
         (loads_longer_than_it_multiplies(plan.way) && has_one_tile(plan, problem));
}

// Whether a block keeps its part of K alone: a copy can, and pieces of one row that end where parts do.
bool keeps_own_part(const MatmulPlan& plan, const CudaProblem& problem) {
  const Prologue* prologue = prologue_of(problem);
  if (prologue == nullptr) return true;
  const auto part = plan.part_depth.constant();
  const int64_t piece = prologue->code.block_elements;
  return piece > 0 && is_one(plan.view.m) && part && *part % piece == 0;
}

// Rows of x that are loaded: of less than a tile only those that there are, along k.
int x_rows_of(const MatmulPlan& plan, const CudaProblem& problem) {
  if (plan.keeps_x || keeps_x_stationary(plan.way)) return 0;
  const int64_t rows = std::max<int64_t>(largest(plan.view.m, ranges_of(problem)), 1);
  return plan.view.x.along_k && rows < plan.way.block_m ? static_cast<int>((rows + 7) / 8 * 8)
                                                        : plan.way.block_m;
}

// Blocks of whole products, whose matrices must fit.
void set_batches(MatmulPlan& plan, const CudaProblem& problem) {
  const MatmulView& a = plan.view;
  const SymbolRanges& ranges = ranges_of(problem);
  const int64_t k = largest(a.k, ranges);
  AICF_CHECK(largest(a.m, ranges) <= plan.way.block_m && largest(a.n, ranges) <= plan.way.block_n &&
                 k <= kBatchedSide,
             "matrices too large for a block: " + to_string(plan.way));
  plan.depth = plan.way.unit == MatmulUnit::warp
                   ? static_cast<int>(std::max<int64_t>(warp_products_depth(k), 16))
                   : static_cast<int>(std::max<int64_t>(1, (k + 3) / 4)) * 4;
  plan.shared = {is_shared(a.x), is_shared(a.y)};
  plan.tiles = ceildiv(a.batches(), Dim(plan.way.batches));
}

WgmmaTile wgmma_tile(const MatmulPlan& plan, const CudaProblem& problem) {
  const MatmulWay& way = plan.way;
  const MatmulView& a = plan.view;
  const ProductGroup* group = product_group(problem);
  const bool own_part = keeps_own_part(plan, problem);
  return {
      .x_along_k = a.x.along_k,
      .y_along_k = a.y.along_k,
      .x_rows = x_rows_of(plan, problem),
      .constant_y =
          problem.inputs[1].constant && group == nullptr && (!plan.dual || problem.inputs[2].constant),
      .early_x = reads_x_early(plan, problem),
      .kept_bytes = plan.keeps_x ? kept_x_bytes(matmul_sizes(problem), way, own_part) : 0,
      .kept_steps =
          keeps_x_stationary(way) ? static_cast<int>((*a.k.constant() + kStepDepth - 1) / kStepDepth) : 0,
      .own_part = own_part,
      .half_tile = takes_halves(problem),
      .own_bytes = group != nullptr ? own_operand_bytes(problem) : 0,
      .rounds_x = problem.inputs[0].dtype == DType::f32,
      .chunk = chunk_registers(problem, product_inputs(problem), takes_halves(problem), plan.tile_columns),
      .reductions = row_blocks(way) > 0 ? row_reductions(*problem.program) : 0,
      .epilogue_warps = epilogue_warps(way, *problem.program, a.k),
      .machine = problem.machine};
}

}  // namespace

// Its threads load 4 or 2 elements of each operand.
int single_depth(DType dtype) { return 256 / accumulator_bytes(dtype); }

MatmulPlan resolve(const MatmulWay& way, const CudaProblem& problem) {
  AICF_CHECK(fault_of(way).empty(), std::string(fault_of(way)) + ": " + to_string(way));
  AICF_CHECK(matmul_family_fits(problem, family_of(way)),
             "a matmul kernel that cannot run the problem: " + to_string(way));
  const DType dtype = problem.inputs[0].dtype;
  MatmulPlan plan;
  plan.view = matmul_view(problem);
  const MatmulView& a = plan.view;
  plan.way = possible_schedule(way, problem, a);
  plan.dual = is_dual_gemm(problem);
  if (way.unit == MatmulUnit::mma) plan.warp = warp_tile(way, plan.dual);
  plan.keeps_x = keeps_x(matmul_sizes(problem), plan.way) && a.k.constant() && a.batch.empty();
  plan.tile_columns = tile_columns(problem, way);
  plan.tiles = a.batches() * ceildiv(a.m, Dim(int64_t{way.block_m} * multicast_blocks(way))) *
               ceildiv(a.n, Dim(plan.tile_columns));
  const Dim step(is_sliced(way)
                     ? kEpilogueGroup
                     : per(kStageBytes, family_of(way) == MatmulFamily::simt ? DType::f16 : dtype));
  plan.part_depth = ceildiv(ceildiv(a.k, Dim(split_parts(way))), step) * step;
  if (keeps_x_stationary(plan.way)) plan.row_blocks = blocks_of_row(matmul_sizes(problem), plan.way);
  if (way.unit == MatmulUnit::simt) {
    // Where members of other sizes share the code, their rows may start anywhere.
    const bool can = (dtype == DType::f32 || dtype == DType::i32) && !has_any_sizes(problem);
    plan.x_load = simt_load(way, a.x.along_k, can && a.x.vector);
    plan.y_load = simt_load(way, a.y.along_k, can && a.y.vector);
  }
  AICF_CHECK(!loads_all_of_k(way) || largest(a.k, ranges_of(problem)) <= per(kStageBytes, dtype),
             "more of K than a stage has: " + to_string(way));
  if (has_whole_products(way)) set_batches(plan, problem);
  if (sums_workspace(way)) plan.sum_warps = sum_warps(matmul_sizes(problem), way);
  plan.min_blocks = min_blocks_of(plan, dtype);
  plan.result_bytes = int64_t{way.block_m} * way.block_n * accumulator_bytes(dtype);
  if (has_tensor_maps(way)) {
    plan.wgmma = wgmma_tile(plan, problem);
  } else {
    plan.threads = threads_of(way, plan.warp);
    plan.shared_bytes = shared_bytes_of(plan, dtype);
  }
  return plan;
}

}  // namespace aicf
