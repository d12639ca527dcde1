#include "kernels/matmul/cuda/matmul_cuda.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/common/cuda_walk.h"
#include "kernels/common/product_group.h"
#include "kernels/matmul/cuda/matmul_cycles.h"
#include "kernels/matmul/cuda/matmul_operands.h"
#include "kernels/tile/cuda/tile_cuda.h"

namespace aicf {
namespace {

// Whether the problem's params ask for products in tf32.
template <class AnyProblem>
bool in_tf32(const AnyProblem& problem) {
  return (problem.params == std::vector<Dim>{Dim(1)} || problem.params == std::vector<Dim>{Dim(kRoundedY)}) &&
         problem.inputs[0].dtype == DType::f32;
}

// Of one matrix, where whole tiles run the epilogue by rows, in groups of columns.
bool can_sum_rows(const CudaProblem& problem, const MatmulWay& way) {
  const MatmulView a = matmul_view(problem);
  return is_wgmma(way) && way.split.kind == SplitKind::none && a.batch.empty() &&
         divides(a.n, kEpilogueGroup);
}

// Whether blocks take whole tiles, of any batch; where they sum x, of as many columns as that takes, whatever
// the sizes.
bool shares_launch(const CudaProblem& problem, const MatmulWay& way) {
  return is_wgmma(way) && way.split.kind == SplitKind::none && way.occupancy == 1 &&
         (!product_group(problem)->x_sums ||
          bounds(matmul_view(problem).n, ranges_of(problem)).lo > (kColumnsWithSums - 1) * way.block_n);
}

// The families' ways, those of the first family first.
std::vector<MatmulWay> ways_of(const CudaProblem& problem, const std::vector<MatmulFamily>& families) {
  std::vector<MatmulWay> ways;
  const bool sums = problem.program != nullptr && sums_rows(*problem.program);
  const MatmulSizes sizes = matmul_sizes(problem);
  for (const MatmulFamily family : families) {
    if (!matmul_family_fits(problem, family)) continue;
    const int bytes = accumulator_bytes(problem.inputs[0].dtype);
    for (const MatmulWay& way : matmul_ways(sizes, family, problem.arch, bytes))
      if ((!sums || can_sum_rows(problem, way)) &&
          (product_group(problem) == nullptr || shares_launch(problem, way)))
        ways.push_back(way);
  }
  // What is made for small products and for few rows competes with all families.
  const auto cost = [&](const MatmulWay& way) {
    return is_for_small_products(way) || is_direct(way) ? matmul_cycles(sizes, way)
                                                        : std::numeric_limits<double>::infinity();
  };
  const auto small = std::min_element(
      ways.begin(), ways.end(), [&](const MatmulWay& a, const MatmulWay& b) { return cost(a) < cost(b); });
  if (small != ways.end() && cost(*small) < matmul_cycles(sizes, ways[0]))
    std::rotate(ways.begin(), small, small + 1);
  return ways;
}

// What the epilogues of a group move beyond the results themselves.
double grouped_cycles(const CudaProblem& problem, const MatmulWay& way) {
  if (product_group(problem) == nullptr) return 0;
  int bytes = own_operand_bytes(problem);
  for (size_t i = 1; i < problem.outputs.size(); ++i) bytes += dtype_bytes(problem.outputs[i].dtype);
  return matmul_epilogue_cycles(matmul_sizes(problem), way, bytes);
}

std::vector<KernelVariant> variants_of(const CudaProblem& problem,
                                       const std::vector<MatmulFamily>& families) {
  std::vector<KernelVariant> variants;
  for (const MatmulWay& way : ways_of(problem, families))
    variants.push_back({way, (matmul_cycles(matmul_sizes(problem), way) + grouped_cycles(problem, way)) /
                                 kCyclesPerMicrosecond});
  if (product_group(problem) != nullptr && problem.inputs.size() > kProductInputs)
    std::stable_sort(variants.begin(), variants.end(),
                     [](const auto& a, const auto& b) { return a.microseconds < b.microseconds; });
  return variants;
}

CudaCode generate(const CudaProblem& problem, const std::vector<MatmulFamily>& families) {
  for (const MatmulWay& way : ways_of(problem, families))
    if (!is_named(problem.way) || Way(way) == problem.way) return matmul_code(problem, way);
  AICF_CHECK(false, "a matmul that cannot run so: " + to_string(problem.way));
}

const std::vector<MatmulFamily> kTensorCore = {MatmulFamily::wgmma, MatmulFamily::mma, MatmulFamily::batched,
                                               MatmulFamily::warp, MatmulFamily::direct},
                                kSimt = {MatmulFamily::simt, MatmulFamily::batched},
                                kTf32x3 = {MatmulFamily::tf32x3};

bool has_matrices(const Problem& problem) {
  return problem.inputs.size() >= 2 && !problem.outputs.empty() &&
         (problem.params.empty() || in_tf32(problem)) && problem.has_program &&
         problem.inputs[0].dtype == problem.inputs[1].dtype && problem.inputs[0].sizes.size() >= 2 &&
         problem.inputs[1].sizes.size() >= 2 && problem.outputs[0].sizes.size() >= 2 &&
         problem.inputs[0].sizes.size() <= problem.outputs[0].sizes.size() &&
         problem.inputs[1].sizes.size() <= problem.outputs[0].sizes.size();
}

// Constants come before the wait for the launches before, by the copy engine, however their rows lie:
// wgmma's. What was chosen runs, also where y is known as one only by then.
bool reads_rows_along_k(const CudaProblem& problem, const MatmulView& a) {
  const bool is_wanted = is_named(problem.way) || !problem.inputs[1].constant;
  return is_wanted && is_one(a.x.column) && is_one(a.y.row);
}

bool differs_by_row(const CudaWindow& window) {
  return !window.strides.empty() && std::any_of(window.strides.begin(), window.strides.end() - 1,
                                                [](const Dim& s) { return s != Dim(0); });
}

// Distinct offsets of a row among the results and the operands that differ by row.
int row_offsets(const CudaProblem& problem, size_t own_inputs) {
  std::vector<std::vector<Dim>> strides;
  const auto add = [&](const CudaWindow& window) {
    if (!differs_by_row(window)) return;
    std::vector<Dim> outer(window.strides.begin(), window.strides.end() - 1);
    if (std::find(strides.begin(), strides.end(), outer) == strides.end())
      strides.push_back(std::move(outer));
  };
  std::for_each(problem.inputs.begin() + static_cast<std::ptrdiff_t>(own_inputs), problem.inputs.end(), add);
  std::for_each(problem.outputs.begin(), problem.outputs.end(), add);
  return static_cast<int>(strides.size());
}

}  // namespace

int accumulator_bytes(DType dtype) { return dtype == DType::f64 || dtype == DType::i64 ? 8 : 4; }

int own_operand_bytes(const CudaProblem& problem) {
  int bytes = 0;
  for (size_t i = product_inputs(problem); i < problem.inputs.size(); ++i) {
    if (differs_by_row(problem.inputs[i])) bytes += dtype_bytes(problem.inputs[i].dtype);
  }
  return bytes;
}

ChunkRegisters chunk_registers(const CudaProblem& problem, size_t own_inputs, bool half_tile, int columns) {
  constexpr int kRegisterBytes = 4;
  const int vector_elements = half_tile ? 8 : 4;  // kVector of WgmmaChunks
  ChunkRegisters registers{.vectors = half_tile && columns % 64 != 0 ? 2 : 4};
  for (size_t i = own_inputs; i < problem.inputs.size(); ++i) {
    const CudaWindow& window = problem.inputs[i];
    const bool repeats = window.strides.empty() || window.strides.back() == Dim(0);
    const int vector = repeats ? 1 : vector_elements * dtype_bytes(window.dtype) / kRegisterBytes;
    (differs_by_row(window) ? registers.own : registers.shared) += vector;
  }
  if (!half_tile) registers.rows = registers.vectors * row_offsets(problem, own_inputs);
  return registers;
}

bool matmul_family_fits(const CudaProblem& problem, MatmulFamily family) {
  const bool half = is_half(problem.inputs[0].dtype), tf32 = in_tf32(problem);
  if (has_panels(problem) && family != MatmulFamily::wgmma) return false;
  if (family == MatmulFamily::simt) return !tf32;
  if (family == MatmulFamily::mma) return half || tf32;
  if (family == MatmulFamily::batched) return !tf32 && !is_fused(problem);
  const MatmulView a = matmul_view(problem);
  if (family == MatmulFamily::warp)
    return half && !is_fused(problem) && !a.batch.empty() && is_contiguous(a, true) &&
           is_contiguous(a, false);
  if (family == MatmulFamily::direct) return half && !is_fused(problem) && reads_rows_along_k(problem, a);
  if (family == MatmulFamily::tf32x3) {
    if (problem.inputs[0].dtype != DType::f32 || tf32 || is_fused(problem)) return false;
  } else {
    // wgmma multiplies f32 along k alone, and does not round it (wgmma_tf32.cuh).
    const bool rounded = tf32 && problem.params[0] == Dim(kRoundedY) && a.x.along_k && a.y.along_k;
    if (!half && !rounded) return false;
  }
  const SymbolRanges& ranges = ranges_of(problem);
  // A tensor map has no empty axes; without rows or columns nothing is launched.
  return problem.arch == 90 && bounds(a.k, ranges).lo > 0 && fits_int32(a, ranges) && maps_fit(problem, a);
}

MatmulSizes matmul_sizes(const CudaProblem& problem) {
  const MatmulView a = matmul_view(problem);
  const auto size = [&](const Dim& dim) { return size_to_choose_by(dim, problem); };
  MatmulSizes sizes{1, size(a.m), size(a.n), size(a.k), a.y.along_k, a.x.along_k};
  sizes.f32 = problem.inputs[0].dtype == DType::f32;
  const auto whole_lines = [&](const MatmulOperand& operand) {
    constexpr int64_t kLine = 128;
    return divides(operand.along_k ? operand.row : operand.column, per(kLine, problem.inputs[0].dtype));
  };
  sizes.x_lines = whole_lines(a.x);
  sizes.y_lines = whole_lines({a.y.batch, a.y.column, a.y.row, a.y.along_k, a.y.vector});
  sizes.x_fetched = !a.x.vector;
  sizes.y_fetched = !a.y.vector;
  sizes.scattered = !divides(a.n, per(16, problem.inputs[0].dtype));
  if (in_tf32(problem)) sizes.k *= 2;
  sizes.dual = is_dual_gemm(problem);
  sizes.machine = problem.machine;
  if (sizes.dual) sizes.n *= 2;
  for (const Dim& dim : a.batch) sizes.batch = checked_mul(sizes.batch, size(dim));
  if (const ProductGroup* group = product_group(problem))
    sizes.batch = static_cast<int64_t>(group->products.size());
  return sizes;
}

std::vector<KernelVariant> grouped_variants(const CudaProblem& problem, int count,
                                            std::optional<DType> x_sums) {
  const TileProgram* program = problem.program;
  // row_sums.cuh adds rows of halves.
  if (x_sums && problem.inputs[0].dtype == DType::f32) return {};
  if (!matmul_family_fits(problem, MatmulFamily::wgmma) || !matmul_view(problem).batch.empty() ||
      program == nullptr || program->stages.size() != 1 || sums_rows(*program) ||
      problem.inputs.size() + 1 != kProductInputs + program->inputs.size() ||
      problem.outputs.size() != program->outputs.size())
    return {};
  ProductGroup group;
  group.products.resize(static_cast<size_t>(count));
  group.x_sums = x_sums;
  CudaProblem grouped = problem;
  grouped.fusion = &group;
  return variants_of(grouped, {MatmulFamily::wgmma});
}

bool takes_prologue(const CudaProblem& problem) {
  const auto* way = std::get_if<MatmulWay>(&problem.way);
  if (way == nullptr || !matmul_family_fits(problem, MatmulFamily::wgmma)) return false;
  const MatmulView a = matmul_view(problem);
  if (!a.batch.empty() || !a.k.constant() || !keeps_x(matmul_sizes(problem), *way)) return false;
  const std::vector<MatmulWay> ways = ways_of(problem, {MatmulFamily::wgmma});
  return std::find(ways.begin(), ways.end(), *way) != ways.end();
}

bool can_run_matmul_tensor_core(const Problem& problem) {
  return has_matrices(problem) && (is_half(problem.inputs[0].dtype) || in_tf32(problem));
}
bool can_run_matmul_tf32x3(const Problem& problem) {
  return has_matrices(problem) && problem.params.empty() && problem.inputs[0].dtype == DType::f32;
}
bool can_run_matmul_simt(const Problem& problem) {
  return has_matrices(problem) && !in_tf32(problem) && problem.inputs[0].dtype != DType::boolean;
}

CudaCode generate_matmul_tensor_core(const CudaProblem& problem) { return generate(problem, kTensorCore); }
CudaCode generate_matmul_tf32x3(const CudaProblem& problem) { return generate(problem, kTf32x3); }
CudaCode generate_matmul_simt(const CudaProblem& problem) { return generate(problem, kSimt); }
std::vector<KernelVariant> matmul_tensor_core_variants(const CudaProblem& problem) {
  return variants_of(problem, kTensorCore);
}
std::vector<KernelVariant> matmul_tf32x3_variants(const CudaProblem& problem) {
  return variants_of(problem, kTf32x3);
}
std::vector<KernelVariant> matmul_simt_variants(const CudaProblem& problem) {
  return variants_of(problem, kSimt);
}

}  // namespace aicf
