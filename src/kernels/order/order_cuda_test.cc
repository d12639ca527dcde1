// The text of the order rows compiles for random problems, and shares long lines among blocks.
#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"
#include "kernels/order/merge_cuda.h"

namespace aicf {
namespace {

using cuda_testing::compile_all;
using cuda_testing::RandomWindows;
using cuda_testing::RowTexts;

// 32 bits of each; all ones are what pads a tile.
TEST(OrderCuda, ItemsAreNarrowWhereKeyAndIndexHaveARoomOf32Bits) {
  constexpr int64_t kOnes = (int64_t{1} << 32) - 1;
  EXPECT_TRUE(is_narrow_item(kOnes - 1, kOnes - 1));
  EXPECT_FALSE(is_narrow_item(kOnes, 0));
  EXPECT_FALSE(is_narrow_item(0, kOnes));
}

TEST(OrderCuda, Compiles) {
  RowTexts texts;
  for (DType dtype : cuda_testing::all_dtypes()) {
    if (dtype == DType::boolean) continue;
    for (uint64_t seed = 0; seed < 2; ++seed) {
      RandomWindows random(seed * 100 + static_cast<uint64_t>(dtype));
      const bool large = seed == 1;
      const Shape x = random.shape(static_cast<size_t>(1 + random.below(3)), 1, large ? 20000 : 60);
      const size_t axis = static_cast<size_t>(random.below(static_cast<int64_t>(x.size())));
      CudaProblem p;
      p.inputs = {random.window(dtype, x)};
      p.params = {Dim(static_cast<int64_t>(axis)), Dim(random.below(2))};
      p.outputs = {random.window(dtype, x), random.window(DType::i64, x)};
      texts.add("sort", p, random.ranges());
      Shape few = x;
      few[axis] = Dim(1);
      p.outputs = {random.window(dtype, few), random.window(DType::i64, few)};
      texts.add("top_k", p, random.ranges());
      p.outputs = {random.window(DType::i64, few)};
      texts.add(random.below(2) ? "argmax" : "argmin", p, random.ranges());
      p.params.emplace_back(random.below(2));
      p.outputs = {random.window(dtype, x)};
      texts.add(random.below(2) ? "cumsum" : "cumprod", p, random.ranges());
    }
  }
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

// Neighbours of points, and the best of a few long lines: nothing is sorted whole.
TEST(OrderCuda, TheFirstFewOfALineAreSelected) {
  RowTexts texts;
  const auto top = [&](DType dtype, int64_t lines, int64_t size, int64_t kept, int64_t stride) {
    CudaProblem p;
    p.inputs = {{dtype, Dim(0), {Dim(lines), Dim(size)}, {Dim(stride), Dim(1)}}};
    for (DType of : {dtype, DType::i64})
      p.outputs.push_back({of, Dim(0), {Dim(lines), Dim(kept)}, {Dim(kept), Dim(1)}});
    p.params = {Dim(1), Dim(1)};
    return texts.add("top_k", p, {});
  };
  EXPECT_NE(
      top(DType::f32, 8192, 1024, 20, 1024).source.find("select_lines<aicf::NarrowItem, 1, 32, 4, true>"),
      std::string::npos);
  EXPECT_NE(top(DType::f16, 8192, 100, 32, 101).source.find("select_lines<aicf::NarrowItem, 1, 4, 1, true>"),
            std::string::npos);
  EXPECT_NE(top(DType::i64, 300, 30000, 8, 30000).source.find("select_lines<aicf::WideItem, 8, 32, 2, true>"),
            std::string::npos);
  // A lane has one result at most; a block would be too few for one long line.
  EXPECT_EQ(top(DType::f32, 8192, 1024, 33, 1024).launches[0].function, "sort_short_lines");
  EXPECT_EQ(top(DType::f32, 1, 128000, 8, 128000).launches[0].function, "sort_tiles");
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

// Keys of 16 bits and their indices are items of one word. A block sorts as many as its memory holds, where
// that leaves blocks enough.
TEST(OrderCuda, ItemsOfShortLinesAreAsNarrowAsTheirKeys) {
  RowTexts texts;
  const auto holds = [&](DType dtype, int64_t lines, int64_t size, const std::string& part) {
    CudaProblem p;
    p.inputs = {{dtype, Dim(0), {Dim(lines), Dim(size)}, {Dim(size), Dim(1)}}};
    p.outputs = {p.inputs[0], p.inputs[0]};
    p.outputs[1].dtype = DType::i64;
    p.params = {Dim(1), Dim(0)};
    const std::string source = texts.add("sort", p, {}).source;
    EXPECT_NE(source.find("__launch_bounds__(256, 4)"), std::string::npos);
    return source.find("sort_short_lines<aicf::" + part + ", false>") != std::string::npos;
  };
  for (DType dtype : {DType::f16, DType::bf16, DType::i16, DType::i8, DType::u8})
    EXPECT_TRUE(holds(dtype, 6943, 899, "ShortItem, 8192, 1024"));
  EXPECT_TRUE(holds(DType::f32, 6943, 899, "NarrowItem, 4096, 1024"));
  EXPECT_TRUE(holds(DType::i64, 6943, 899, "WideItem, 2048, 1024"));
  EXPECT_TRUE(holds(DType::f16, 300, 2048, "ShortItem, 2048, 2048"));
  EXPECT_TRUE(holds(DType::f16, 100, 20, "ShortItem, 512, 32"));
  EXPECT_TRUE(holds(DType::f16, 1 << 20, 2, "ShortItem, 4096, 2"));
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

TEST(OrderCuda, LongLinesOfArgmaxAreSharedByBlocks) {
  RowTexts texts;
  for (DType dtype : {DType::bf16, DType::f32, DType::i64})
    for (int64_t size : {128256, 50001}) {
      CudaProblem p;
      p.inputs = {{dtype, Dim(0), {Dim(3), Dim(size)}, {Dim(size), Dim(1)}}};
      p.outputs = {{DType::i64, Dim(0), {Dim(3), Dim(1)}, {Dim(1), Dim(1)}}};
      p.params = {Dim(1), Dim(0)};
      EXPECT_EQ(texts.add("argmax", p, {}).launches.size(), 2u);
    }
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

// A thread of an argmax along neighbours has 64 bytes in flight: of a line, or of several short ones. Where
// lines are few, more threads share one. A line may begin anywhere.
TEST(OrderCuda, ArgmaxAlongNeighboursLoadsWholeUnits) {
  RowTexts texts;
  const auto text = [&](DType dtype, int64_t lines, int64_t size, int64_t stride) {
    CudaProblem p;
    p.inputs = {{dtype, Dim(0), {Dim(lines), Dim(size)}, {Dim(stride), Dim(1)}}};
    p.outputs = {{DType::i64, Dim(0), {Dim(lines), Dim(1)}, {Dim(1), Dim(1)}}};
    p.params = {Dim(1), Dim(0)};
    return texts.add("argmax", p, {}).source;
  };
  const auto holds = [](const std::string& source, const std::string& part) {
    return source.find("arg_rows<" + part + ", false, false>") != std::string::npos;
  };
  EXPECT_TRUE(holds(text(DType::f16, 16384, 4096, 4096), "32, 4, 1"));
  EXPECT_TRUE(holds(text(DType::bf16, 246492, 128, 128), "4, 4, 1"));
  EXPECT_TRUE(holds(text(DType::f16, 1489535, 16, 16), "2, 1, 4"));
  EXPECT_TRUE(holds(text(DType::f16, 256, 50257, 50257), "1024, 4, 1"));
  EXPECT_TRUE(holds(text(DType::f32, 1 << 20, 15, 15), "4, 2, 2"));
  for (DType dtype : {DType::f64, DType::i8, DType::u8, DType::i64}) text(dtype, 1000, 333, 334);
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

// The fewest threads that hold a short line, with vectors where all lines begin at whole ones.
TEST(OrderCuda, ShortLinesOfAScanTakeFewThreads) {
  RowTexts texts;
  const auto text = [&](DType dtype, int64_t size, int64_t stride, bool reverse) {
    CudaProblem p;
    p.inputs = {{dtype, Dim(0), {Dim(71877), Dim(size)}, {Dim(stride), Dim(1)}}};
    p.outputs = p.inputs;
    p.params = {Dim(1), Dim(0), Dim(reverse ? 1 : 0)};
    return texts.add("cumsum", p, {}).source;
  };
  const auto holds = [](const std::string& source, const std::string& part) {
    return source.find("scan_lines<" + part) != std::string::npos;
  };
  EXPECT_TRUE(holds(text(DType::f16, 32, 32, false), "8, 4, false, false, false>"));
  EXPECT_TRUE(holds(text(DType::f32, 20, 24, true), "8, 4, false, false, true>"));
  EXPECT_TRUE(holds(text(DType::f32, 3, 3, false), "1, 1, false"));
  EXPECT_TRUE(holds(text(DType::f64, 128, 128, false), "32, 1, false"));
  EXPECT_TRUE(holds(text(DType::bf16, 4096, 4096, true), "256, 4, false"));
  // A block would have threads without elements; a warp takes one part of the line after the other.
  EXPECT_TRUE(holds(text(DType::f16, 256, 256, false), "32, 4, false"));
  EXPECT_TRUE(holds(text(DType::f32, 300, 301, false), "32, 1, false"));
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

// Where lines are neighbours in memory: warps share a line, and blocks do until there are enough of them.
TEST(OrderCuda, NeighbouringLinesOfArgmaxAreSharedByWarpsAndBlocks) {
  RowTexts texts;
  const auto launches = [&](DType dtype, int64_t size, int64_t lines) {
    CudaProblem p;
    p.inputs = {{dtype, Dim(0), {Dim(size), Dim(lines)}, {Dim(lines), Dim(1)}}};
    p.outputs = {{DType::i64, Dim(0), {Dim(1), Dim(lines)}, {Dim(lines), Dim(1)}}};
    p.params = {Dim(0), Dim(1)};
    return texts.add("argmin", p, {}).launches.size();
  };
  for (DType dtype : {DType::f16, DType::f32, DType::i64}) {
    EXPECT_EQ(launches(dtype, 3703, 1896), 2u);
    EXPECT_EQ(launches(dtype, 1000003, 3), 2u);
    EXPECT_EQ(launches(dtype, 100, 70), 1u);
    EXPECT_EQ(launches(dtype, 4000, 1 << 17), 1u);
    EXPECT_EQ(launches(dtype, 5, 1 << 16), 1u);
  }
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

}  // namespace
}  // namespace aicf
