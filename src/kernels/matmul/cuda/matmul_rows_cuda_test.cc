// Compile-only: products with an epilogue over rows or by dedicated warps, and what they take.
// What the code computes is checked where there is a GPU (compile/calls/join_rows_test.cc).
#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"
#include "kernels/matmul/cuda/matmul_cuda.h"
#include "kernels/matmul/cuda/wgmma_text.h"
#include "kernels/tile/cuda/tile_cuda.h"
#include "kernels/tile/testing/hand_written.h"

namespace aicf {
namespace {

using cuda_testing::expect_compiles;

using tile_testing::load;
using tile_testing::op;
using tile_testing::store;
using tile_testing::store_scalar;
constexpr int kScalar = kTileScalarBase;

// s = round(tile + own), stored if `keeps`; y = s - max of the row's s, stored with that maximum's negative.
TileProgram program(DType half, bool keeps) {
  const TileOp round = half == DType::f16 ? TileOp::round_f16 : TileOp::round_bf16;
  TileProgram result;
  result.inputs = {DType::f32, half};
  result.outputs = {half, DType::f32};
  const int y = keeps ? 3 : 2;
  std::vector<TileInstr> first = {load(0, 0), load(1, 1), op(TileOp::add, 2, 0, 1), op(round, 3, 2)};
  if (keeps) {
    result.outputs.insert(result.outputs.begin(), half);
    first.push_back(store(2, 2));
  }
  first.push_back(op(TileOp::reduce_max, kScalar, 3));
  result.registers.assign(5, {TileType::f32, true});
  result.scalars = {TileType::f32, TileType::f32};
  result.stages = {first,
                   {op(TileOp::neg, kScalar + 1, kScalar), op(TileOp::sub, 4, 3, kScalar), store(y, 4),
                    store_scalar(y + 1, 1)}};
  check_tile_program(result);
  return result;
}

struct RowsCase {
  TileProgram program;
  SymbolRanges ranges;
  CudaProblem problem;
};

void set_up(RowsCase& c, DType half, bool keeps, const Dim& m, const Dim& n, int arch = 90) {
  const auto window = [](DType dtype, const Dim& rows, const Dim& columns) {
    return CudaWindow{dtype, Dim(0), {rows, columns}, {columns, Dim(1)}};
  };
  c.program = program(half, keeps);
  c.problem.inputs = {window(half, m, Dim(192)), window(half, Dim(192), n), window(half, m, n)};
  c.problem.outputs = {window(half, m, n), window(DType::f32, m, Dim(1))};
  if (keeps) c.problem.outputs.insert(c.problem.outputs.begin(), window(half, m, n));
  c.problem.program = &c.program;
  c.problem.ranges = &c.ranges;
  c.problem.arch = arch;
}

const CudaKernel& rows_kernel() { return *find_cuda_kernel("matmul_rows"); }

TEST(MatmulRowsCuda, Compiles) {
  std::vector<std::string> sources;
  for (const DType half : {DType::f16, DType::bf16}) {
    RowsCase c;
    c.ranges["m"] = {1, 4096};
    set_up(c, half, half == DType::f16, Dim::symbol("m"), Dim(half == DType::f16 ? 768 : 2048));
    const CudaCode code = rows_kernel().generate(c.problem);
    ASSERT_EQ(code.launches.size(), 1u);
    EXPECT_EQ(evaluate(code.launches[0].grid[0], {{"m", 300}}), 3 * code.launches[0].cluster);
    sources.push_back(code.source);
  }
  AICF_NEEDS_NVRTC();
  expect_compiles(sources, "sm_90a");
}

TEST(MatmulRowsCuda, BlocksOfAClusterCoverARow) {
  for (const int64_t n : {64, 256, 320, 384, 768, 1024, 1536, 2048}) {
    RowsCase c;
    set_up(c, DType::bf16, true, Dim(512), Dim(n));
    const auto variants = cuda_variants(rows_kernel(), c.problem);
    EXPECT_FALSE(variants.empty()) << n;
    for (const KernelVariant& variant : variants) {
      c.problem.way = variant.way;
      const CudaLaunch launch = rows_kernel().generate(c.problem).launches[0];
      EXPECT_LE(launch.shared_bytes, 227 * 1024) << to_string(variant.way);
      EXPECT_EQ(evaluate(launch.grid[0], {}), 4 * launch.cluster) << to_string(variant.way);
      EXPECT_EQ(n % launch.cluster, 0) << to_string(variant.way);
    }
  }
}

TEST(MatmulRowsCuda, TakesNothingElse) {
  const auto ways = [](const RowsCase& c) { return cuda_variants(rows_kernel(), c.problem).size(); };
  RowsCase c;
  for (const int64_t n : {100, 2112, 4096}) {
    set_up(c, DType::f16, false, Dim(512), Dim(n));
    EXPECT_EQ(ways(c), 0u) << n;
  }
  c.ranges["n"] = {256, 512};
  set_up(c, DType::f16, false, Dim(512), Dim::symbol("n"));
  EXPECT_EQ(ways(c), 0u);
  set_up(c, DType::f16, false, Dim(512), Dim(256), 89);
  EXPECT_EQ(ways(c), 0u);
  // A result's own operand of four bytes; nothing that is rounded to a half.
  set_up(c, DType::f16, false, Dim(512), Dim(256));
  c.problem.inputs[2].dtype = DType::f32;
  EXPECT_EQ(ways(c), 0u);
  set_up(c, DType::f16, false, Dim(512), Dim(256));
  c.program.stages[0][3].op = TileOp::neg;
  EXPECT_EQ(ways(c), 0u);
}

// Epilogue warps get halves: a program that sees them in f32 has its tiles stored by the warps that
// multiply.
TEST(MatmulEpilogueWarpsCuda, CompilesAndNeedsHalves) {
  std::vector<std::string> sources;
  for (const MatmulWay& way : matmul_tiles(MatmulFamily::wgmma, 4)) {
    if (!has_epilogue_warps(way)) continue;
    for (const DType result : {DType::f16, DType::f32}) {
      TileProgram stores{{DType::f32}, {result}, {{TileType::f32}}, {}, {}};
      stores.stages = {{load(0, 0), store(1, 0)}};
      RowsCase c;
      set_up(c, DType::f16, false, Dim(4096), Dim(2304));
      c.problem.inputs.pop_back();
      c.problem.outputs.pop_back();
      c.problem.outputs[0].dtype = result;
      c.problem.program = &stores;
      const CudaCode code = matmul_code(c.problem, way);
      EXPECT_EQ(code.source.find("EpilogueWarpsMatmul") != std::string::npos, result == DType::f16);
      EXPECT_EQ(code.launches[0].block, result == DType::f16 && !has_three_epilogue_warps(way) ? 512 : 384);
      if (result == DType::f16) sources.push_back(code.source);
    }
  }
  EXPECT_EQ(sources.size(), 4u);
  AICF_NEEDS_NVRTC();
  expect_compiles(sources, "sm_90a");
}

// Four warps would take longer for the functions than the product of a tile does.
TEST(MatmulEpilogueWarpsCuda, SevenWarpsStoreFunctionsOfShortProducts) {
  TileProgram gelu{{DType::f32}, {DType::f16}, {{TileType::f32}, {TileType::f32}, {TileType::f32}}, {}, {}};
  gelu.stages = {{load(0, 0), op(TileOp::round_f16, 1, 0), op(TileOp::gelu, 2, 1), store(1, 2)}};
  TileProgram sum = gelu;
  sum.stages[0][2].op = TileOp::neg;
  const MatmulWay tile{.unit = MatmulUnit::wgmma, .block_m = 128, .block_n = 192, .warpgroups = 2};
  EXPECT_EQ(epilogue_warps(tile, gelu, Dim(384)), 7);
  EXPECT_EQ(epilogue_warps(tile, gelu, Dim(768)), 4);
  EXPECT_EQ(epilogue_warps(tile, gelu, Dim::symbol("k")), 4);
  EXPECT_EQ(epilogue_warps(tile, sum, Dim(384)), 4);
  AICF_NEEDS_NVRTC();
  for (const MatmulWay& way : matmul_tiles(MatmulFamily::wgmma, 4)) {
    if (!has_epilogue_warps(way)) continue;
    RowsCase c;
    set_up(c, DType::f16, false, Dim(4096), Dim(2304));
    c.problem.inputs.pop_back();
    c.problem.outputs.pop_back();
    c.problem.program = &gelu;
    const CudaCode code = matmul_code(c.problem, way);
    const char* warps = has_three_epilogue_warps(way) ? ", 3>::run"
                        : keeps_x_stationary(way)     ? ", 7, 3>::run"
                                                      : ", 7>::run";
    EXPECT_NE(code.source.find(warps), std::string::npos);
    expect_compiles({code.source}, "sm_90a");
  }
}

// y = x * w, stored, and the sum of y over the rows: a second launch adds the parts of 16 rows.
TEST(MatmulSumsCuda, WholeTilesSumTheirRows) {
  TileProgram program{{DType::f32, DType::bf16},
                      {DType::bf16, DType::f32},
                      std::vector<TileRegister>(4, {TileType::f32}),
                      {},
                      {}};
  TileInstr sums = store(3, 3);
  sums.op = TileOp::store_sum;
  program.stages = {{load(0, 0), op(TileOp::round_bf16, 1, 0), load(2, 1), op(TileOp::mul, 2, 1, 2),
                     op(TileOp::round_bf16, 3, 2), store(2, 2), sums}};
  check_tile_program(program);
  RowsCase c;
  set_up(c, DType::bf16, false, Dim(4096), Dim(2304));
  c.problem.program = &program;
  c.problem.outputs[1] = {DType::f32, Dim(0), {Dim(4096), Dim(2304)}, {Dim(0), Dim(1)}};
  const CudaKernel& product = *find_cuda_kernel("matmul_tensor_core");
  std::vector<std::string> sources;
  std::array<bool, 3> seen{};
  for (const KernelVariant& variant : cuda_variants(product, c.problem)) {
    const auto& own = std::get<MatmulWay>(variant.way);
    EXPECT_EQ(split_parts(own), 1) << to_string(variant.way);
    c.problem.way = variant.way;
    const CudaCode code = product.generate(c.problem);
    ASSERT_EQ(code.launches.size(), 2u) << to_string(variant.way);
    EXPECT_EQ(code.workspace_bytes, Dim(4096 / 16 * 2304 * 4)) << to_string(variant.way);
    EXPECT_EQ(code.launches[1].grid[0], Dim(2304 / 32)) << to_string(variant.way);
    // One of each way to store.
    const size_t kind = has_epilogue_warps(own) ? 1 : is_ping_pong(own) ? 2 : 0;
    if (!std::exchange(seen[kind], true)) sources.push_back(code.source);
  }
  EXPECT_EQ(sources.size(), seen.size());
  AICF_NEEDS_NVRTC();
  expect_compiles(sources, "sm_90a");
}

}  // namespace
}  // namespace aicf
