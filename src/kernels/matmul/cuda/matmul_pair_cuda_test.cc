// Compile-only: pairs of products by every family on every architecture, and what they take. What the code
// computes is checked where there is a GPU (compile/calls/join_pairs_test.cc).
#include <gtest/gtest.h>

#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"
#include "kernels/testing/cuda_texts.h"
#include "kernels/tile/testing/hand_written.h"

namespace aicf {
namespace {

using cuda_testing::dense;
using cuda_testing::expect_compiles;
using tile_testing::load;
using tile_testing::op;
using tile_testing::store;

// Operands 0 and 1 are the products, 2 is a bias of the second: stores sigmoid(p) · (q + bias) and, if
// `keeps`, p.
TileProgram gate(DType dtype, bool keeps) {
  const TileOp round = dtype == DType::f16    ? TileOp::round_f16
                       : dtype == DType::bf16 ? TileOp::round_bf16
                                              : TileOp::to_f32;
  TileProgram program;
  program.inputs = {DType::f32, DType::f32, dtype};
  program.outputs.assign(keeps ? 2 : 1, dtype);
  program.registers.assign(8, {TileType::f32});
  program.stages = {{load(0, 0), op(round, 1, 0), load(2, 1), op(round, 3, 2), load(4, 2),
                     op(TileOp::add, 5, 3, 4), op(round, 5, 5), op(TileOp::sigmoid, 6, 1),
                     op(TileOp::mul, 7, 6, 5), store(3, 7)}};
  if (keeps) program.stages[0].push_back(store(4, 1));
  check_tile_program(program);
  return program;
}

struct PairCase {
  TileProgram program;
  SymbolRanges ranges;
  CudaProblem problem;
};

void set_up_pair(PairCase& c, DType dtype, const Dim& m, const Dim& n, const Dim& k, int arch,
                 bool keeps = false) {
  c.program = gate(dtype, keeps);
  CudaWindow bias = dense(dtype, {m, n});
  bias.strides[0] = Dim(0);
  c.problem.inputs = {dense(dtype, {m, k}), dense(dtype, {k, n}), dense(dtype, {k, n}), bias};
  c.problem.outputs.assign(keeps ? 2 : 1, dense(dtype, {m, n}));
  if (dtype == DType::f32) c.problem.params = {Dim(1)};
  c.problem.program = &c.program;
  c.problem.ranges = &c.ranges;
  c.problem.arch = arch;
}

// The two halves of the columns of one matrix.
void halve(PairCase& c, const Dim& n) {
  for (const size_t i : {1, 2}) c.problem.inputs[i].strides[0] = n * Dim(2);
  c.problem.inputs[2].offset = n;
}

const CudaKernel& row() { return *find_cuda_kernel("matmul_pair"); }

TEST(MatmulPairCuda, CompilesInEveryWay) {
  for (const auto& [arch, target] : cuda_testing::kArchs) {
    std::vector<std::string> sources;
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32})
      for (const int64_t n : {4096, 1000, 333}) {
        PairCase c;
        c.ranges["m"] = {1, 4096};
        const Dim m = n == 4096 ? Dim(2048) : Dim::symbol("m");
        set_up_pair(c, dtype, m, Dim(n), Dim(n == 333 ? 70 : 256), arch, dtype == DType::bf16);
        if (n == 1000) halve(c, Dim(n));
        const auto variants = cuda_variants(row(), c.problem);
        ASSERT_FALSE(variants.empty());
        EXPECT_EQ(is_wgmma(std::get<MatmulWay>(variants[0].way)),
                  arch == 90 && dtype != DType::f32 && n != 333);
        for (const KernelVariant& variant : variants) {
          c.problem.way = variant.way;
          const CudaCode code = row().generate(c.problem);
          EXPECT_EQ(code, row().generate(c.problem));
          ASSERT_EQ(code.launches.size(), 1u);
          EXPECT_LE(code.launches[0].shared_bytes, (arch == 90 ? 227 : 99) * 1024) << to_string(variant.way);
          // Every way on one architecture; of halves and of f32 the first, ragged and not.
          const bool first = variant == variants[0] && (dtype == DType::f32 ? n == 333 : n != 333);
          if (dtype == DType::bf16 ? arch == 90 && n == 4096 : first && (arch == 90 || n != 4096))
            sources.push_back(code.source);
        }
      }
    AICF_NEEDS_NVRTC();
    expect_compiles(sources, target);
  }
}

TEST(MatmulPairCuda, HasATileOfColumnsOfBoth) {
  PairCase c;
  set_up_pair(c, DType::bf16, Dim(2048), Dim(4096), Dim(512), 80);
  for (const KernelVariant& variant : cuda_variants(row(), c.problem)) {
    c.problem.way = variant.way;
    const int64_t rows = std::get<MatmulWay>(variant.way).block_m;
    EXPECT_EQ(row().generate(c.problem).launches[0].grid[0], Dim(2048 / rows * (4096 / 64)));
  }
  c.problem.arch = 90;
  c.problem.way = {};
  for (CudaWindow& w : c.problem.inputs) w.constant = true;
  const CudaLaunch launch = row().generate(c.problem).launches[0];
  ASSERT_EQ(launch.tensor_maps.size(), 3u);
  for (const int operand : {0, 1, 2})
    EXPECT_EQ(launch.tensor_maps[static_cast<size_t>(operand)].operand, operand);
  EXPECT_EQ(launch.early_inputs, (std::vector<int32_t>{1, 2}));
}

TEST(MatmulPairCuda, TakesMatricesOfOneFormAndElementsAlone) {
  const auto ways = [](const PairCase& c) { return cuda_variants(row(), c.problem).size(); };
  PairCase c;
  set_up_pair(c, DType::f16, Dim(512), Dim(256), Dim(64), 80);
  EXPECT_GT(ways(c), 0u);
  c.problem.inputs[2].strides[0] = Dim(512);
  EXPECT_EQ(ways(c), 0u);
  set_up_pair(c, DType::f16, Dim(512), Dim(256), Dim(64), 90);
  c.program.stages.emplace_back();
  EXPECT_EQ(ways(c), 0u);
  set_up_pair(c, DType::f16, Dim(512), Dim(256), Dim(64), 90);
  c.program.stages[0].back().op = TileOp::store_sum;
  EXPECT_EQ(ways(c), 0u);
  // The second matrix begins where the copy engine cannot.
  set_up_pair(c, DType::f16, Dim(512), Dim(256), Dim(64), 90);
  c.problem.inputs[2].offset = Dim(4);
  EXPECT_EQ(std::get<MatmulWay>(cuda_variants(row(), c.problem)[0].way).unit, MatmulUnit::mma);
}

}  // namespace
}  // namespace aicf
