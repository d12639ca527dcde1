// Compile-only: batches of small products.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
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
using matmul_testing::Engine;
using matmul_testing::Layout;
using matmul_testing::link;
using matmul_testing::pick;
using matmul_testing::set_windows;

// Of many small products, in every layout, aligned and not: what the device lays out is what the host counts.
TEST(MatmulBatchedCuda, blocks_of_whole_products_take_every_layout) {
  std::vector<std::string> sources;
  Engine engine(7);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i8, DType::i32})
    for (const bool x_transposed : {false, true})
      for (const bool y_transposed : {false, true}) {
        Case c;
        const auto size = [&] { return Dim(pick<int64_t>(engine, {1, 3, 8, 16, 30, 49, 64})); };
        set_windows(c, dtype, {Dim(1000)}, size(), size(), size(),
                    {x_transposed, y_transposed, pick<int64_t>(engine, {0, 3})});
        link(c, 90);
        const auto ways =
            matmul_ways(matmul_sizes(c.problem), MatmulFamily::batched, 90, accumulator_bytes(dtype));
        ASSERT_FALSE(ways.empty());
        for (const MatmulWay& way : ways) {
          const CudaCode code = matmul_code(c.problem, way);
          EXPECT_EQ(code.launches[0].grid[0], ceildiv(Dim(1000), Dim(way.batches)));
          const std::string type =
              "aicf::BatchedMatmul<" + between(code.source, "aicf::BatchedMatmul<", "::run")
                                           .substr(std::string("aicf::BatchedMatmul<").size());
          cuda_testing::LayoutText text(code.source);
          text.use("Matmul", type);
          text.equal("Matmul::kThreads", code.launches[0].block);
          text.equal("Matmul::kSharedBytes", code.launches[0].shared_bytes);
          sources.push_back(text.text());
        }
        sources.push_back(matmul_code(c.problem, ways[0]).source);
      }
  AICF_NEEDS_NVRTC();
  expect_compiles(sources, "sm_90a");
}

// Of halves whose matrices follow one another, however long their rows are.
TEST(MatmulBatchedCuda, warps_have_whole_products_of_contiguous_memory) {
  std::vector<std::string> sources;
  Engine engine(11);
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const bool x_transposed : {false, true})
      for (const bool y_transposed : {false, true})
        for (const bool shared : {false, true}) {
          Case c;
          const auto size = [&] { return Dim(pick<int64_t>(engine, {1, 3, 8, 16, 30, 49, 64})); };
          set_windows(c, dtype, {Dim(10), Dim(100)}, size(), size(), size(),
                      {x_transposed, y_transposed, 0, shared && x_transposed, shared});
          link(c, 90);
          ASSERT_TRUE(matmul_family_fits(c.problem, MatmulFamily::warp));
          for (const MatmulWay& way : matmul_ways(matmul_sizes(c.problem), MatmulFamily::warp, 90, 4)) {
            const CudaCode code = matmul_code(c.problem, way);
            EXPECT_EQ(code.launches[0].grid[0], Dim(1000 / way.batches));
            cuda_testing::LayoutText text(code.source);
            text.use("Matmul",
                     "aicf::WarpProducts<" + between(code.source, "  aicf::WarpProducts<", "::run")
                                                 .substr(std::string("  aicf::WarpProducts<").size()));
            text.equal("Matmul::kThreads", code.launches[0].block);
            text.equal("Matmul::kSharedBytes", code.launches[0].shared_bytes);
            sources.push_back(text.text());
            if (way.batches == 4) sources.push_back(code.source);
          }
        }
  const auto fits = [](DType dtype, const Shape& batch, const Layout& layout) {
    Case c;
    set_windows(c, dtype, batch, Dim(30), Dim(30), Dim(30), layout);
    link(c, 90);
    return matmul_family_fits(c.problem, MatmulFamily::warp);
  };
  EXPECT_TRUE(fits(DType::f16, {Dim(1), Dim::symbol("b")}, {}));
  EXPECT_FALSE(fits(DType::f16, {Dim(7)}, {.padding = 2}));
  EXPECT_FALSE(fits(DType::f32, {Dim(7)}, {}));
  EXPECT_FALSE(fits(DType::f16, {}, {}));
  AICF_NEEDS_NVRTC();
  expect_compiles(sources, "sm_90a");
}

// The memory of a product of 30 x 30 is read as it lies: rows of 60 bytes in whole vectors.
TEST(MatmulBatchedCuda, short_odd_rows_of_halves_take_warps) {
  for (const auto& [m, n, k] : {std::tuple(30, 30, 30), {45, 17, 23}, {31, 9, 59}}) {
    Case c;
    set_windows(c, DType::f16, {Dim(4096)}, Dim(m), Dim(n), Dim(k), {});
    link(c, 90);
    const auto first =
        std::get<MatmulWay>(cuda_variants(*find_cuda_kernel("matmul_tensor_core"), c.problem).at(0).way);
    EXPECT_EQ(first.unit, MatmulUnit::warp) << to_string(first);
  }
}

// Sizes that are known at run time alone, up to what a block takes.
TEST(MatmulBatchedCuda, whole_products_of_symbolic_sizes_compile) {
  std::vector<std::string> sources;
  for (const DType dtype : {DType::f32, DType::f16})
    for (const int64_t most : {5, 33, 64}) {
      Case c;
      for (const char* name : {"b", "m", "n", "k"}) c.ranges[name] = {1, most};
      set_windows(c, dtype, {Dim::symbol("b") * Dim(64)}, Dim::symbol("m"), Dim::symbol("n"),
                  Dim::symbol("k"), {});
      link(c, 90);
      for (const MatmulFamily family : {MatmulFamily::batched, MatmulFamily::mma})
        if (matmul_family_fits(c.problem, family))
          for (const MatmulWay& way : matmul_ways(matmul_sizes(c.problem), family, 90, 4))
            if (is_for_small_products(way)) {
              sources.push_back(matmul_code(c.problem, way).source);
              break;
            }
    }
  EXPECT_EQ(sources.size(), 9u);
  Case large;
  set_windows(large, DType::f16, {Dim(8)}, Dim(65), Dim(8), Dim(65), {});
  link(large, 90);
  EXPECT_THROW(resolve({.unit = MatmulUnit::batched, .block_m = 64, .block_n = 8, .stages = 1, .batches = 2},
                       large.problem),
               Error);
  EXPECT_THROW(resolve({.unit = MatmulUnit::mma, .block_m = 64, .block_n = 64, .stages = 1}, large.problem),
               Error);
  AICF_NEEDS_NVRTC();
  expect_compiles(sources, "sm_90a");
}

}  // namespace
}  // namespace aicf
