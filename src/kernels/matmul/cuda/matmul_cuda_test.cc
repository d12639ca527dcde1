// Compile-only: random contractions by every family on every architecture, and what the launches ask for.
// What the code computes is checked where there is a GPU.
#include "kernels/matmul/cuda/matmul_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/rounding.h"
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
using matmul_testing::bias_program;
using matmul_testing::Case;
using matmul_testing::Engine;
using matmul_testing::Layout;
using matmul_testing::link;
using matmul_testing::pick;
using matmul_testing::set_windows;
using matmul_testing::window;

Dim random_size(Engine& engine, const std::string& name, SymbolRanges& ranges) {
  const int64_t size = pick<int64_t>(engine, {1, 2, 7, 8, 40, 64, 100, 384, 1000, 4096});
  if (pick(engine, 0, 2) > 0) return Dim(size);
  ranges[name] = {1, size};
  return Dim::symbol(name) * Dim(pick(engine, 0, 1) ? 8 : 1);
}

void randomise(Engine& engine, DType dtype, Case& c) {
  Shape batch;
  for (int64_t rank = pick(engine, 0, 2); rank > 0; --rank)
    batch.push_back(random_size(engine, "b" + std::to_string(rank), c.ranges));
  const Dim m = random_size(engine, "m", c.ranges), n = random_size(engine, "n", c.ranges),
            k = random_size(engine, "k", c.ranges);
  const auto coin = [&] { return pick(engine, 0, 1) == 1; };
  set_windows(c, dtype, batch, m, n, k,
              {coin(), coin(), pick<int64_t>(engine, {0, 0, 8, 3}), pick(engine, 0, 3) == 0,
               pick(engine, 0, 3) == 0});
}

const CudaKernel& row_for(const Case& c) {
  Problem problem;
  problem.family = "matmul";
  problem.has_program = true;
  for (const CudaWindow& w : c.problem.inputs) problem.inputs.push_back({w.dtype, w.sizes});
  for (const CudaWindow& w : c.problem.outputs) problem.outputs.push_back({w.dtype, w.sizes});
  problem.params = c.problem.params;
  return *cuda_candidates(problem, c.problem.arch).at(0);
}

const std::vector<Dim> kTf32 = {Dim(1)};

TEST(MatmulCuda, random_problems_compile) {
  AICF_NEEDS_NVRTC();
  const std::vector<DType> dtypes = {DType::f16, DType::bf16, DType::f32, DType::f16, DType::f64,
                                     DType::i32, DType::i64,  DType::i8,  DType::u8,  DType::i16};
  for (const auto& [target, arch] :
       {std::pair<const char*, int>{"sm_80", 80}, {"sm_86", 86}, {"sm_89", 89}, {"sm_90a", 90}}) {
    Engine engine(static_cast<uint32_t>(arch));
    std::vector<std::string> sources;
    const auto add = [&](DType dtype, const std::vector<Dim>& params) {
      Case c;
      randomise(engine, dtype, c);
      c.problem.params = params;
      link(c, arch);
      sources.push_back(row_for(c).generate(c.problem).source);
    };
    for (const DType dtype : dtypes) add(dtype, {});
    for (int i = 0; i < 3; ++i) add(DType::f32, kTf32);
    expect_compiles(sources, target);
  }
}

TEST(MatmulCuda, every_tile_compiles) {
  std::vector<std::string> sources;
  for (const MatmulFamily family : {MatmulFamily::simt, MatmulFamily::mma, MatmulFamily::wgmma})
    for (MatmulWay way : matmul_tiles(family, 4)) {
      Case c;
      const DType dtype = family == MatmulFamily::simt ? DType::f32 : DType::bf16;
      set_windows(c, dtype, {}, Dim(512), Dim(512), Dim(512), {.y_transposed = true});
      link(c, 90);
      if (way.warpgroups < 2 && way.unit != MatmulUnit::single) {
        const bool in_cluster = sources.size() % 2 == 0 || family == MatmulFamily::wgmma;
        way.split = {in_cluster ? SplitKind::cluster : SplitKind::workspace, 4};
      }
      sources.push_back(matmul_code(c.problem, way).source);
    }
  AICF_NEEDS_NVRTC();
  expect_compiles(sources, "sm_90a");
}

// bias_program of results that are rounded first.
TileProgram rounded_program(DType dtype) {
  TileProgram program = bias_program(dtype);
  program.registers.push_back({TileType::f32});
  std::vector<TileInstr>& code = program.stages[0];
  code.insert(code.begin() + 1, {.op = dtype == DType::f16 ? TileOp::round_f16 : TileOp::round_bf16,
                                 .type = TileType::f32,
                                 .dst = 3,
                                 .a = 0});
  code[3].a = 3;
  return program;
}

TEST(MatmulCuda, stationary_x_and_reduced_chunks_compile_and_fit_a_multiprocessor) {
  struct Shape {
    int64_t m, n, k;
    bool is_stationary, reduce_scatters;
  };
  std::vector<std::string> sources;
  for (const Shape& s :
       {Shape{8192, 1536, 384, true, false}, {8000, 1160, 360, true, false}, {256, 4096, 4096, false, true}})
    for (const bool rounded : {true, false})
      for (const bool transposed : {true, false}) {
        Case c;
        const DType dtype = transposed ? DType::bf16 : DType::f16;
        set_windows(c, dtype, {}, Dim(s.m), Dim(s.n), Dim(s.k), {.y_transposed = transposed});
        if (rounded) c.program = rounded_program(dtype);
        link(c, 90);
        int found = 0;
        for (const MatmulWay& way : matmul_ways(matmul_sizes(c.problem), MatmulFamily::wgmma, 90, 4)) {
          if (keeps_x_stationary(way) != s.is_stationary || reduce_scatters(way) != s.reduce_scatters)
            continue;
          const CudaCode code = matmul_code(c.problem, way);
          EXPECT_LE(code.launches.at(0).shared_bytes, 226 * 1024) << to_string(way);
          if (s.is_stationary && rounded) {
            EXPECT_EQ(code.launches[0].grid[0], Dim((s.m + 127) / 128 * 2));
          }
          if (found++ == 0) sources.push_back(code.source);
        }
        EXPECT_GT(found, 0);
      }
  AICF_NEEDS_NVRTC();
  expect_compiles(sources, "sm_90a");
}

TEST(MatmulCuda, tf32_takes_every_layout_and_only_tensor_cores) {
  std::vector<std::string> sources;
  for (const MatmulWay& way : matmul_tiles(MatmulFamily::mma, 4))
    for (const bool turned : {false, true}) {
      Case c;
      set_windows(c, DType::f32, {Dim(2)}, Dim(100), Dim(72), Dim(40),
                  {.x_transposed = turned, .y_transposed = !turned, .padding = turned ? 4 : 3});
      c.problem.params = kTf32;
      link(c, 80);
      EXPECT_FALSE(matmul_family_fits(c.problem, MatmulFamily::simt));
      sources.push_back(matmul_code(c.problem, way).source);
    }
  AICF_NEEDS_NVRTC();
  expect_compiles(sources, "sm_80");
}

// wgmma reads f32 as it lies, along k alone.
TEST(MatmulCuda, tf32_runs_by_wgmma_where_y_lies_rounded_along_k) {
  const auto problem_of = [](Case& c, int arch, const Layout& layout) {
    set_windows(c, DType::f32, {Dim(2)}, Dim(1000), Dim(520), Dim(1004), layout);
    c.problem.params = {Dim(kRoundedY)};
    link(c, arch);
  };
  const auto fits = [&](int arch, const Layout& layout) {
    Case c;
    problem_of(c, arch, layout);
    EXPECT_TRUE(matmul_family_fits(c.problem, MatmulFamily::mma));
    return matmul_family_fits(c.problem, MatmulFamily::wgmma);
  };
  EXPECT_TRUE(fits(90, {.y_transposed = true}));
  EXPECT_TRUE(fits(90, {.y_transposed = true, .padding = 4, .y_shared = true}));
  EXPECT_FALSE(fits(90, {.y_transposed = true, .padding = 2}));
  EXPECT_FALSE(fits(90, {}));
  EXPECT_FALSE(fits(90, {.x_transposed = true, .y_transposed = true}));
  EXPECT_FALSE(fits(89, {.y_transposed = true}));

  Case c;
  problem_of(c, 90, {.y_transposed = true});
  std::vector<std::string> sources;
  std::set<std::string> forms;
  for (const MatmulWay& way : matmul_ways(matmul_sizes(c.problem), MatmulFamily::wgmma, 90, 4)) {
    const CudaCode code = matmul_code(c.problem, way);
    const CudaLaunch& launch = code.launches.at(0);
    EXPECT_EQ(code.launches.size(), stream_blocks(way) > 0 ? 2u : 1u) << to_string(way);
    EXPECT_LE(launch.shared_bytes, 227 * 1024) << to_string(way);
    EXPECT_EQ(launch.tensor_maps.at(0).box[0], 32) << to_string(way);
    EXPECT_EQ(launch.tensor_maps.at(1).box, (std::vector<int32_t>{32, way.block_n, 1})) << to_string(way);
    EXPECT_NE(std::find(launch.params.begin(), launch.params.end(), Dim(2008)), launch.params.end())
        << "K counts 2 bytes";
    if (forms.insert(std::to_string(way.block_m * 1000 + way.block_n) + (split_parts(way) > 1 ? "s" : ""))
            .second &&
        (way.block_m == 256 || way.block_n == 192))
      sources.push_back(code.source);
  }
  EXPECT_GT(forms.size(), 8u);
  AICF_NEEDS_NVRTC();
  cuda_testing::expect_no_stack(sources, "sm_90a");
}

TEST(MatmulCuda, slices_of_k_take_every_layout_in_f32_and_tf32) {
  AICF_NEEDS_NVRTC();
  for (const auto& [target, arch] : {std::pair<const char*, int>{"sm_80", 80}, {"sm_90a", 90}}) {
    std::vector<std::string> sources;
    for (const MatmulFamily family : {MatmulFamily::simt, MatmulFamily::mma})
      for (int layout = arch == 90 ? 0 : 6; layout < 8; ++layout) {
        Case c;
        set_windows(c, DType::f32, {Dim(2)}, Dim(100), Dim(72), Dim(520),
                    {.x_transposed = layout % 2 > 0,
                     .y_transposed = layout % 4 > 1,
                     .padding = layout / 4 == 0 ? 4 : 3});
        if (family == MatmulFamily::mma) c.problem.params = kTf32;
        link(c, arch);
        const auto ways = matmul_sliced_ways(matmul_sizes(c.problem), family, arch);
        ASSERT_FALSE(ways.empty());
        const MatmulWay& way = ways[static_cast<size_t>(layout) % ways.size()];
        EXPECT_LE(sliced_bytes(way), (arch == 90 ? 200 : 96) * 1024) << to_string(way);
        sources.push_back(matmul_code(c.problem, way).source);
      }
    expect_compiles(sources, target);
  }
}

// Of a bundle: rows that start at multiples of 16 bytes and others, whole tiles and others.
TEST(MatmulCuda, slices_for_any_sizes_have_one_text) {
  for (const MatmulFamily family : {MatmulFamily::simt, MatmulFamily::mma}) {
    std::set<std::string> own, shared;
    for (const int64_t n : {72, 128, 264})
      for (const int padding : {3, 4}) {
        Case c;
        set_windows(c, DType::f32, {}, Dim(96), Dim(n), Dim(128), {.x_transposed = true, .padding = padding});
        if (family == MatmulFamily::mma) c.problem.params = kTf32;
        link(c, 90);
        c.problem.form = CodeForm::member;
        const MatmulWay way = matmul_sliced_ways(matmul_sizes(c.problem), family, 90).at(0);
        own.insert(matmul_code(c.problem, way).source);
        c.problem.form = CodeForm::member_any_sizes;
        shared.insert(matmul_code(c.problem, way).source);
      }
    EXPECT_GT(own.size(), 1u);
    EXPECT_EQ(shared.size(), 1u);
  }
}

TEST(MatmulCuda, families_follow_types_strides_and_architecture) {
  const auto fits = [](DType dtype, int arch, const Layout& layout) {
    Case c;
    set_windows(c, dtype, {Dim(3)}, Dim(64), Dim(64), Dim(64), layout);
    link(c, arch);
    return matmul_family_fits(c.problem, MatmulFamily::wgmma) ? 2
           : matmul_family_fits(c.problem, MatmulFamily::mma) ? 1
                                                              : 0;
  };
  EXPECT_EQ(fits(DType::bf16, 90, {}), 2);
  EXPECT_EQ(fits(DType::bf16, 90, {true, true, 8, true, true}), 2);
  EXPECT_EQ(fits(DType::bf16, 90, {.padding = 3}), 1);  // rows that do not start at 16 bytes
  EXPECT_EQ(fits(DType::f16, 89, {}), 1);
  EXPECT_EQ(fits(DType::f32, 90, {}), 0);  // tf32 is asked for
}

TEST(MatmulCuda, launches_of_a_split_without_clusters) {
  Case c;
  c.ranges["m"] = {1, 64};
  set_windows(c, DType::f16, {}, Dim::symbol("m"), Dim(256), Dim(4096), {});
  link(c, 80);
  MatmulWay way = matmul_tiles(MatmulFamily::mma, 4)[2];
  way.split = {SplitKind::workspace, 4};
  const CudaCode code = matmul_code(c.problem, way);
  ASSERT_EQ(code.launches.size(), 2u);
  const SymbolValues values{{"m", 50}};
  EXPECT_EQ(evaluate(code.launches[0].grid[0], values), 16);  // four tiles of 64 × 64, four parts each
  EXPECT_EQ(evaluate(code.launches[1].grid[0], values),
            4 * 16);  // 512 groups of eight results, 32 to a block
  EXPECT_EQ(code.launches[1].block, 32);
  EXPECT_EQ(evaluate(code.workspace_bytes, values), 16 * 64 * 64 * 4);
}

// Gradients of weights, of any number of rows: shares of the steps of all tiles, which a second launch adds
// up.
TEST(MatmulCuda, shares_of_stream_k_go_through_the_workspace) {
  std::vector<std::string> sources;
  for (const DType dtype : {DType::f16, DType::f32})
    for (const int64_t n : {512, 104}) {
      Case c;
      c.ranges["k"] = {1, 4096};
      const bool half = dtype == DType::f16;
      const Dim k = half ? Dim::symbol("k") * Dim(8) : Dim(32768);
      set_windows(c, dtype, {}, Dim(400), Dim(n), k, {.x_transposed = half, .y_transposed = !half});
      if (!half) c.problem.params = {Dim(kRoundedY)};
      link(c, 90);
      std::set<int> tiles;
      for (const MatmulWay& way : matmul_ways(matmul_sizes(c.problem), MatmulFamily::wgmma, 90, 4)) {
        if (stream_blocks(way) == 0) continue;
        const CudaCode code = matmul_code(c.problem, way);
        ASSERT_EQ(code.launches.size(), 2u);
        const CudaLaunch &parts = code.launches[0], &sum = code.launches[1];
        const int64_t count = ceil_div(400, way.block_m) * ceil_div(n, way.block_n);
        EXPECT_EQ(parts.grid[0], Dim(kMultiprocessors * way.occupancy));
        EXPECT_EQ(parts.cluster, 1);
        EXPECT_EQ(code.workspace_bytes, Dim((count + way.split.parts) * way.block_m * way.block_n * 4));
        EXPECT_GE(sum.block * 8, way.split.parts / count * 32);
        EXPECT_TRUE(sum.tensor_maps.empty());
        if (tiles.insert(way.block_m * 1000 + way.block_n).second) sources.push_back(code.source);
      }
      EXPECT_GT(tiles.size(), 3u);
    }
  AICF_NEEDS_NVRTC();
  expect_compiles(sources, "sm_90a");
}

// Of rows along k that no init can pack, wherever they start.
TEST(MatmulCuda, few_rows_are_read_where_they_lie) {
  std::vector<std::string> sources;
  for (const auto& [m, n, k] : {std::tuple(9, 992, 4096), {7, 777, 1003}, {1, 1000, 1002}}) {
    Case c;
    set_windows(c, m == 9 ? DType::f16 : DType::bf16, {}, Dim(m), Dim(n), Dim(k), {.y_transposed = true});
    link(c, 90);
    const auto first = [&] { return std::get<MatmulWay>(cuda_variants(row_for(c), c.problem).at(0).way); };
    EXPECT_TRUE(is_direct(first())) << to_string(first());
    const CudaCode code = matmul_code(c.problem, first());
    EXPECT_EQ(code.launches.at(0).grid[0], Dim(ceil_div(n, 8)));
    EXPECT_EQ(code.launches.at(0).block, 32 * first().slices);
    sources.push_back(code.source);
    c.problem.inputs[1].constant = true;
    EXPECT_FALSE(is_direct(first()));
  }
  Case across;
  set_windows(across, DType::f16, {}, Dim(7), Dim(777), Dim(1003), {});
  link(across, 90);
  EXPECT_FALSE(matmul_family_fits(across.problem, MatmulFamily::direct));
  AICF_NEEDS_NVRTC();
  cuda_testing::expect_no_stack(sources, "sm_90a");
}

TEST(MatmulCuda, tensor_maps_leave_out_shared_axes) {
  Case c;
  set_windows(c, DType::f16, {Dim(2), Dim(3)}, Dim(5), Dim(128), Dim(64), {.y_shared = true});
  link(c, 90);
  const CudaCode code = row_for(c).generate(c.problem);
  ASSERT_EQ(code.launches.size(), 1u);
  const auto& maps = code.launches[0].tensor_maps;
  ASSERT_EQ(maps.size(), 2u);
  EXPECT_EQ(maps[0].axes, (std::vector<int32_t>{3, 2, 1, 0}));
  EXPECT_EQ(maps[0].box[1], 8);  // five rows of x are loaded as eight
  EXPECT_EQ(maps[1].axes, (std::vector<int32_t>{3, 2}));
}

TEST(MatmulCuda, variants_have_names_of_their_own_and_the_first_is_the_rows_choice) {
  Case c;
  set_windows(c, DType::bf16, {}, Dim(256), Dim(1024), Dim(1024), {.y_transposed = true});
  link(c, 90);
  const CudaKernel& row = row_for(c);
  const CudaCode own = row.generate(c.problem);
  std::set<std::string> names;
  for (const KernelVariant& variant : cuda_variants(row, c.problem)) {
    EXPECT_TRUE(names.insert(to_string(variant.way)).second) << to_string(variant.way);
    EXPECT_GT(variant.microseconds, 0) << to_string(variant.way);
    c.problem.way = variant.way;
    EXPECT_EQ(row.generate(c.problem) == own, names.size() == 1) << to_string(variant.way);
  }
  EXPECT_GT(names.size(), 20u);
  c.problem.way = MatmulWay{.unit = MatmulUnit::mma, .block_m = 7, .block_n = 7};
  EXPECT_THROW(row.generate(c.problem), InternalError);
}

TEST(MatmulCuda, texts_do_not_depend_on_own_sizes) {
  const auto source = [](int64_t k) {
    Case c;
    set_windows(c, DType::bf16, {}, Dim(4096), Dim(4096), Dim(k), {});
    link(c, 90);
    return row_for(c).generate(c.problem).source;
  };
  EXPECT_EQ(source(4096), source(8192));
}

MatmulWay shared_way(const MatmulSplit& split) {
  return {.unit = MatmulUnit::wgmma,
          .block_m = 128,
          .block_n = 192,
          .stages = 4,
          .split = split,
          .warpgroups = 2};
}

TEST(MatmulCuda, blocks_of_a_multicast_load_a_part_of_y_each) {
  std::vector<std::string> sources;
  for (const bool y_transposed : {true, false}) {
    Case c;
    set_windows(c, DType::bf16, {}, Dim(1032), Dim(904), Dim(1304), {.y_transposed = y_transposed});
    link(c, 90);
    const CudaCode code = matmul_code(c.problem, shared_way({SplitKind::multicast, 4}));
    const CudaLaunch& launch = code.launches.at(0);
    EXPECT_EQ(launch.cluster, 4);
    EXPECT_EQ(launch.grid[0], Dim(3 * 4 * 5));  // nine rows of tiles are three of clusters
    EXPECT_EQ(launch.tensor_maps.at(0).box, (std::vector<int32_t>{64, 128}));
    EXPECT_EQ(launch.tensor_maps.at(1).box,
              (y_transposed ? std::vector<int32_t>{64, 48} : std::vector<int32_t>{64, 16}));
    sources.push_back(code.source);
  }
  AICF_NEEDS_NVRTC();
  expect_compiles(sources, "sm_90a");
}

// Rows of 197 and of 202 halves start at multiples of 2 and of 4 bytes.
TEST(MatmulCuda, results_of_odd_rows_compile) {
  std::vector<std::string> sources;
  for (const int64_t n : {197, 202})
    for (const bool y_transposed : {true, false}) {
      Case c;
      set_windows(c, DType::bf16, {Dim(3)}, Dim(197), Dim(n), Dim(64), {.y_transposed = y_transposed});
      link(c, 90);
      EXPECT_EQ(matmul_family_fits(c.problem, MatmulFamily::wgmma), y_transposed);
      sources.push_back(row_for(c).generate(c.problem).source);
      EXPECT_NE(sources.back().find("kStoredColumns = " + std::string(n == 197 ? "1" : "2")),
                std::string::npos);
    }
  AICF_NEEDS_NVRTC();
  expect_compiles(sources, "sm_90a");
}

// Text only: a pipeline has many stages where there are few rows, whichever way x lies.
TEST(MatmulCuda, every_variant_of_few_rows_fits_a_multiprocessor) {
  constexpr int64_t kMost = 227 * 1024;  // of a block on sm_90
  for (const bool transposed : {false, true})
    for (const int64_t m : {8, 16, 64, 128})
      for (const int64_t n : {384, 4096}) {
        Case c;
        set_windows(c, DType::bf16, {}, Dim(m), Dim(n), Dim(4096), {.x_transposed = transposed});
        link(c, 90);
        for (const MatmulWay& way : matmul_ways(matmul_sizes(c.problem), MatmulFamily::wgmma, 90, 4)) {
          const CudaCode code = matmul_code(c.problem, way);
          EXPECT_LE(code.launches.at(0).shared_bytes, kMost)
              << m << " rows, transposed " << transposed << ": " << to_string(way);
        }
      }
}

// acc op operand op operand …, stored in f32.
TileProgram chain_program(const std::vector<TileOp>& ops) {
  TileProgram program;
  program.inputs.assign(ops.size() + 1, DType::f32);
  program.outputs = {DType::f32};
  program.registers.assign(2 * ops.size() + 1, {TileType::f32});
  std::vector<TileInstr> code = {{.op = TileOp::load, .type = TileType::f32, .dst = 0, .operand = 0}};
  for (int16_t i = 0; i < static_cast<int16_t>(ops.size()); ++i) {
    const auto loaded = static_cast<int16_t>(2 * i + 1), result = static_cast<int16_t>(loaded + 1);
    code.push_back(
        {.op = TileOp::load, .type = TileType::f32, .dst = loaded, .operand = static_cast<int16_t>(i + 1)});
    code.push_back({.op = ops[static_cast<size_t>(i)],
                    .type = TileType::f32,
                    .dst = result,
                    .a = static_cast<int16_t>(2 * i),
                    .b = loaded});
  }
  code.push_back({.op = TileOp::store,
                  .type = TileType::f32,
                  .a = static_cast<int16_t>(2 * ops.size()),
                  .operand = static_cast<int16_t>(program.inputs.size())});
  program.stages = {code};
  return program;
}

// An epilogue's operand that the launch before may still write is not known to be read only: a compiler moves
// loads of what is past the wait (64 x 32 tiles with an early x did so, and read sums before they were
// there).
TEST(MatmulCuda, operands_are_read_only_where_no_launch_writes_them) {
  for (const bool constant : {false, true}) {
    Case c;
    set_windows(c, DType::f16, {}, Dim(2708), Dim(32), Dim(32), {.y_transposed = true});
    c.program = chain_program({TileOp::add});
    c.problem.inputs.resize(2);
    c.problem.inputs.push_back(c.problem.outputs[0]);
    c.problem.inputs[0].ready = c.problem.inputs[1].constant = true;
    c.problem.inputs[2].constant = constant;
    link(c, 90);
    const std::vector<MatmulWay> ways = matmul_ways(matmul_sizes(c.problem), MatmulFamily::wgmma, 90, 4);
    ASSERT_FALSE(ways.empty());
    const CudaCode code = matmul_code(c.problem, ways[0]);
    EXPECT_EQ(code.launches.at(0).early_inputs, (std::vector<int32_t>{0, 1}));
    AICF_NEEDS_NVRTC();
    const std::string text = compile_cuda(code.source, "compute_90a");
    EXPECT_EQ(text.find("ld.global.nc") != std::string::npos, constant);
  }
}

// In tf32 a thread that multiplies has x in registers beside its sums: what its epilogue reads comes early
// only where there is room, and a number of a row takes one register.
TEST(MatmulCuda, epilogues_of_tf32_tiles_stay_in_registers) {
  enum class Reads { kOfRows, kOfResults };
  std::vector<std::string> sources;
  for (const Reads reads : {Reads::kOfRows, Reads::kOfResults}) {
    Case c;
    set_windows(c, DType::f32, {Dim(4)}, Dim(1024), Dim(4096), Dim(512), {.y_transposed = true});
    c.program = chain_program(reads == Reads::kOfRows
                                  ? std::vector{TileOp::add, TileOp::mul, TileOp::add, TileOp::mul}
                                  : std::vector{TileOp::mul, TileOp::add});
    CudaWindow operand = c.problem.outputs[0];
    if (reads == Reads::kOfRows) operand.strides = {Dim(0), Dim(1), Dim(0)};
    c.problem.inputs.resize(2);
    c.problem.inputs.resize(c.program.inputs.size() + 1, operand);
    c.problem.params = {Dim(kRoundedY)};
    link(c, 90);
    for (const MatmulWay& way : matmul_ways(matmul_sizes(c.problem), MatmulFamily::wgmma, 90, 4)) {
      const bool is_large = way.block_m * way.block_n == 256 * 128 || is_ping_pong(way);
      if (is_large && way.split.kind == SplitKind::none && way.stages > 3)
        sources.push_back(matmul_code(c.problem, way).source);
    }
    c.problem.params = {};
    for (const MatmulWay& way : matmul_ways(matmul_sizes(c.problem), MatmulFamily::tf32x3, 90, 4))
      if (way.block_n == 128) sources.push_back(matmul_code(c.problem, way).source);
  }
  EXPECT_GE(sources.size(), 6u + 2u);
  AICF_NEEDS_NVRTC();
  // A few addresses, once for each tile.
  for (const std::string& image : compile_cuda(sources, "sm_90a"))
    EXPECT_LE(cuda_testing::stack_bytes(image), 16);
}

// Rows that start at 16 bytes come by four elements; along K only to threads with registers for them. The
// stages lie as the host counts, and no array leaves the registers.
TEST(MatmulCuda, simt_loads_four_elements_at_a_time_where_rows_allow) {
  std::vector<std::string> sources, layouts;
  for (const MatmulWay& way : matmul_tiles(MatmulFamily::simt, 4)) {
    if (way.unit != MatmulUnit::simt) continue;
    for (const bool x_transposed : {true, false})
      for (const bool y_transposed : {true, false})
        for (const int padding : {3, 4}) {
          Case c;
          set_windows(c, DType::f32, {}, Dim(100), Dim(72), Dim(520),
                      {.x_transposed = x_transposed, .y_transposed = y_transposed, .padding = padding});
          link(c, 90);
          const CudaCode code = matmul_code(c.problem, way);
          const std::string type = between(code.source, "aicf::SimtMatmul<", "::run(");
          const bool vectors = padding == 4, few_results = way.block_n < 128;
          const bool x = vectors && (x_transposed || few_results),
                     y = vectors && (!y_transposed || few_results);
          const auto flag = [](bool value) { return std::string(value ? ", true" : ", false"); };
          EXPECT_EQ(type.ends_with("kNone, 1" + (x || y ? flag(x) + flag(y) : "") + ">"), true) << type;
          cuda_testing::LayoutText text(code.source);
          text.use("Matmul", type);
          text.equal("sizeof(Matmul::Stage) * " + std::to_string(way.stages), code.launches[0].shared_bytes);
          layouts.push_back(text.text());
          if (x_transposed != y_transposed) sources.push_back(code.source);
        }
  }
  AICF_NEEDS_NVRTC();
  expect_compiles(layouts, "sm_90a");
  cuda_testing::expect_no_stack(sources, "sm_90a");
}

// What members of other sizes share does not know where rows start.
TEST(MatmulCuda, simt_for_any_sizes_loads_single_elements) {
  Case c;
  set_windows(c, DType::f32, {}, Dim(96), Dim(128), Dim(128), {.x_transposed = true});
  link(c, 90);
  const MatmulWay way = matmul_tiles(MatmulFamily::simt, 4).at(2);
  EXPECT_NE(matmul_code(c.problem, way).source.find("1, true, true>"), std::string::npos);
  c.problem.form = CodeForm::member_any_sizes;
  EXPECT_NE(matmul_code(c.problem, way).source.find("kNone, 1>"), std::string::npos);
}

}  // namespace
}  // namespace aicf
