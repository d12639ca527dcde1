// Compile-only: attention on every architecture, over random shapes, layouts, masks and types; and which
// kernel serves which problem. What the code computes is checked where there is a GPU.
#include "kernels/attention/cuda/attention_cuda.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"
#include "kernels/attention/cuda/attention_simt.h"
#include "kernels/attention/cuda/attention_text.h"

namespace aicf {
namespace {

using cuda_testing::compile_all;
using cuda_testing::dense;
using cuda_testing::expect_compiles;
using cuda_testing::RandomWindows;
using cuda_testing::RowTexts;

CudaProblem problem_of(DType dtype, const Shape& q, const Dim& kv_heads, const Dim& keys, int64_t value_depth,
                       bool causal) {
  CudaProblem p;
  p.inputs = {dense(dtype, q), dense(dtype, {q[0], kv_heads, keys, q[3]}),
              dense(dtype, {q[0], kv_heads, keys, Dim(value_depth)})};
  p.outputs = {dense(dtype, {q[0], q[1], q[2], Dim(value_depth)})};
  p.params = {Dim(causal ? 1 : 0), Dim(0)};
  p.fparams = {0.125, 0.0};
  return p;
}

void add_mask(CudaProblem& p, CudaWindow mask) {
  p.inputs.push_back(std::move(mask));
  p.params[1] = Dim(1);
}

CudaProblem random_problem(RandomWindows& random, DType dtype) {
  const std::vector<int64_t> depths = {1, 8, 20, 32, 64, 80, 96, 128, 160, 256};
  const int64_t kv_heads = 1 + random.below(4), group = 1 + random.below(4);
  const Dim batch = random.size(1, 4), queries = random.size(1, 700), keys = random.size(1, 2000);
  const Dim depth(random.pick(depths)), value_depth(random.pick(depths));
  const Shape q{batch, Dim(kv_heads * group), queries, depth};
  CudaProblem p;
  p.inputs = {random.window(dtype, q), random.window(dtype, {batch, Dim(kv_heads), keys, depth}),
              random.window(dtype, {batch, Dim(kv_heads), keys, value_depth})};
  p.outputs = {random.window(dtype, {batch, q[1], queries, value_depth})};
  p.params = {Dim(random.below(2)), Dim(0)};
  p.fparams = {0.1 * static_cast<double>(random.below(9) - 1), static_cast<double>(random.below(4) / 3 * 30)};
  if (random.below(2) == 0) {
    const DType mask = random.pick(std::vector<DType>{DType::boolean, DType::f32, dtype});
    const std::vector<Shape> shapes = {
        {batch, Dim(1), Dim(1), keys}, {queries, keys}, {batch, q[1], queries, keys}};
    add_mask(p, random.window(mask, random.pick(shapes)));
  }
  if (random.below(3) == 0) p.params.emplace_back(1 + random.below(400));
  if (random.below(3) == 0) p.outputs.push_back(dense(DType::f32, {batch, q[1], queries}));
  return p;
}

CudaProblem in_tf32(CudaProblem p) {
  p.params.resize(3, Dim(0));
  p.params.emplace_back(1);
  return p;
}

Problem plain(const CudaProblem& p) {
  Problem problem;
  problem.family = "attention";
  for (const CudaWindow& w : p.inputs) problem.inputs.push_back({w.dtype, w.sizes});
  for (const CudaWindow& w : p.outputs) problem.outputs.push_back({w.dtype, w.sizes});
  problem.params = p.params;
  problem.fparams = p.fparams;
  return problem;
}

// q, k, v, cos, sin, caches and position; the caches are the outputs' memory if `in_place`.
CudaProblem append_problem(RandomWindows& random, DType dtype, bool interleaved, bool in_place) {
  const int64_t kv_heads = 1 + random.below(3), depth = random.pick(std::vector<int64_t>{6, 32, 64});
  const int64_t pairs = random.below(3) == 0 ? depth / 2 - 1 : depth / 2;
  const Dim batch = random.size(1, 3), steps = random.size(1, 4), rows = random.size(8, 40);
  const Dim kv(kv_heads), value_depth(random.pick(std::vector<int64_t>{5, 64}));
  CudaProblem p;
  p.inputs = {random.window(dtype, {batch, Dim(2 * kv_heads), steps, Dim(depth)}),
              random.window(dtype, {batch, kv, steps, Dim(depth)}),
              random.window(dtype, {batch, kv, steps, value_depth}),
              random.window(dtype, {steps, Dim(pairs)}),
              random.window(dtype, {batch, Dim(1), steps, Dim(pairs)}),
              random.window(dtype, {batch, kv, rows, Dim(depth)}),
              random.window(dtype, {batch, kv, rows, value_depth}),
              random.window(DType::i64, {Dim(1)})};
  p.outputs = {random.window(dtype, p.inputs[0].sizes), p.inputs[5], p.inputs[6]};
  if (in_place) p.replaced = {5, 6};
  p.params = {Dim(interleaved ? 1 : 0)};
  return p;
}

TEST(RopeAppendCuda, CompilesAndCopiesCachesOnlyIfTheyAreApart) {
  RowTexts texts;
  RandomWindows random(11);
  for (int i = 0; i < 16; ++i) {
    const DType dtype =
        std::vector{DType::f16, DType::bf16, DType::f32, DType::f64}[static_cast<size_t>(i / 4)];
    const bool in_place = i % 3 > 0;
    const CudaCode code =
        texts.add("rope_append", append_problem(random, dtype, i % 2 == 0, in_place), random.ranges());
    EXPECT_EQ(code.launches.size(), in_place ? 1u : 3u);
  }
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

TEST(AttentionCuda, RandomProblemsCompileForEveryArchitecture) {
  RowTexts texts;
  RandomWindows random(7);
  for (int i = 0; i < 8; ++i) {
    const DType half = i % 2 ? DType::f16 : DType::bf16, wide = i % 3 ? DType::f32 : DType::f64;
    texts.add("attention_mma", random_problem(random, half), random.ranges());
    if (i % 2 == 0) texts.add("attention_simt", random_problem(random, wide), random.ranges());
  }
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

// Every problem that a row takes gives code within the limits of every architecture.
TEST(AttentionCuda, EveryProblemThatCanRunGivesCode) {
  RandomWindows random(11);
  for (int i = 0; i < 400; ++i) {
    CudaProblem p = random_problem(
        random, random.pick(std::vector<DType>{DType::f16, DType::bf16, DType::f32, DType::f64}));
    if (p.inputs[0].dtype == DType::f32 && i % 2 == 0) p = in_tf32(std::move(p));
    p.ranges = &random.ranges();
    for (const cuda_testing::Arch& arch : cuda_testing::kArchs) {
      p.arch = arch.number;
      const std::vector<const CudaKernel*> rows = cuda_candidates(plain(p), arch.number);
      ASSERT_FALSE(rows.empty());
      for (const CudaKernel* row : rows) {
        const CudaCode code = row->generate(p);
        ASSERT_FALSE(code.launches.empty());
        EXPECT_EQ(code, row->generate(p));
        for (const CudaLaunch& launch : code.launches)
          EXPECT_NE(code.source.find(launch.function + "("), std::string::npos) << launch.function;
      }
    }
  }
}

// Every way of one: tiles of one and of two times 16 rows a warp, masks that are held in registers.
TEST(AttentionCuda, Tf32CompilesAndIsOfOneRow) {
  std::vector<std::string> sources;
  RandomWindows random(5);
  const SymbolRanges ranges{{"t", {1, 4096}}};
  for (int i = 0; i < 3; ++i) {
    CudaProblem p =
        i == 0
            ? in_tf32(random_problem(random, DType::f32))
            : in_tf32(problem_of(DType::f32, {4, 8, Dim::symbol("t"), i == 1 ? 64 : 40}, 4, 197, 64, i == 1));
    if (i == 2) add_mask(p, dense(DType::f32, {1, 8, Dim::symbol("t"), 197}));
    p.ranges = i == 0 ? &random.ranges() : &ranges;
    p.arch = 80;
    const std::vector<const CudaKernel*> rows = cuda_candidates(plain(p), p.arch);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0]->name, "attention_tf32");
    const std::vector<KernelVariant> variants = cuda_variants(*rows[0], p);
    ASSERT_FALSE(variants.empty());
    EXPECT_EQ(rows[0]->generate(p), [&] {
      CudaProblem named = p;
      named.way = variants[0].way;
      return rows[0]->generate(named);
    }());
    for (size_t at = 1; at < variants.size(); ++at)
      EXPECT_GE(variants[at].microseconds, variants[at - 1].microseconds);
    p.way = variants[static_cast<size_t>(i) % variants.size()].way;
    sources.push_back(rows[0]->generate(p).source);
  }
  AICF_NEEDS_NVRTC();
  expect_compiles(sources, "sm_80");
}

TEST(AttentionCuda, HopperKernelCompiles) {
  std::vector<std::string> sources;
  SymbolRanges ranges{{"t", {1, 4096}}};
  const Dim t = Dim::symbol("t");
  for (DType dtype : {DType::f16, DType::bf16}) {
    CudaProblem p = problem_of(dtype, {4, 16, t, 128}, 8, t, 64, dtype == DType::f16);
    if (dtype == DType::bf16) add_mask(p, dense(DType::f32, {4, 1, 1, t}));
    p.ranges = &ranges;
    p.arch = 90;
    const AttentionWay way = attention_way(p, AttentionUnit::kWgmma);
    ASSERT_EQ(way.unit, AttentionUnit::kWgmma);
    const CudaCode code = attention_code(p, way);
    ASSERT_EQ(code.launches.size(), 1u);
    EXPECT_EQ(code.launches[0].tensor_maps.size(), 3u);
    sources.push_back(code.source);
    p.params.emplace_back(500);
    sources.push_back(attention_code(p, attention_way(p, AttentionUnit::kWgmma)).source);
  }
  AICF_NEEDS_NVRTC();
  expect_compiles(sources, "sm_90a");
}

// Both widths of a row in shared memory, sizes within a tile, every kind of mask, grouped heads, lse.
TEST(AttentionCuda, ShortSequencesCompile) {
  const SymbolRanges ranges{{"t", {1, 128}}};
  const Dim t = Dim::symbol("t");
  const auto short_problem = [&](const CudaProblem& problem, int rows) {
    CudaProblem p = problem;
    p.ranges = &ranges;
    p.arch = 90;
    const AttentionWay way = attention_way(p, AttentionUnit::kWgmma);
    EXPECT_EQ(way.unit, AttentionUnit::kShort);
    EXPECT_EQ(way.rows, rows);
    const CudaCode code = attention_code(p, way);
    EXPECT_EQ(code.launches.size(), 1u);
    EXPECT_LE(4 * (code.launches[0].shared_bytes + 1024),
              shared_limit(90) + 1024);  // four in a multiprocessor
    return code.source;
  };
  CudaProblem per_key = problem_of(DType::f16, {32, 12, 128, 64}, 12, 128, 64, false), whole = per_key;
  add_mask(per_key, dense(DType::f16, {32, 1, 1, 128}));
  add_mask(whole, dense(DType::boolean, {32, 12, 128, 128}));
  CudaProblem causal = problem_of(DType::bf16, {32, 12, t, 24}, 4, t, 32, true);
  causal.outputs.push_back(dense(DType::f32, {32, 12, t}));
  CudaProblem few = problem_of(DType::bf16, {8, 12, 128, 64}, 12, 100, 40, false);
  add_mask(few, dense(DType::bf16, {8, 1, 128, 100}));
  AICF_NEEDS_NVRTC();
  expect_compiles({short_problem(per_key, 128), short_problem(whole, 128), short_problem(causal, 64),
                   short_problem(few, 64)},
                  "sm_90a");
}

struct Choice {
  const char* what;
  DType dtype;
  Shape q;
  Dim kv_heads, keys;
  AttentionUnit unit;
  size_t launches, launches_sm_80;
};

TEST(AttentionCuda, ShapesDecideTheKernel) {
  const SymbolRanges ranges{{"t", {1, 4096}}, {"none", {0, 4096}}};
  const Dim t = Dim::symbol("t"), none = Dim::symbol("none");
  const Choice choices[] = {
      {"one short sequence", DType::f16, {1, 12, 128, 64}, 12, 128, AttentionUnit::kSplit, 1, 1},
      {"many short sequences", DType::f16, {64, 12, 128, 32}, 12, 128, AttentionUnit::kShort, 1, 1},
      {"half as many", DType::f16, {8, 12, 128, 64}, 12, 128, AttentionUnit::kShort, 1, 1},
      {"very short sequences", DType::f16, {64, 12, 64, 64}, 12, 64, AttentionUnit::kMma, 1, 1},
      {"one query, grouped heads", DType::bf16, {1, 32, 1, 64}, 8, 1024, AttentionUnit::kSplit, 1, 2},
      {"training", DType::bf16, {4, 16, 4096, 128}, 16, 4096, AttentionUnit::kWgmma, 1, 1},
      {"symbolic length", DType::bf16, {4, 16, t, 128}, 16, t, AttentionUnit::kWgmma, 1, 1},
      {"may be empty", DType::bf16, {4, 16, 512, 128}, 16, none, AttentionUnit::kMma, 1, 1},
      {"deep heads", DType::bf16, {4, 16, 512, 256}, 16, 512, AttentionUnit::kMma, 1, 1},
      {"columns between 32 and 64", DType::f16, {4, 16, 512, 48}, 16, 512, AttentionUnit::kWgmma, 1, 1},
      {"mostly padding", DType::f16, {4, 16, 512, 32}, 16, 512, AttentionUnit::kMma, 1, 1},
      {"few blocks", DType::bf16, {1, 2, 512, 128}, 2, 512, AttentionUnit::kSplit, 1, 1},
      {"a hundred queries of few heads", DType::f16, {1, 8, 100, 32}, 8, 4096, AttentionUnit::kSplit, 1, 2},
      {"a hundred queries of many heads", DType::f16, {64, 8, 100, 32}, 8, 4096, AttentionUnit::kMma, 1, 1},
  };
  for (const Choice& c : choices) {
    CudaProblem p = problem_of(c.dtype, c.q, c.kv_heads, c.keys, c.q[3].require_constant("depth"), false);
    p.ranges = &ranges;
    p.arch = 90;
    const AttentionWay way = attention_way(p, AttentionUnit::kWgmma);
    EXPECT_EQ(way.unit, c.unit) << c.what;
    const CudaCode code = attention_code(p, way);
    EXPECT_EQ(code.launches.size(), c.launches) << c.what;
    // Blocks of a multiprocessor that registers are left for.
    const std::string blocks = c.unit == AttentionUnit::kWgmma   ? ", 1)"
                               : c.unit == AttentionUnit::kShort ? (c.q[3] == Dim(32) ? ", 4)" : ", 3)")
                               : c.unit == AttentionUnit::kSplit ? ", "
                                                                 : ")";
    EXPECT_NE(code.source.find("__launch_bounds__(" + std::to_string(code.launches[0].block) + blocks),
              std::string::npos)
        << c.what;
    p.arch = 80;
    const AttentionWay plain = attention_way(p, AttentionUnit::kWgmma);
    EXPECT_NE(plain.unit, AttentionUnit::kWgmma) << c.what;
    EXPECT_NE(plain.unit, AttentionUnit::kShort) << c.what;
    EXPECT_EQ(attention_code(p, plain).launches.size(), c.launches_sm_80) << c.what;
  }
}

TEST(AttentionCuda, EveryVariantIsAnotherTileAndTheFirstIsTheChoice) {
  const CudaKernel& row = *find_cuda_kernel("attention_wgmma");
  for (const Shape& q : {Shape{4, 12, 197, 64}, {64, 12, 128, 32}, {1, 16, 1, 64}, {2, 6, 1000, 128}}) {
    CudaProblem p = problem_of(DType::f16, q, q[1], 128, q[3].require_constant("depth"), false);
    p.arch = 90;
    const std::string chosen = row.generate(p).source;
    std::vector<std::string> texts;
    for (const KernelVariant& variant : cuda_variants(row, p)) {
      p.way = variant.way;
      EXPECT_GT(variant.microseconds, 0) << to_string(variant.way);
      EXPECT_LE(row.generate(p).launches[0].shared_bytes, shared_limit(90)) << to_string(variant.way);
      texts.push_back(row.generate(p).source);
    }
    ASSERT_GT(texts.size(), 1u);
    EXPECT_EQ(texts.front(), chosen);
    std::sort(texts.begin(), texts.end());
    EXPECT_EQ(std::adjacent_find(texts.begin(), texts.end()), texts.end());
    p.way = AttentionWay{AttentionUnit::kMma, 16, 16};
    EXPECT_THROW(row.generate(p), InternalError);
  }
}

// The ways of f32 and f64 are ordered by an estimate, and each has a text of its own; what its tiles leave
// idle counts.
TEST(AttentionCuda, TilesOfTheGeneralPurposeUnitsFollowAnEstimate) {
  const CudaKernel& row = *find_cuda_kernel("attention_simt");
  for (const DType dtype : {DType::f32, DType::f64})
    for (const Shape& q :
         {Shape{32, 4, 160, 32}, {8, 12, 197, 64}, {1, 16, 1, 64}, {2, 6, 1000, 128}, {1, 1, 77, 256}})
      for (const int arch : {80, 86, 90}) {
        CudaProblem p = problem_of(dtype, q, q[1], 160, q[3].require_constant("depth"), false);
        p.arch = arch;
        const std::string chosen = row.generate(p).source;
        std::vector<std::string> texts;
        double before = 0;
        for (const KernelVariant& variant : cuda_variants(row, p)) {
          p.way = variant.way;
          EXPECT_GE(variant.microseconds, before) << to_string(variant.way);
          before = variant.microseconds;
          const CudaCode code = row.generate(p);
          EXPECT_LE(code.launches[0].shared_bytes, shared_limit(arch)) << to_string(variant.way);
          EXPECT_EQ(parse_way(to_string(variant.way)), variant.way);
          texts.push_back(code.source);
        }
        ASSERT_GT(texts.size(), 1u);
        EXPECT_EQ(texts.front(), chosen);
        std::sort(texts.begin(), texts.end());
        EXPECT_EQ(std::adjacent_find(texts.begin(), texts.end()), texts.end());
        p.way = AttentionWay{.unit = AttentionUnit::kSimt, .rows = 256, .keys = 512};
        EXPECT_THROW(row.generate(p), InternalError);
      }
}

// The estimate of f32 chooses what was quickest of the measured tiles (gpu_attention_f32_2026-11-29.json.xz).
TEST(AttentionCuda, QuickestMeasuredTilesOfTheGeneralPurposeUnitsAreChosen) {
  struct Row {
    Shape q;
    bool has_mask;
    const char* way;
  };
  for (const Row& row : {Row{{32, 4, 160, 32}, true, "simt 160x64 warps 4x2 lanes 8x4"},
                         {{8, 12, 197, 64}, false, "simt 40x64 warps 1x2 lanes 8x4"},
                         {{16, 12, 128, 64}, false, "simt 64x64 warps 4x1 lanes 4x8"},
                         {{16, 2, 200, 128}, false, "simt 56x128 warps 2x4 lanes 4x8"},
                         {{8, 16, 512, 128}, false, "simt 64x64 warps 4x1 lanes 4x8"},
                         {{4, 16, 1024, 64}, false, "simt 128x64 warps 4x1 lanes 4x8"}}) {
    CudaProblem p =
        problem_of(DType::f32, row.q, row.q[1], row.q[2], row.q[3].require_constant("depth"), false);
    if (row.has_mask) add_mask(p, dense(DType::f32, {row.q[0], Dim(1), Dim(1), row.q[2]}));
    p.arch = 90;
    EXPECT_EQ(to_string(attention_way(p, AttentionUnit::kSimt)), row.way);
  }
}

// Causal rows see half of the keys, but the last tile sees all: a multiprocessor with one tile gains nothing,
// one with many nearly half.
TEST(AttentionCuda, EstimateOfCausalTilesOfTheGeneralPurposeUnits) {
  const AttentionWay way{
      .unit = AttentionUnit::kSimt, .rows = 64, .keys = 64, .row_warps = 4, .row_lanes = 4};
  const auto cycles_of = [&](int64_t heads, bool causal) {
    CudaProblem p = problem_of(DType::f32, {1, heads, 1024, 64}, heads, 1024, 64, causal);
    p.arch = 90;
    return simt_attention_cycles(p, sizes_of(p), way);
  };
  EXPECT_EQ(cycles_of(1, true), cycles_of(1, false));
  EXPECT_LT(cycles_of(512, true), 0.6 * cycles_of(512, false));
}

// Results of so many columns leave a lane one row and one vector of keys.
TEST(AttentionCuda, ScoresAndResultsOfALaneAreFew) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t depth : {7, 32, 64, 128, 256})
      for (const int64_t queries : {1, 16, 17, 500}) {
        CudaProblem p = problem_of(dtype, {4, 4, queries, depth}, 4, 300, depth, false);
        p.arch = 80;
        const AttentionSizes sizes = sizes_of(p);
        for (const AttentionWay& way : simt_attention_ways(p, sizes)) {
          const SimtAttention simt = simt_attention(p, sizes, way);
          EXPECT_LE(simt.lane_rows * (simt.key_vectors + simt.value_vectors) * 4, 144) << to_string(way);
          EXPECT_LT(simt.registers, 255) << to_string(way);
          EXPECT_TRUE(queries <= 16 || way.row_lanes > 2) << to_string(way);
        }
      }
}

// Rows and multiprocessors that a tile leaves idle: no more than a fifth of the rows of lengths between
// tiles, where blocks are many, and where they are few as many blocks as there is work for.
TEST(AttentionCuda, TilesOfTheGeneralPurposeUnitsFitLengthsAndMachines) {
  const auto way_of = [](const Shape& q, const Dim& keys) {
    CudaProblem p = problem_of(DType::f32, q, q[1], keys, q[3].require_constant("depth"), false);
    p.arch = 90;
    return attention_way(p, AttentionUnit::kSimt);
  };
  for (const int64_t length : {77, 91, 117, 160, 197, 200, 333})
    for (const int64_t depth : {32, 64, 96, 128}) {
      const int rows = way_of({32, 8, length, depth}, length).rows;
      EXPECT_LT(static_cast<double>((length + rows - 1) / rows * rows), 1.2 * static_cast<double>(length) + 4)
          << length << " of " << depth << ": " << rows;
    }
  for (const int64_t heads : {1, 2, 4, 8}) {
    const int rows = way_of({1, heads, 512, 64}, 512).rows;
    EXPECT_GE(heads * ((512 + rows - 1) / rows), std::min<int64_t>(100, heads * 30)) << heads;
  }
}

// Half of a cluster's blocks or more have keys, many rows need no large cluster, and a block that has a
// multiprocessor to itself has more tiles on their way.
TEST(AttentionCuda, KeysAreSplitAmongAsManyBlocksAsThereAreMultiprocessorsFor) {
  const auto plan_of = [](int64_t batch, int64_t heads, int64_t queries, int64_t keys, int64_t depth) {
    CudaProblem p = problem_of(DType::f16, {batch, heads, queries, depth}, heads, keys, depth, false);
    p.arch = 90;
    const AttentionPlan plan = resolve(attention_way(p, AttentionUnit::kWgmma), p);
    EXPECT_EQ(plan.way.unit, AttentionUnit::kSplit);
    EXPECT_EQ(attention_code(p, plan.way).launches.size(), plan.way.cluster == 0 ? 2u : 1u);
    EXPECT_EQ(parse_way(to_string(Way(plan.way))), Way(plan.way));
    return plan;
  };
  for (const int64_t heads : {2, 9, 40, 128, 220, 700})
    for (const int64_t keys : {256, 300, 512, 1000, 2048})
      for (const int64_t depth : {32, 80, 128, 256}) {
        const AttentionPlan plan = plan_of(1, heads, 4, keys, depth);
        EXPECT_GT(keys, plan.way.cluster / 2 * plan.way.keys) << to_string(plan.way);
        EXPECT_LE(plan.way.cluster, heads >= 220 ? 2 : 8) << to_string(plan.way);
      }
  EXPECT_EQ(plan_of(8, 16, 1, 2048, 128).way.cluster, 1);
  EXPECT_GT(plan_of(8, 16, 1, 2048, 128).stages, 2);
  EXPECT_GE(plan_of(1, 8, 1, 2048, 128).way.cluster, 8);
  EXPECT_EQ(plan_of(1, 2, 1, 8000, 128).way.cluster, 0);
}

// As many blocks as the estimate counts on: 416 are one round of four for each of 132 multiprocessors, but
// two of three.
TEST(AttentionCuda, RegistersAreKeptForTheBlocksThatTheEstimateCountsOn) {
  const auto source_of = [](int64_t heads, int64_t queries, int64_t keys, int64_t depth) {
    CudaProblem p = problem_of(DType::f16, {4, heads, queries, depth}, heads, keys, depth, false);
    p.arch = 90;
    const AttentionPlan plan = resolve(attention_way(p, AttentionUnit::kWgmma), p);
    EXPECT_EQ(plan.way.unit, AttentionUnit::kSplit);
    return attention_code(p, plan.way).source;
  };
  EXPECT_NE(source_of(26, 4, 512, 80).find("__launch_bounds__(128, 4)"), std::string::npos);
  EXPECT_NE(source_of(32, 1, 2048, 128).find("__launch_bounds__(128, 1)"), std::string::npos);
}

// A window that no key is outside of is none; a narrow one decides how keys are split.
TEST(AttentionCuda, WindowsDecideTheCode) {
  const SymbolRanges ranges{{"t", {1, 4096}}};
  const Dim t = Dim::symbol("t");
  const auto source = [&](const Dim& queries, bool causal, int64_t window) {
    CudaProblem p = problem_of(DType::bf16, {4, 16, queries, 128}, 16, t, 128, causal);
    if (window > 0) p.params.emplace_back(window);
    p.ranges = &ranges;
    p.arch = 90;
    return attention_code(p, attention_way(p, AttentionUnit::kWgmma)).source;
  };
  EXPECT_EQ(source(t, true, 4096), source(t, true, 0));
  EXPECT_EQ(source(t, false, 4096), source(t, false, 0));
  EXPECT_EQ(source(t, true, INT64_MAX), source(t, true, 0));
  EXPECT_NE(source(t, true, 4095), source(t, true, 0));
  EXPECT_NE(source(t, true, 1024), source(t, false, 1024));
  const auto parts = [&](int64_t window) {
    CudaProblem p = problem_of(DType::bf16, {1, 8, 1, 128}, 2, 32768, 128, true);
    if (window > 0) p.params.emplace_back(window);
    p.arch = 80;
    const CudaCode code = attention_code(p, attention_way(p, AttentionUnit::kMma));
    return evaluate(code.launches[0].grid[0], {}) / 2;
  };
  EXPECT_EQ(parts(0), 32768 / (64 * 8));
  EXPECT_EQ(parts(4096), 4096 / (64 * 4));
  EXPECT_EQ(parts(4097), 4096 / (64 * 4) + 1);
  EXPECT_EQ(parts(1), 1);
}

// A vector is 16 bytes, at a multiple of them: rows that begin elsewhere are read element by element.
TEST(AttentionCuda, VectorsReadRowsThatBeginWhereTheyMay) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    CudaProblem good = problem_of(dtype, {2, 4, 64, 64}, 4, 64, 64, false);
    good.arch = 80;
    const auto reads = [&](const CudaProblem& problem, const char* operand) {
      const std::string text = attention_code(problem, attention_way(problem, AttentionUnit::kMma)).source;
      EXPECT_NE(text.find(constant(operand, true)) == std::string::npos,
                text.find(constant(operand, false)) == std::string::npos);
      return text.find(constant(operand, true)) != std::string::npos;
    };
    const char* names[] = {"kVectorQ", "kVectorK", "kVectorV"};
    for (size_t i = 0; i < 3; ++i) {
      CudaProblem later = good, wider = good, turned = good;
      later.inputs[i].offset = Dim(3);
      wider.inputs[i].strides[2] = Dim(65);
      turned.inputs[i].strides[2] = Dim(1);
      turned.inputs[i].strides[3] = Dim(64);
      EXPECT_TRUE(reads(good, names[i]));
      for (const CudaProblem* other : {&later, &wider, &turned}) EXPECT_FALSE(reads(*other, names[i])) << i;
    }
  }
}

// As many keys as every row has whole ones of, at addresses that allow it.
TEST(AttentionCuda, MasksAreReadByAsManyKeysAsTheirRowsHave) {
  const auto unit = [](const Shape& sizes, const Dim& keys, const std::function<void(CudaWindow&)>& change) {
    CudaWindow mask = dense(DType::boolean, sizes);
    change(mask);
    return mask_unit(mask, keys);
  };
  const auto nothing = [](CudaWindow&) {};
  EXPECT_EQ(unit({2, 4, 60, 64}, 64, nothing), 8);
  EXPECT_EQ(unit({60, 64}, 64, nothing), 8);
  EXPECT_EQ(unit({2, 1, 60, 66}, 66, nothing), 2);
  EXPECT_EQ(unit({2, 1, 60, 65}, 65, nothing), 1);
  EXPECT_EQ(unit({2, 4, 60, 1}, 64, nothing), 1);
  EXPECT_EQ(unit({2, 4, 60, 64}, 64, [](CudaWindow& m) { m.offset = Dim(4); }), 2);
  EXPECT_EQ(unit({2, 4, 60, 64}, 64, [](CudaWindow& m) { m.strides[1] = Dim(3841); }), 1);
  EXPECT_EQ(unit({2, 4, 60, 64}, 64, [](CudaWindow& m) { m.strides[3] = Dim(2); }), 1);
}

TEST(AttentionCuda, WhatTheCopyEngineCannotDescribeGoesWithoutIt) {
  CudaProblem p = problem_of(DType::bf16, {4, 16, 512, 128}, 16, 512, 128, true);
  p.arch = 90;
  const auto unit = [&](const CudaProblem& problem) {
    return attention_way(problem, AttentionUnit::kWgmma).unit;
  };
  ASSERT_EQ(unit(p), AttentionUnit::kWgmma);
  CudaProblem reversed = p, unaligned = p, repeated = p;
  reversed.inputs[1].strides[2] = Dim(-128);
  unaligned.inputs[0].offset = Dim(3);
  repeated.inputs[2].strides[0] = Dim(0);
  for (const CudaProblem* other : {&reversed, &unaligned, &repeated})
    EXPECT_EQ(unit(*other), AttentionUnit::kMma);
}

TEST(AttentionCuda, RefusesWhatItDoesNotServe) {
  const CudaProblem good = problem_of(DType::f16, {2, 4, 7, 64}, 2, 9, 64, false);
  ASSERT_EQ(cuda_candidates(plain(good), 80).size(), 2u);
  const auto refused = [&](const char* what, const std::function<void(Problem&)>& change) {
    Problem problem = plain(good);
    change(problem);
    EXPECT_TRUE(cuda_candidates(problem, 90).empty()) << what;
  };
  refused("deep heads", [](Problem& p) { p.inputs[0].sizes[3] = p.inputs[1].sizes[3] = Dim(257); });
  refused("symbolic depth",
          [](Problem& p) { p.inputs[0].sizes[3] = p.inputs[1].sizes[3] = Dim::symbol("d"); });
  refused("no values", [](Problem& p) { p.inputs[2].sizes[3] = Dim(0); });
  refused("mixed types", [](Problem& p) { p.inputs[1].dtype = DType::bf16; });
  refused("integer mask", [](Problem& p) { p.inputs.push_back({DType::i32, {Dim(9)}}); });
  refused("a window whose positions overflow", [](Problem& p) { p.params.emplace_back(INT32_MAX); });
  refused("infinite scale", [](Problem& p) { p.fparams[0] = INFINITY; });
  refused("epilogue", [](Problem& p) { p.has_program = true; });
}

}  // namespace
}  // namespace aicf
