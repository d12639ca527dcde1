#include "kernels/attention/cuda/projected_cuda.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/attention/cuda/attention_text.h"
#include "kernels/matmul/cuda/matmul_cuda.h"
#include "kernels/matmul/cuda/wgmma_text.h"

namespace aicf {
namespace {

constexpr int64_t kPositions = 128, kPartColumns = 64;  // of a tile's q, k or v
// Clock cycles of an H100: a launch with its first loads and last stores, a step of 64 of k, what a tile
// costs beside; the attention of 64 rows of a head, and of each of its columns.
constexpr double kStart = 3400, kStep = 870, kTile = 600, kAttended = 1500, kAttendedColumn = 47;

int64_t param(const CudaProblem& problem, ProjectedParam which) {
  return problem.params[static_cast<size_t>(which)].require_constant(
      "a column or flag of projected attention");
}
bool has_bias(const CudaProblem& problem) { return param(problem, ProjectedParam::has_bias) != 0; }
bool has_mask(const CudaProblem& problem) { return param(problem, ProjectedParam::has_mask) != 0; }
const CudaWindow& mask_of(const CudaProblem& problem) { return problem.inputs[has_bias(problem) ? 3 : 2]; }

bool is_per_key(const CudaProblem& problem) {
  return has_mask(problem) && mask_strides(mask_of(problem))[2] == Dim(0);
}

// The product alone, of which the tiles are.
CudaProblem product_of(const CudaProblem& problem) {
  CudaProblem product;
  product.inputs = {problem.inputs[0], problem.inputs[1]};
  const Dim m = problem.inputs[0].sizes[0], n = problem.inputs[1].sizes[1];
  product.outputs = {{problem.inputs[0].dtype, Dim(0), {m, n}, {n, Dim(1)}}};
  product.ranges = problem.ranges;
  product.arch = problem.arch;
  return product;
}

MatmulWay way_of() {
  return {.unit = MatmulUnit::wgmma,
          .block_m = static_cast<int>(kPositions),
          .block_n = static_cast<int>(3 * kPartColumns),
          .stages = 4,
          .warpgroups = 2};
}

std::string projected_traits(const CudaProblem& problem, int64_t depth) {
  return std::string("struct Traits {\n  using Element = ") +
         std::string(cuda_type(problem.inputs[0].dtype)) +
         ";\n  using Mask = " + std::string(has_mask(problem) ? cuda_type(mask_of(problem).dtype) : "bool") +
         ";\n" + constant("kHasMask", has_mask(problem)) + constant("kMaskPerKey", is_per_key(problem)) +
         constant("kMaskUnit", int64_t{1}) +
         constant("kCausal", param(problem, ProjectedParam::causal) != 0) + constant("kWindow", int64_t{0}) +
         constant("kDepth", depth) + constant("kValueDepth", depth) + constant("kScale", problem.fparams[0]) +
         constant("kSoftcap", problem.fparams[1]) + constant("kRows", kPositions) +
         constant("kKeys", kPositions) + constant("kHeadGroup", int64_t{1}) +
         constant("kVectorOut", has_vector_rows(problem.outputs[0], 8)) + "};\n";
}

std::string operands(const CudaProblem& problem) {
  const auto column = [&](ProjectedParam which) { return std::to_string(param(problem, which)); };
  return "struct Operands : aicf::MatmulOperands<" + std::string(cuda_type(problem.inputs[0].dtype)) +
         ", int32_t> {\n  int64_t batches;\n" + constant("kHasBias", has_bias(problem)) +
         "  static __device__ __forceinline__ int column_of(int c) {\n"
         "    const int part = c / 64 % 3;\n    return (part == 0 ? " +
         column(ProjectedParam::q_column) + " : part == 1 ? " + column(ProjectedParam::k_column) + " : " +
         column(ProjectedParam::v_column) +
         ") + c / 192 * 64 + c % 64;\n  }\n"
         "  __device__ __forceinline__ void load_x(const CUtensorMap* map, uint32_t to, uint32_t barrier, "
         "int k, int row, "
         "uint32_t) const {\n    aicf::load_box(map, to, barrier, k, row);\n  }\n"
         "  __device__ __forceinline__ void load_y(const CUtensorMap* map, uint32_t to, uint32_t barrier, "
         "int k, int c, "
         "uint32_t) const {\n    aicf::load_box(map, to, barrier, column_of(c), k);\n  }\n};\n";
}

}  // namespace

bool fits_projected_attention(const CudaProblem& problem) {
  if (problem.arch != 90) return false;
  const auto &x = problem.inputs[0].sizes, &y = problem.inputs[1].sizes, &out = problem.outputs[0].sizes;
  if (x.size() != 2 || y.size() != 2 || out.size() != 4) return false;
  const auto heads = out[1].constant(), depth = out[3].constant();
  if (!heads || !depth || (*depth != 32 && *depth != 64) || *heads * *depth % kPartColumns != 0) return false;
  if (!(out[2] == Dim(kPositions)) || !(x[0] == out[0] * Dim(kPositions))) return false;
  for (const auto which : {ProjectedParam::q_column, ProjectedParam::k_column, ProjectedParam::v_column})
    if (param(problem, which) % 8 != 0) return false;
  if (has_bias(problem) && (!(problem.inputs[2].strides.back() == Dim(1)) ||
                            !divide_exactly(problem.inputs[2].offset, Dim(2)).has_value()))
    return false;
  const CudaProblem product = product_of(problem);
  if (!matmul_family_fits(product, MatmulFamily::wgmma)) return false;
  const MatmulSizes sizes = matmul_sizes(product);
  return sizes.x_along_k && !sizes.y_along_k;
}

double projected_attention_microseconds(const CudaProblem& problem) {
  const MatmulSizes sizes = matmul_sizes(product_of(problem));
  const Shape& out = problem.outputs[0].sizes;
  const auto heads = static_cast<double>(out[1].require_constant("heads")),
             depth = static_cast<double>(out[3].require_constant("depth"));
  const double columns = heads * depth;
  const double attended = (kAttended + kAttendedColumn * depth) * 2 * kPartColumns / depth;
  const double multiplied = std::ceil(static_cast<double>(sizes.k) / 64) * kStep + kTile;
  const double tiles = std::ceil(static_cast<double>(sizes.m) / kPositions) * columns / kPartColumns;
  const double waves = std::ceil(tiles / static_cast<double>(problem.machine.multiprocessors));
  return (kStart + multiplied + (waves - 1) * std::max(multiplied, attended) + attended) /
         kCyclesPerMicrosecond;
}

std::vector<KernelVariant> matmul_attention_variants(const CudaProblem& problem) {
  if (!fits_projected_attention(problem)) return {};
  return {{way_of(), projected_attention_microseconds(problem)}};
}

CudaCode generate_matmul_attention(const CudaProblem& problem) {
  AICF_CHECK(fits_projected_attention(problem), "attention that cannot share its product's kernel");
  const CudaProblem product = product_of(problem);
  const MatmulWay way = way_of();
  WgmmaTile tile;
  tile.y_along_k = false;
  tile.x_rows = way.block_m;
  tile.constant_y = problem.inputs[1].constant;
  tile.machine = problem.machine;
  const Shape& out = problem.outputs[0].sizes;
  const int64_t heads = out[1].require_constant("heads"), depth = out[3].require_constant("depth");
  const Dim m = problem.inputs[0].sizes[0], k = problem.inputs[0].sizes[1];
  const int64_t columns = heads * depth * 3;

  CudaParams params;
  CudaLaunch launch = wgmma_launch(way, tile, out[0] * Dim(columns / way.block_n));
  launch.function =
      "matmul_attention_" + std::string(dtype_name(problem.inputs[0].dtype)) + "_" + std::to_string(depth);
  launch.block = 512;
  // Places of projected.cuh behind the stages.
  constexpr int64_t kBarriers = 1024, kPart = kPositions * 2 * kPartColumns;
  launch.shared_bytes = way.stages * int64_t{way.block_m + way.block_n} * 2 * 64 + kBarriers + 3 * kPart +
                        kPartColumns / depth * 4 * kPositions + 3 * kPartColumns * 2 + 16;
  launch.tensor_maps = {{0, {1, 0}, {64, way.block_m}, 128}, {1, {1, 0}, {64, 64}, 128}};

  const std::string index = "int32_t";
  std::string body = "  const Operands operands = {{in0, in1, int32_t(" + params.param(m) + "), " +
                     std::to_string(columns) + ", int32_t(" + params.param(k) + "), 0, 1, 0, 1}, 1};\n";
  const std::string mask = has_mask(problem) ? (has_bias(problem) ? "in3" : "in2") : "nullptr";
  const std::vector<Dim> none(4, Dim(0));
  body += "  const aicf::attention::Call<Traits> call{nullptr, nullptr, nullptr, " + mask +
          ", out0, nullptr,\n      ";
  for (int i = 0; i < 3; ++i) body += view(params, none) + ", ";
  body += view(params, has_mask(problem) ? mask_strides(mask_of(problem)) : none) + ", " +
          view(params, problem.outputs[0].strides) + ",\n      " + std::to_string(heads) + ", 1, " +
          std::to_string(kPositions) + ", " + std::to_string(kPositions) + "};\n";
  body += "  aicf::ProjectedAttention<" + wgmma_type_text(way, tile) +
          ", Traits>::run(operands, &map0, &map1, " + (has_bias(problem) ? "in2" : "nullptr") +
          ", call);\n}\n";
  launch.params = params.dims();

  CudaCode code;
  code.compile_cost = kLongToCompile;
  code.source = "#include \"prelude.cuh\"\n#include \"attention/cuda/projected.cuh\"\n" +
                projected_traits(problem, depth) + operands(problem) +
                wgmma_multiply_text(problem.inputs[0].dtype, way.block_n, true, false) +
                cuda_kernel_head(problem, launch, false, 1) + body;
  code.launches.push_back(launch);
  return code;
}

bool can_run_matmul_attention(const Problem& problem) {
  return problem.inputs.size() >= 2 && problem.inputs.size() <= 4 && problem.outputs.size() == 1 &&
         problem.params.size() == 6 && problem.fparams.size() == 2 &&
         (problem.inputs[0].dtype == DType::f16 || problem.inputs[0].dtype == DType::bf16);
}

}  // namespace aicf
