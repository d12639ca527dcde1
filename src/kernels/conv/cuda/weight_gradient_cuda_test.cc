// The text of the rows of weight gradients compiles for random problems, and layouts and sizes decide what is
// in it.
#include <algorithm>

#include "base/error.h"
#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"
#include "kernels/testing/cuda_texts.h"
#include "kernels/testing/layout_text.h"

namespace aicf {
namespace {

using cuda_testing::channels_last;
using cuda_testing::dense;
using cuda_testing::expect_compiles;
using cuda_testing::LayoutText;
using cuda_testing::RandomWindows;

struct Case {
  int64_t images = 4, channels = 64, maps = 64;
  std::vector<int64_t> size = {16, 16};
  int64_t kernel = 3, stride = 1, pad = 1, dilation = 1, groups = 1;
  bool last = true;
};

CudaProblem problem_of(DType dtype, const Case& c) {
  const size_t spatial = c.size.size();
  Shape x = {Dim(c.images), Dim(c.channels)}, dy = {Dim(c.images), Dim(c.maps)},
        w = {Dim(c.maps), Dim(c.channels / c.groups)};
  CudaProblem p;
  p.params = {Dim(static_cast<int64_t>(spatial)), Dim(c.groups), Dim(0)};
  for (int64_t number : {c.stride, c.pad, c.pad, c.dilation})
    p.params.insert(p.params.end(), spatial, Dim(number));
  for (int64_t size : c.size) {
    x.emplace_back(size);
    dy.emplace_back((size + 2 * c.pad - c.dilation * (c.kernel - 1) - 1) / c.stride + 1);
    w.emplace_back(c.kernel);
  }
  p.inputs = {dense(dtype, x), dense(dtype, dy)};
  p.outputs = {dense(dtype, w)};
  if (c.last)
    for (CudaWindow& window : p.inputs) window = channels_last(window);
  p.arch = 90;
  return p;
}

CudaCode code_of(const char* row, const CudaProblem& p) { return find_cuda_kernel(row)->generate(p); }

std::vector<std::string> functions_of(const CudaCode& code) {
  std::vector<std::string> names;
  for (const CudaLaunch& launch : code.launches) names.push_back(launch.function);
  return names;
}

std::vector<Case> odd_cases() {
  return {{.channels = 3, .maps = 17, .size = {33, 31}, .kernel = 7, .stride = 2, .pad = 3},
          {.channels = 73, .maps = 130, .size = {9, 9}, .pad = 2, .dilation = 2},
          {.channels = 48, .maps = 24, .groups = 4},
          {.channels = 6, .maps = 9, .groups = 3},
          {.channels = 16, .maps = 24, .size = {50}, .kernel = 5, .stride = 2, .pad = 2},
          {.channels = 8, .maps = 16, .size = {5, 6, 7}},
          {.channels = 40, .maps = 512, .kernel = 1, .pad = 0},
          {.images = 64, .channels = 256, .maps = 256, .size = {56, 56}}};
}

TEST(WeightGradientCuda, Compiles) {
  std::vector<std::string> texts;
  for (Case c : odd_cases())
    for (bool last : {false, true}) {
      c.last = last;
      const CudaProblem p = problem_of(texts.size() % 3 == 0 ? DType::f16 : DType::bf16, c);
      const CudaCode code = code_of("weight_gradient_wgmma", p);
      EXPECT_EQ(code, code_of("weight_gradient_wgmma", p));
      texts.push_back(code.source);
    }
  AICF_NEEDS_NVRTC();
  cuda_testing::expect_no_stack(texts, "sm_90a");
}

// Groups that share a block, slices of one group, channels that are no vectors.
TEST(WeightGradientCuda, BoxesCompile) {
  const std::vector<Case> cases = {
      {.images = 32, .channels = 256, .maps = 256, .size = {28, 28}, .groups = 32},
      {.channels = 28, .maps = 28, .size = {15, 9}, .stride = 2, .groups = 7},
      {.channels = 27, .maps = 45, .size = {12, 11}, .groups = 9, .last = false},
      {.channels = 136, .maps = 96, .size = {9, 11}, .pad = 2, .dilation = 2},
      odd_cases()[0]};
  std::vector<std::string> texts;
  for (const Case& c : cases) {
    const CudaProblem p = problem_of(texts.size() % 2 == 0 ? DType::f16 : DType::bf16, c);
    const CudaCode code = code_of("weight_gradient_mma", p);
    EXPECT_EQ(code, code_of("weight_gradient_mma", p));
    EXPECT_LE(code.launches[0].shared_bytes, 227 * 1024);
    texts.push_back(code.source);
  }
  AICF_NEEDS_NVRTC();
  for (const char* target : {"sm_80", "sm_90a"}) expect_compiles(texts, target);
}

// Of every tile, in place and turned; on the oldest machine, for whose code NVRTC keeps most in registers.
TEST(WeightGradientCuda, InTf32Compiles) {
  std::vector<std::string> texts;
  const CudaKernel& row = *find_cuda_kernel("weight_gradient_tf32");
  const std::vector<Case> cases = {
      {.channels = 3, .maps = 17, .size = {33, 31}, .kernel = 7, .stride = 2, .pad = 3},
      {.channels = 12, .maps = 24, .groups = 3, .last = false},
      {.channels = 40, .maps = 512, .kernel = 1, .pad = 0},
      {.channels = 256, .maps = 256, .size = {56, 56}}};
  for (const Case& c : cases) {
    CudaProblem p = problem_of(DType::f32, c);
    p.params.emplace_back(1);
    p.arch = 80;
    const bool turns = c.channels % 4 != 0 || !c.last;
    EXPECT_EQ(code_of("weight_gradient_tf32", p).launches[0].function == "pack_x", turns);
    const std::vector<KernelVariant> variants = cuda_variants(row, p);
    p.way = variants[texts.size() % variants.size()].way;
    const CudaCode code = code_of("weight_gradient_tf32", p);
    EXPECT_EQ(code, code_of("weight_gradient_tf32", p));
    texts.push_back(code.source);
  }
  AICF_NEEDS_NVRTC();
  cuda_testing::expect_no_stack(texts, "sm_80");
}

// Three sums of a result stay in registers, in every tile.
TEST(WeightGradientCuda, ByPartsCompiles) {
  const std::vector<Case> cases = {
      {.channels = 3, .maps = 17, .size = {33, 31}, .kernel = 7, .stride = 2, .pad = 3},
      {.channels = 12, .maps = 24, .groups = 3, .last = false},
      {.channels = 40, .maps = 512, .kernel = 1, .pad = 0},
      {.images = 3141, .channels = 16, .maps = 16, .size = {256}, .kernel = 5, .pad = 2, .last = false}};
  const CudaKernel& row = *find_cuda_kernel("weight_gradient_tf32x3");
  std::vector<std::string> texts;
  for (const Case& c : cases) {
    CudaProblem p = problem_of(DType::f32, c);
    const std::string chosen = code_of("weight_gradient_tf32x3", p).source;
    const std::vector<KernelVariant> variants = cuda_variants(row, p);
    p.way = variants.front().way;
    EXPECT_EQ(code_of("weight_gradient_tf32x3", p).source, chosen);
    texts.push_back(chosen);
    p.way = variants.back().way;
    texts.push_back(code_of("weight_gradient_tf32x3", p).source);
  }
  AICF_NEEDS_NVRTC();
  cuda_testing::expect_no_stack(texts, "sm_90a");
}

// Few maps take narrow tiles, so that less of a product is padding.
TEST(WeightGradientCuda, ByPartsFewMapsTakeNarrowTiles) {
  const auto way = [](const Case& c) {
    const CudaProblem p = problem_of(DType::f32, c);
    return std::get<WeightGradientWay>(
        cuda_variants(*find_cuda_kernel("weight_gradient_tf32x3"), p).front().way);
  };
  EXPECT_EQ(way({.images = 234, .channels = 16, .maps = 16, .size = {28, 28}}).block_n, 32);
  EXPECT_EQ(way({.images = 118, .size = {14, 14}, .kernel = 1, .pad = 0}).block_n, 64);
}

TEST(WeightGradientCuda, CompilesWithSymbolicImages) {
  RandomWindows random(3);
  CudaProblem p = problem_of(DType::bf16, {});
  const SymbolRanges ranges = {{"n", {0, 64}}};
  p.ranges = &ranges;
  for (CudaWindow& window : p.inputs) window.sizes[0] = Dim::symbol("n");
  CudaProblem depthwise = problem_of(DType::bf16, {.groups = 64});
  depthwise.ranges = &ranges;
  for (CudaWindow& window : depthwise.inputs) window.sizes[0] = Dim::symbol("n");
  const std::vector<std::string> texts = {code_of("weight_gradient_wgmma", p).source,
                                          code_of("weight_gradient_depthwise", depthwise).source};
  AICF_NEEDS_NVRTC();
  expect_compiles(texts, "sm_90a");
}

TEST(WeightGradientCuda, DepthwiseCompiles) {
  const std::vector<Case> cases = {{.channels = 96, .size = {112, 112}},
                                   {.channels = 73, .size = {37, 37}},
                                   {.channels = 144, .size = {56, 56}, .stride = 2},
                                   {.channels = 240, .size = {28, 28}, .kernel = 5, .pad = 2},
                                   {.channels = 192, .size = {28, 28}, .kernel = 7, .pad = 3},
                                   {.channels = 20, .size = {23, 20}, .pad = 2, .dilation = 2},
                                   {.channels = 12, .size = {40}, .kernel = 9, .pad = 4},
                                   {.channels = 16, .size = {32, 32}, .kernel = 2, .stride = 2, .pad = 0}};
  constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32};
  std::vector<std::string> texts;
  for (Case c : cases)
    for (bool last : {false, true}) {
      c.last = last;
      c.maps = c.groups = c.channels;
      const CudaProblem p = problem_of(kTypes[texts.size() % 3], c);
      const CudaCode code = code_of("weight_gradient_depthwise", p);
      EXPECT_EQ(code, code_of("weight_gradient_depthwise", p));
      texts.push_back(code.source);
    }
  AICF_NEEDS_NVRTC();
  for (const char* target : {"sm_80", "sm_90a"})
    for (const std::string& image : compile_cuda(texts, target))
      EXPECT_EQ(cuda_testing::stack_bytes(image), 0) << target;
}

// Operands are copied only where neither their channels nor their positions can be read as they lie.
TEST(WeightGradientCuda, CopiesWhatCannotBeRead) {
  const auto copies = [](const Case& c) {
    std::vector<std::string> names =
        functions_of(code_of("weight_gradient_wgmma", problem_of(DType::bf16, c)));
    names.resize(names.size() - 2);
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(copies({}), Names{});
  EXPECT_EQ(copies({.last = false}), Names{"pack_x"});  // positions of dy are neighbours
  EXPECT_EQ(copies({.kernel = 1, .pad = 0, .last = false}), Names{});
  EXPECT_EQ(copies({.size = {7, 7}, .kernel = 1, .pad = 0, .last = false}), (Names{"pack_x", "pack_dy"}));
  EXPECT_EQ(copies({.channels = 60}), Names{"pack_x"});
  EXPECT_EQ(copies({.maps = 60}), Names{"pack_dy"});
  EXPECT_EQ(copies({.channels = 48, .maps = 24, .groups = 6}), Names{});
}

std::vector<Case> halo_gradient_cases() {
  return {{.images = 64, .channels = 256, .maps = 256, .size = {56, 56}},
          {.images = 32, .size = {56, 56}},
          {.images = 8, .channels = 512, .maps = 512, .size = {7, 7}},
          {.images = 32, .channels = 128, .maps = 128, .size = {56, 56}, .stride = 2},
          {.channels = 72, .maps = 104, .size = {29, 31}, .kernel = 5, .pad = 2},
          {.channels = 24, .maps = 40, .size = {30, 21}, .pad = 2, .dilation = 2},
          {.channels = 64, .maps = 256, .size = {32, 32}, .kernel = 2, .stride = 2, .pad = 0},
          {.channels = 64, .maps = 64, .size = {28, 28}, .kernel = 7, .pad = 3}};
}
std::vector<KernelVariant> halo_gradient_variants(const CudaProblem& p) {
  std::vector<KernelVariant> list;
  for (const KernelVariant& variant : cuda_variants(*find_cuda_kernel("weight_gradient_wgmma"), p))
    if (std::get<WeightGradientWay>(variant.way).halo_rows > 0) list.push_back(variant);
  return list;
}

// In every way what the host counts is what the device lays out, and every tap's last position lies in its
// box.
TEST(WeightGradientCuda, HaloLayoutsAgree) {
  std::vector<std::string> texts;
  for (const Case& c : halo_gradient_cases()) {
    CudaProblem p = problem_of(DType::bf16, c);
    const std::vector<KernelVariant> variants = halo_gradient_variants(p);
    ASSERT_FALSE(variants.empty());
    for (const KernelVariant& variant : variants) {
      p.way = variant.way;
      const auto way = std::get<WeightGradientWay>(variant.way);
      const CudaCode code = code_of("weight_gradient_wgmma", p);
      const CudaLaunch& launch = code.launches.at(0);
      EXPECT_LE(launch.shared_bytes, 227 * 1024);
      const size_t type = code.source.find("aicf::WeightGradientHalo<");
      LayoutText text(code.source);
      text.use("Kernel", code.source.substr(type, code.source.find("::run", type) - type));
      text.equal("Kernel::kBytes", launch.shared_bytes);
      text.equal("Kernel::kThreads", launch.block);
      text.equal("Kernel::kTaps", way.block_m / 64);
      // Few parts are added by the blocks that have them, if a panel's sums fit.
      const bool in_cluster = way.parts <= 8 && way.block_m / 64 <= 12;
      EXPECT_EQ(launch.cluster, in_cluster ? way.parts : 1);
      EXPECT_EQ(code.launches.size(), in_cluster ? 1u : 2u);
      EXPECT_EQ(code.workspace_bytes == Dim(0), in_cluster);
      const std::vector<int32_t>&x = launch.tensor_maps.at(0).box, &dy = launch.tensor_maps.at(1).box;
      text.equal("Kernel::Box::kWidth", x[1]);
      text.equal("Kernel::Box::kPositions", x[1] * x[2]);
      text.equal("Kernel::kPanel", dy[0] * dy[1] * dy[2] * 2);
      // From the last tap's first position the rows of eight of a box.
      const int64_t columns = c.kernel - 1, rows = way.block_m / 64 / c.kernel - 1;
      const int64_t last = rows * c.dilation / c.stride * x[1] + columns * c.dilation / c.stride +
                           (way.halo_rows - 1) * x[1] + 7;
      EXPECT_LT(last, x[1] * x[2]);
      const int64_t phase =
          rows * c.dilation % c.stride * std::min(c.stride, c.kernel) + columns * c.dilation % c.stride;
      text.equal("(int(Kernel::Box::tap_offset(" + std::to_string(rows) + ", " + std::to_string(columns) +
                     ")) - " + std::to_string(phase) + " * Kernel::Box::kPhaseBytes) / 128 + " +
                     std::to_string(way.halo_rows - 1) + " * Kernel::Box::kDown + 7",
                 last);
      EXPECT_EQ(launch.tensor_maps[0].steps,
                (std::vector<int32_t>{1, int32_t(c.stride), int32_t(c.stride), 1}));
      texts.push_back(text.text());
    }
  }
  AICF_NEEDS_NVRTC();
  expect_compiles(texts, "sm_90a");
}

TEST(WeightGradientCuda, HaloSumsStayInRegisters) {
  std::vector<std::string> texts;
  for (const Case& c : halo_gradient_cases()) {
    CudaProblem p = problem_of(texts.size() % 2 == 0 ? DType::f16 : DType::bf16, c);
    const std::vector<KernelVariant> variants = halo_gradient_variants(p);
    for (const size_t i : {size_t{0}, variants.size() - 1}) {
      p.way = variants[i].way;
      const CudaCode code = code_of("weight_gradient_wgmma", p);
      EXPECT_EQ(code, code_of("weight_gradient_wgmma", p));
      texts.push_back(code.source);
    }
  }
  AICF_NEEDS_NVRTC();
  cuda_testing::expect_no_stack(texts, "sm_90a");
}

// Of small maps and many channels parts would be larger than what is read: one launch stores the result.
TEST(WeightGradientCuda, HalosOfSmallMapsStoreTheResult) {
  std::vector<std::string> texts;
  for (const bool taps_last : {true, false}) {
    CudaProblem p = problem_of(DType::f16, {.images = 8, .channels = 512, .maps = 512, .size = {7, 7}});
    if (!taps_last) p.outputs[0] = channels_last(p.outputs[0]);
    const CudaCode code = code_of("weight_gradient_wgmma", p);
    EXPECT_EQ(functions_of(code), std::vector<std::string>{"weight_gradient_halo_f16"});
    EXPECT_NE(code.source.find(taps_last ? ", true>::run" : ", false>::run"), std::string::npos);
    texts.push_back(code.source);
  }
  AICF_NEEDS_NVRTC();
  cuda_testing::expect_no_stack(texts, "sm_90a");
}

// Where windows overlap and the copy engine can read both operands.
TEST(WeightGradientCuda, HalosNeedWindowsAndChannelsLast) {
  const auto has_halo = [](const Case& c) {
    return !halo_gradient_variants(problem_of(DType::f16, c)).empty();
  };
  EXPECT_TRUE(has_halo({}));
  EXPECT_FALSE(has_halo({.last = false}));
  EXPECT_FALSE(has_halo({.kernel = 1, .pad = 0}));
  EXPECT_FALSE(has_halo({.channels = 60}));
  EXPECT_FALSE(has_halo({.maps = 60}));
  EXPECT_FALSE(has_halo({.channels = 64, .maps = 64, .groups = 2}));
  CudaProblem p = problem_of(DType::f16, {});
  const SymbolRanges ranges = {{"n", {0, 64}}}, some = {{"n", {1, 64}}};
  for (CudaWindow& window : p.inputs) window.sizes[0] = Dim::symbol("n");
  p.ranges = &ranges;
  EXPECT_TRUE(halo_gradient_variants(p).empty());  // no tensor map of none
  p.ranges = &some;
  EXPECT_FALSE(halo_gradient_variants(p).empty());
}

TEST(WeightGradientCuda, EveryVariantIsAnotherKernelAndTheFirstIsTheChoice) {
  CudaProblem p = problem_of(DType::bf16, {.images = 32, .size = {56, 56}});
  const std::string chosen = code_of("weight_gradient_wgmma", p).source;
  std::vector<std::string> texts;
  double last = 0;
  for (const KernelVariant& variant : cuda_variants(*find_cuda_kernel("weight_gradient_wgmma"), p)) {
    EXPECT_GE(variant.microseconds, last) << to_string(variant.way);
    last = variant.microseconds;
    p.way = variant.way;
    texts.push_back(code_of("weight_gradient_wgmma", p).source);
  }
  ASSERT_GT(texts.size(), 5u);
  EXPECT_GT(last, 0);
  EXPECT_EQ(texts.front(), chosen);
  std::sort(texts.begin(), texts.end());
  EXPECT_EQ(std::adjacent_find(texts.begin(), texts.end()), texts.end());
  p.way = ConvWay{};
  EXPECT_THROW(code_of("weight_gradient_wgmma", p), InternalError);
}

// Long sums of few results are cut into parts, which fill the machine.
TEST(WeightGradientCuda, PartsFillTheMachine) {
  const auto blocks = [](const char* row, const Case& c) {
    const CudaCode code = code_of(row, problem_of(DType::bf16, c));
    const CudaLaunch& launch = code.launches[code.launches.size() - 2];
    return *launch.grid[0].constant() * *launch.grid[1].constant();
  };
  EXPECT_GE(blocks("weight_gradient_wgmma", {.images = 32, .size = {56, 56}}), 100);
  EXPECT_GE(blocks("weight_gradient_wgmma",
                   {.images = 32, .channels = 16, .maps = 16, .size = {56, 56}, .kernel = 1, .pad = 0}),
            100);
  EXPECT_GE(blocks("weight_gradient_depthwise", {.images = 32, .size = {56, 56}, .groups = 64}), 100);
}

// Many parts of few results are shared by the threads of a block: none has more of them one after the other
// than it asks for at once. Results that fill the machine have a thread each.
TEST(WeightGradientCuda, FewResultsShareTheirParts) {
  const auto sum = [](const char* row, DType dtype, const Case& c) {
    const CudaCode code = code_of(row, problem_of(dtype, c));
    const size_t at = code.source.find("aicf::sum_weight_gradient<");
    return code.source.substr(at, code.source.find('(', at) - at);
  };
  const Case volume{.images = 161, .channels = 16, .maps = 16, .size = {8, 28, 28}};
  const Case depthwise{.images = 367, .channels = 32, .maps = 32, .size = {14, 14}, .groups = 32};
  const Case large{.images = 64, .channels = 512, .maps = 512, .size = {14, 14}, .last = false};
  EXPECT_EQ(sum("weight_gradient_wgmma", DType::f16, volume), "aicf::sum_weight_gradient<16, 16, 256, 1>");
  EXPECT_EQ(sum("weight_gradient_depthwise", DType::f16, depthwise),
            "aicf::sum_weight_gradient<32, 32, 1024, 1>");
  EXPECT_EQ(sum("weight_gradient_wgmma", DType::f16, large), "aicf::sum_weight_gradient<32, 1, 256, 8>");
}

// Of 14 rows columns have seven, not twelve and two.
TEST(WeightGradientCuda, DepthwiseColumnsAreOfOneLength) {
  const Case c{.images = 367, .channels = 32, .maps = 32, .size = {14, 14}, .groups = 32};
  const std::string text = code_of("weight_gradient_depthwise", problem_of(DType::f16, c)).source;
  EXPECT_NE(text.find(", 256, 7>::run"), std::string::npos);
}

TEST(WeightGradientCuda, EveryBoxOfAVariantIsItsOwn) {
  CudaProblem p = problem_of(DType::bf16, {.images = 32, .channels = 136, .maps = 96, .size = {56, 56}});
  const std::string chosen = code_of("weight_gradient_mma", p).source;
  std::vector<std::string> texts;
  for (const KernelVariant& variant : cuda_variants(*find_cuda_kernel("weight_gradient_mma"), p)) {
    EXPECT_GT(variant.microseconds, 0);
    p.way = variant.way;
    texts.push_back(code_of("weight_gradient_mma", p).source);
  }
  ASSERT_GT(texts.size(), 1u);
  EXPECT_EQ(texts.front(), chosen);
  std::sort(texts.begin(), texts.end());
  EXPECT_EQ(std::adjacent_find(texts.begin(), texts.end()), texts.end());
  p.way = WeightGradientWay{};
  EXPECT_THROW(code_of("weight_gradient_mma", p), InternalError);
}

TEST(WeightGradientCuda, EveryRowServesItsProblems) {
  const auto names = [](DType dtype, int64_t channels, int64_t groups, int arch) {
    Problem problem;
    problem.family = "conv_weight_gradient";
    problem.inputs = {{dtype, {Dim::symbol("n"), Dim(channels), Dim(9), Dim(9)}},
                      {dtype, {Dim::symbol("n"), Dim(16), Dim(9), Dim(9)}}};
    problem.outputs = {{dtype, {Dim(16), Dim(channels / groups), Dim(3), Dim(3)}}};
    problem.params = {Dim(2), Dim(groups), Dim(0)};
    for (int64_t number : {1, 1, 1, 1}) problem.params.insert(problem.params.end(), 2, Dim(number));
    std::vector<std::string_view> found;
    for (const CudaKernel* row : cuda_candidates(problem, arch)) found.push_back(row->name);
    return found;
  };
  using Names = std::vector<std::string_view>;
  EXPECT_EQ(names(DType::f16, 8, 1, 90), (Names{"weight_gradient_wgmma", "weight_gradient_mma"}));
  EXPECT_EQ(names(DType::bf16, 32, 4, 80), Names{"weight_gradient_mma"});
  EXPECT_EQ(names(DType::f16, 1000, 1, 80), Names{"weight_gradient_mma"});
  EXPECT_EQ(names(DType::f32, 8, 1, 90), Names{"weight_gradient_tf32x3"});
  EXPECT_EQ(names(DType::f32, 8, 1, 80), Names{});
  EXPECT_EQ(names(DType::f32, 16, 16, 90), Names{"weight_gradient_depthwise"});
  EXPECT_EQ(names(DType::bf16, 16, 16, 90), (Names{"weight_gradient_depthwise", "weight_gradient_wgmma"}));
  EXPECT_EQ(names(DType::f32, 16, 16, 80), Names{"weight_gradient_depthwise"});
  EXPECT_EQ(names(DType::f64, 16, 16, 90), Names{});
}

}  // namespace
}  // namespace aicf
