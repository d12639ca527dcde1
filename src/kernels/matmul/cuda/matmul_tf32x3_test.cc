// Compile-only: products of f32 by parts.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/matmul/cuda/matmul_plan.h"
#include "kernels/matmul/testing/matmul_case.h"
#include "kernels/testing/layout_text.h"

namespace aicf {
namespace {

using cuda_testing::expect_compiles;
using matmul_testing::between;
using matmul_testing::Case;
using matmul_testing::Layout;
using matmul_testing::link;
using matmul_testing::set_windows;

// Products of f32 by parts: every tile and layout stays in registers, and shared memory lies as the host
// counts.
TEST(MatmulTf32x3Cuda, takes_every_layout_that_the_copy_engine_reads) {
  const auto problem_of = [](Case& c, int arch, const Layout& layout) {
    set_windows(c, DType::f32, {Dim(2)}, Dim(1000), Dim(520), Dim(1004), layout);
    link(c, arch);
  };
  const auto fits = [&](int arch, const Layout& layout, const std::vector<Dim>& params = {}) {
    Case c;
    problem_of(c, arch, layout);
    c.problem.params = params;
    return matmul_family_fits(c.problem, MatmulFamily::tf32x3);
  };
  EXPECT_TRUE(fits(90, {}));
  EXPECT_TRUE(fits(90, {.x_transposed = true, .y_transposed = true, .padding = 4, .y_shared = true}));
  EXPECT_FALSE(fits(90, {.padding = 3}));
  EXPECT_FALSE(fits(89, {}));
  EXPECT_FALSE(fits(90, {}, {Dim(1)}));
  std::vector<std::string> sources, layouts;
  for (const bool x_transposed : {false, true})
    for (const bool y_transposed : {false, true}) {
      Case c;
      problem_of(c, 90, {.x_transposed = x_transposed, .y_transposed = y_transposed});
      const std::vector<MatmulWay> ways = matmul_ways(matmul_sizes(c.problem), MatmulFamily::tf32x3, 90, 4);
      EXPECT_GT(ways.size(), matmul_tiles(MatmulFamily::tf32x3, 4).size());
      for (const MatmulWay& way : ways) {
        if (split_parts(way) > 2) continue;  // as those of two
        EXPECT_GE(way.stages, 3) << to_string(way);
        const CudaCode code = matmul_code(c.problem, way);
        const CudaLaunch& launch = code.launches.at(0);
        EXPECT_LE(launch.shared_bytes, shared_limit(90)) << to_string(way);
        EXPECT_EQ(launch.cluster, split_parts(way));
        const auto box = [](bool along_k, int side) {
          return along_k ? std::vector<int32_t>{32, side, 1} : std::vector<int32_t>{32, 32, 1};
        };
        EXPECT_EQ(launch.tensor_maps.at(0).box, box(!x_transposed, way.block_m));
        EXPECT_EQ(launch.tensor_maps.at(1).box, box(y_transposed, way.block_n));
        cuda_testing::LayoutText text(code.source);
        text.use("Matmul", between(code.source, "aicf::WgmmaTf32x3<", "::run("));
        text.use("Chunks", "aicf::WgmmaChunks<Matmul, Operands, Epilogue>");
        text.equal(
            "Matmul::kStages * (Matmul::kStageBytes + Matmul::kBarrierBytes) + "
            "Matmul::kConsumers / 32 * 16 * Chunks::kRowBytes",
            launch.shared_bytes);
        text.equal("Matmul::Shared{0}.chunks() % 16", 0);
        layouts.push_back(text.text());
        sources.push_back(code.source);
      }
    }
  AICF_NEEDS_NVRTC();
  expect_compiles(layouts, "sm_90a");
  cuda_testing::expect_no_stack(sources, "sm_90a");
}

}  // namespace
}  // namespace aicf
