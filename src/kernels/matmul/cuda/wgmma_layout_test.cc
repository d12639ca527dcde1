// Compile-only: the shared memory that the host counts for products of wgmma is what the device lays out, in
// every way of several problems.
#include <gtest/gtest.h>

#include <map>

#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"
#include "kernels/matmul/cuda/matmul_cuda.h"
#include "kernels/matmul/cuda/matmul_plan.h"
#include "kernels/testing/layout_text.h"
#include "kernels/tile/testing/hand_written.h"

namespace aicf {
namespace {

using cuda_testing::expect_compiles;
using cuda_testing::LayoutText;
using tile_testing::load;
using tile_testing::op;
using tile_testing::store;

// The results, as they are, as halves or in f32.
TileProgram program_of(bool halves) {
  TileProgram program{{DType::f32}, {halves ? DType::f16 : DType::f32}, {{TileType::f32}}, {}, {}};
  program.stages = {{load(0, 0), store(1, 0)}};
  return program;
}

// The results over the largest of their row.
TileProgram row_program() {
  TileProgram program{
      {DType::f32}, {DType::f16}, std::vector<TileRegister>(3, {TileType::f32, true}), {}, {}};
  program.scalars = {TileType::f32};
  program.stages = {{load(0, 0), op(TileOp::round_f16, 1, 0), op(TileOp::reduce_max, kTileScalarBase, 1)},
                    {op(TileOp::div, 2, 1, kTileScalarBase), store(1, 2)}};
  return program;
}

CudaProblem problem_of(int64_t m, int64_t n, int64_t k, const TileProgram& program) {
  CudaProblem problem;
  problem.inputs = {{DType::f16, Dim(0), {Dim(m), Dim(k)}, {Dim(k), Dim(1)}},
                    {DType::f16, Dim(0), {Dim(k), Dim(n)}, {Dim(1), Dim(k)}}};
  problem.outputs = {{program.outputs[0], Dim(0), {Dim(m), Dim(n)}, {Dim(n), Dim(1)}}};
  problem.program = &program;
  problem.arch = 90;
  return problem;
}

enum class Epilogue { few_rows, reduce_scatter, overlaid, epilogue_warps, row, plain };

Epilogue epilogue_of(const MatmulPlan& plan) {
  const MatmulWay& way = plan.way;
  if (row_blocks(way) > 0) return Epilogue::row;
  if (has_epilogue_warps(way)) return Epilogue::epilogue_warps;
  if (sends_few_rows(plan.wgmma.x_rows, way)) return Epilogue::few_rows;
  if (way.split.kind == SplitKind::stream) return Epilogue::overlaid;  // parts go to memory as they are
  if (!splits_in_cluster(way)) return Epilogue::plain;
  return reduce_scatters(way) ? Epilogue::reduce_scatter : Epilogue::overlaid;
}

void add_epilogue(LayoutText& text, const MatmulPlan& plan) {
  const int64_t host = wgmma_epilogue_bytes(plan.way, plan.wgmma);
  text.use("Chunks", "Matmul::Chunks<Operands, Epilogue>");
  const std::string chunks = "Matmul::kConsumers / 32 * 16 * Chunks::kRowBytes";
  switch (epilogue_of(plan)) {
    case Epilogue::few_rows:
      return text.equal("Matmul::Few::kBytes", host);
    case Epilogue::reduce_scatter:
      text.use("Parts", "aicf::WgmmaReduceScatter<Matmul, Operands, Epilogue>");
      return text.equal(
          "Parts::kChunkBytes + 16 + (Parts::kParts - 1) * Parts::kOwn * Parts::kVectors * Parts::kThreads * "
          "16",
          host);
    case Epilogue::overlaid:
      EXPECT_EQ(host, 0);
      return;
    case Epilogue::epilogue_warps:
      text.use("Buffers", "Matmul::ResultBuffers<Chunks>");
      return text.equal("Matmul::kWarps * (16 + Buffers::kBufferBytes)", host);
    case Epilogue::row:
      text.use("Exchange", "Matmul::TileChunks<Operands, Epilogue>::Exchange");
      return text.equal(chunks + " + Exchange::kBarriers * (8 + Exchange::kRows * 4 * " +
                            std::to_string(row_blocks(plan.way)) + ")",
                        host);
    case Epilogue::plain:
      return text.equal(chunks, host);
  }
}

std::string layout_text(const CudaProblem& problem, const MatmulPlan& plan, const std::string& source) {
  LayoutText text(source);
  text.use("Matmul", wgmma_type_text(plan.way, plan.wgmma));
  text.equal("Matmul::kStageBytes + 16", wgmma_stage_bytes(plan.way, plan.wgmma));
  text.equal("Matmul::kFewRows", sends_few_rows(plan.wgmma.x_rows, plan.way));
  text.equal("Matmul::kReduceScatters", reduce_scatters(plan.way));
  text.equal("Matmul::kStationaryX", keeps_x_stationary(plan.way));
  if (keeps_x_stationary(plan.way))
    text.equal("Matmul::kKeptBarriers + Matmul::kKeptBytes * " + std::to_string(plan.wgmma.kept_steps),
               stationary_x_bytes(plan.way, plan.wgmma));
  text.equal("Operands::kWholeTiles", largest(plan.view.m, ranges_of(problem)) % plan.way.block_m == 0 &&
                                          largest(plan.view.n, ranges_of(problem)) % plan.tile_columns == 0);
  add_epilogue(text, plan);
  return text.text();
}

TEST(WgmmaLayout, HostAndDeviceAgree) {
  const TileProgram halves = program_of(true), floats = program_of(false), rows = row_program();
  std::vector<std::string> texts;
  std::map<Epilogue, int> seen;
  const auto add = [&](const CudaProblem& problem, const MatmulWay& way) {
    const MatmulPlan plan = resolve(way, problem);
    const CudaCode code = matmul_code(problem, way);
    // Of each kind and problem a few: they differ in numbers alone.
    if (++seen[epilogue_of(plan)] > 12) return;
    texts.push_back(layout_text(problem, plan, code.source));
    EXPECT_GE(code.launches[0].shared_bytes, plan.way.stages * wgmma_stage_bytes(plan.way, plan.wgmma) +
                                                 wgmma_epilogue_bytes(plan.way, plan.wgmma) +
                                                 stationary_x_bytes(plan.way, plan.wgmma))
        << to_string(way);
  };
  for (const TileProgram* program : {&halves, &floats})
    for (const auto& [m, n, k] : {std::tuple(8, 4096, 4096),
                                  {1, 2048, 2048},
                                  {64, 1536, 1024},
                                  {256, 4096, 8192},
                                  {8192, 1536, 384},
                                  {4096, 3072, 768}}) {
      const CudaProblem problem = problem_of(m, n, k, *program);
      ASSERT_TRUE(matmul_family_fits(problem, MatmulFamily::wgmma));
      for (const MatmulWay& way : matmul_ways(matmul_sizes(problem), MatmulFamily::wgmma, 90, 4))
        add(problem, way);
    }
  const CudaProblem problem = problem_of(512, 768, 768, rows);
  for (const KernelVariant& variant : cuda_variants(*find_cuda_kernel("matmul_rows"), problem))
    add(problem, std::get<MatmulWay>(variant.way));
  EXPECT_EQ(seen.size(), 6u) << "every kind of epilogue";
  AICF_NEEDS_NVRTC();
  expect_compiles(texts, "sm_90a");
}

}  // namespace
}  // namespace aicf
