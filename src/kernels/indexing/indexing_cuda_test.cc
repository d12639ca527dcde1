// The text of the indexing rows compiles for random problems, and moves wide units where it can.
#include <array>
#include <limits>

#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"
#include "kernels/common/scatter_order.h"

namespace aicf {
namespace {

using cuda_testing::compile_all;
using cuda_testing::RandomWindows;
using cuda_testing::RowTexts;

DType index_dtype(RandomWindows& random) { return random.below(2) ? DType::i64 : DType::i32; }

CudaProblem gather_problem(RandomWindows& random, DType dtype) {
  const size_t rank = static_cast<size_t>(1 + random.below(4)),
               axis = static_cast<size_t>(random.below(static_cast<int64_t>(rank)));
  const Shape x = random.shape(rank), indices = random.shape(static_cast<size_t>(random.below(3)));
  Shape out(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(axis));
  out.insert(out.end(), indices.begin(), indices.end());
  out.insert(out.end(), x.begin() + static_cast<std::ptrdiff_t>(axis) + 1, x.end());
  CudaProblem p;
  p.inputs = {random.window(dtype, x), random.window(index_dtype(random), indices)};
  p.outputs = {random.window(dtype, out)};
  p.params = {Dim(static_cast<int64_t>(axis))};
  return p;
}

CudaProblem elements_problem(RandomWindows& random, DType dtype, bool scatter) {
  const size_t rank = static_cast<size_t>(1 + random.below(3));
  const size_t axis = static_cast<size_t>(random.below(static_cast<int64_t>(rank)));
  const Shape x = random.shape(rank, 30, 200);
  Shape indices = random.shape(rank, 1, 30);
  if (random.below(2)) indices[axis] = random.size(1, 6000);
  CudaWindow at = random.window(index_dtype(random), indices);
  for (size_t i = 0; i < rank; ++i)
    if (i != axis && random.below(3) == 0) at.strides[i] = Dim(0);
  CudaProblem p;
  p.params = {Dim(static_cast<int64_t>(axis))};
  if (scatter) {
    p.inputs = {random.window(dtype, x), at, random.window(dtype, indices)};
    p.outputs = {random.window(dtype, x)};
    p.params.emplace_back(random.below(5));
  } else {
    p.inputs = {random.window(dtype, x), at};
    p.outputs = {random.window(dtype, indices)};
  }
  return p;
}

CudaProblem nd_problem(RandomWindows& random, DType dtype, bool scatter) {
  const size_t rank = static_cast<size_t>(1 + random.below(4)),
               components = static_cast<size_t>(random.below(static_cast<int64_t>(rank) + 1));
  const Shape x = random.shape(rank);
  Shape indices = random.shape(static_cast<size_t>(1 + random.below(2)), 1, 6000), rest = indices;
  indices.emplace_back(static_cast<int64_t>(components));
  rest.insert(rest.end(), x.begin() + static_cast<std::ptrdiff_t>(components), x.end());
  CudaProblem p;
  p.inputs = {random.window(dtype, x), random.window(index_dtype(random), indices)};
  p.params = {Dim(scatter ? random.below(5) : 0)};
  if (scatter) p.inputs.push_back(random.window(dtype, rest));
  p.outputs = {random.window(dtype, scatter ? x : rest)};
  return p;
}

CudaProblem pad_problem(RandomWindows& random, DType dtype) {
  const Shape x = random.shape(static_cast<size_t>(random.below(5)));
  CudaProblem p;
  p.inputs = {random.window(dtype, x)};
  if (random.below(2)) p.inputs.push_back({dtype, Dim(0), {}, {}});
  Shape out;
  std::vector<Dim> low, high;
  for (const Dim& size : x) {
    low.emplace_back(random.below(2) ? 0 : random.below(4) - 1);
    high.emplace_back(random.below(2) ? 0 : random.below(4));
    out.push_back(size + low.back() + high.back());
  }
  p.params = {Dim(random.below(4))};
  p.params.insert(p.params.end(), low.begin(), low.end());
  p.params.insert(p.params.end(), high.begin(), high.end());
  p.outputs = {random.window(dtype, out)};
  return p;
}

TEST(IndexingCuda, Compiles) {
  RowTexts texts;
  for (DType dtype : cuda_testing::all_dtypes()) {
    RandomWindows random(static_cast<uint64_t>(dtype));
    texts.add("gather", gather_problem(random, dtype), random.ranges());
    texts.add("gather_nd", nd_problem(random, dtype, false), random.ranges());
    texts.add("gather_elements", elements_problem(random, dtype, false), random.ranges());
    texts.add("scatter_nd", nd_problem(random, dtype, true), random.ranges());
    texts.add("scatter_elements", elements_problem(random, dtype, true), random.ranges());
    texts.add("pad", pad_problem(random, dtype), random.ranges());
    if (dtype == DType::boolean) continue;
    CudaProblem iota;
    iota.outputs = {random.window(dtype, random.shape(3))};
    iota.params = {Dim(random.below(3))};
    texts.add("iota", iota, random.ranges());
    CudaProblem size;
    size.outputs = {{dtype, Dim(0), {}, {}}};
    size.params = {random.size(1, 9)};
    texts.add("size_of", size, random.ranges());
  }
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

TEST(IndexingCuda, WideUnitsMoveRows) {
  CudaProblem p;
  p.inputs = {{DType::bf16, Dim(0), {Dim(1000), Dim(768)}, {Dim(768), Dim(1)}},
              {DType::i64, Dim(0), {Dim(64)}, {Dim(1)}}};
  p.outputs = {{DType::bf16, Dim(0), {Dim(64), Dim(768)}, {Dim(768), Dim(1)}}};
  p.params = {Dim(0)};
  RowTexts texts;
  EXPECT_NE(texts.add("gather", p, {}).source.find("Bits<16>"), std::string::npos);
  p.inputs[0].offset = Dim(3);
  EXPECT_EQ(texts.add("gather", p, {}).source.find("Bits<16>"), std::string::npos);
}

TEST(IndexingCuda, PicturesArePaddedInTheOrderOfTheirMemory) {
  CudaProblem p;
  p.inputs = {
      {DType::f16, Dim(0), {Dim(2), Dim(64), Dim(9), Dim(7)}, {Dim(4032), Dim(1), Dim(448), Dim(64)}}};
  p.outputs = {
      {DType::f16, Dim(0), {Dim(2), Dim(64), Dim(11), Dim(9)}, {Dim(6336), Dim(1), Dim(576), Dim(64)}}};
  p.params = {Dim(0), Dim(0), Dim(0), Dim(1), Dim(1), Dim(0), Dim(0), Dim(1), Dim(1)};
  RowTexts texts;
  EXPECT_NE(texts.add("pad", p, {}).source.find("Bits<16>"), std::string::npos);
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

// Where no axis but those that are padded is left, a thread writes neighbours of the whole result at once.
TEST(IndexingCuda, AThreadPadsSeveralNarrowElementsOfALargeResult) {
  CudaProblem p;
  RowTexts texts;
  const auto items = [&](int64_t planes, DType dtype, int64_t offset = 0, int64_t gap = 0) {
    const std::vector<Dim> sizes{Dim(planes), Dim(30), Dim(31)};
    p.inputs = {{dtype, Dim(0), {Dim(planes), Dim(28), Dim(28)}, {Dim(784), Dim(28), Dim(1)}}};
    p.outputs = {{dtype, Dim(offset), sizes, {Dim(930 + gap), Dim(31), Dim(1)}}};
    p.params = {Dim(0), Dim(0), Dim(1), Dim(2), Dim(0), Dim(1), Dim(1)};
    const CudaCode code = texts.add("pad", p, {});
    const std::string name = "aicf::pad<256, 0, ";
    const int64_t found = std::stoll(code.source.substr(code.source.find(name) + name.size()));
    EXPECT_EQ(code.launches[0].grid[0], Dim((planes * 930 + 256 * found - 1) / (256 * found)));
    return found;
  };
  EXPECT_EQ(items(100, DType::f16), 1);  // the threads come first
  EXPECT_EQ(items(11'520, DType::f16), 8);
  EXPECT_EQ(items(11'521, DType::f32), 4);
  EXPECT_EQ(items(11'520, DType::f16, 2), 2);
  EXPECT_EQ(items(11'520, DType::f16, 0, 6), 1);  // planes are not neighbours
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

TEST(IndexingCuda, AThreadGathersSeveralNarrowElementsOfALargeResult) {
  CudaProblem p;
  RowTexts texts;
  const auto items = [&](int64_t rows, DType dtype) {
    const std::vector<Dim> sizes{Dim(rows), Dim(200)}, strides{Dim(200), Dim(1)};
    p.inputs = {{dtype, Dim(0), {Dim(rows), Dim(1000)}, {Dim(1000), Dim(1)}},
                {DType::i64, Dim(0), sizes, strides}};
    p.outputs = {{dtype, Dim(0), sizes, strides}};
    p.params = {Dim(1)};
    const CudaCode code = texts.add("gather_elements", p, {});
    const size_t at = code.source.find("aicf::gather<") + std::string("aicf::gather<").size();
    const int64_t found = std::stoll(code.source.substr(at));
    EXPECT_EQ(code.launches[0].grid[0], Dim((rows * 200 + 256 * found - 1) / (256 * found)));
    return found;
  };
  EXPECT_EQ(items(1000, DType::f16), 1);  // the threads come first
  EXPECT_EQ(items(100'000, DType::f16), 8);
  EXPECT_EQ(items(100'000, DType::f32), 4);
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

TEST(IndexingCuda, AnIndexThatRepeatsAlongRowsMovesThemInWideUnits) {
  CudaProblem p;
  p.inputs = {{DType::bf16, Dim(0), {Dim(1000), Dim(128)}, {Dim(128), Dim(1)}},
              {DType::i64, Dim(0), {Dim(64), Dim(128)}, {Dim(1), Dim(0)}}};
  p.outputs = {{DType::bf16, Dim(0), {Dim(64), Dim(128)}, {Dim(128), Dim(1)}}};
  p.params = {Dim(0)};
  RowTexts texts;
  EXPECT_NE(texts.add("gather_elements", p, {}).source.find("Bits<16>"), std::string::npos);
  p.inputs[1].strides = {Dim(128), Dim(1)};
  EXPECT_EQ(texts.add("gather_elements", p, {}).source.find("Bits<16>"), std::string::npos);
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

// Rows of 128 that are added by a list of row numbers, spread over the row as torch's index_add does.
TEST(IndexingCuda, AnIndexThatRepeatsAlongAnAxisIsSortedOnce) {
  CudaProblem p;
  p.inputs = {{DType::bf16, Dim(0), {Dim(20000), Dim(128)}, {Dim(0), Dim(0)}},
              {DType::i64, Dim(0), {Dim(160000), Dim(128)}, {Dim(1), Dim(0)}},
              {DType::bf16, Dim(0), {Dim(160000), Dim(128)}, {Dim(128), Dim(1)}}};
  p.outputs = {{DType::bf16, Dim(0), {Dim(20000), Dim(128)}, {Dim(128), Dim(1)}}};
  p.params = {Dim(0), Dim(1)};
  RowTexts texts;
  const CudaCode rows = texts.add("scatter_elements", p, {});
  EXPECT_NE(rows.source.find("apply_updates<1, aicf::kFromOne, false, kHasLong, false, 8>"),
            std::string::npos);
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

// Every column has indices of its own. Its updates move once, in words that hold the update and its target.
TEST(IndexingCuda, LinesWithIndicesOfTheirOwnGoByBuckets) {
  CudaProblem p;
  p.inputs = {{DType::bf16, Dim(0), {Dim(1000), Dim(128)}, {Dim(0), Dim(0)}},
              {DType::i64, Dim(0), {Dim(50000), Dim(128)}, {Dim(128), Dim(1)}},
              {DType::bf16, Dim(0), {Dim(50000), Dim(128)}, {Dim(128), Dim(1)}}};
  p.outputs = {{DType::bf16, Dim(0), {Dim(1000), Dim(128)}, {Dim(128), Dim(1)}}};
  p.params = {Dim(0), Dim(2)};
  RowTexts texts;
  const CudaCode across = texts.add("scatter_elements", p, {});
  ASSERT_EQ(across.launches.size(), 4u);
  EXPECT_EQ(across.launches.back().function, "combine_buckets");
  EXPECT_NE(across.source.find("place_updates<4, 32, 5, true, T>"), std::string::npos);
  EXPECT_LT(across.workspace_bytes.require_constant("bytes"), 128 * 50000 * 5);
  // Lines that lie one behind the other; more targets than a block counts for so many lines.
  p.inputs = {{DType::f64, Dim(0), {Dim(128), Dim(100000)}, {Dim(100000), Dim(1)}},
              {DType::i64, Dim(0), {Dim(128), Dim(50000)}, {Dim(50000), Dim(1)}},
              {DType::f64, Dim(0), {Dim(128), Dim(50000)}, {Dim(50000), Dim(1)}}};
  p.outputs = {p.inputs[0]};
  p.params = {Dim(1), Dim(1)};
  const CudaCode along = texts.add("scatter_elements", p, {});
  EXPECT_NE(along.source.find("place_updates<4, 512, 8, false, T>"), std::string::npos);
  // A block would put all updates of a line into few runs, one warp each.
  p.inputs[0].sizes[1] = p.outputs[0].sizes[1] = Dim(300);
  EXPECT_NE(texts.add("scatter_elements", p, {}).launches.back().function, "combine_buckets");
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

// Edges of a graph to its nodes.
CudaProblem edges_problem(DType dtype, int64_t edges, int64_t nodes, int64_t width) {
  CudaProblem p;
  p.inputs = {{dtype, Dim(0), {Dim(nodes), Dim(width)}, {Dim(0), Dim(0)}},
              {DType::i64, Dim(0), {Dim(edges), Dim(width)}, {Dim(1), Dim(0)}},
              {dtype, Dim(0), {Dim(edges), Dim(width)}, {Dim(width), Dim(1)}}};
  p.outputs = {{dtype, Dim(0), {Dim(nodes), Dim(width)}, {Dim(width), Dim(1)}}};
  p.params = {Dim(0), Dim(1)};
  return p;
}

// Updates of lines [updates, lines] to [size, lines], each with an index of its own.
CudaProblem lines_problem(DType dtype, int64_t lines, int64_t updates, int64_t size, int64_t reduction) {
  const auto window = [&](DType type, int64_t along) {
    return CudaWindow{{type, Dim(0), {Dim(along), Dim(lines)}, {Dim(lines), Dim(1)}}};
  };
  CudaProblem p;
  p.inputs = {window(dtype, size), window(DType::i64, updates), window(dtype, updates)};
  p.outputs = {window(dtype, size)};
  p.params = {Dim(0), Dim(reduction)};
  return p;
}
void repeat(CudaWindow& window) {
  for (Dim& stride : window.strides) stride = Dim(0);
}
// Where x and the updates are constants.
CudaProblem count_problem(DType dtype, int64_t updates, double x, double update) {
  CudaProblem p = lines_problem(dtype, 1, updates, 30000, 1);
  repeat(p.inputs[0]);
  repeat(p.inputs[2]);
  p.inputs[0].value = x;
  p.inputs[2].value = update;
  return p;
}
std::string last_scatter(const CudaCode& code) { return code.launches.back().function; }
constexpr const char* kAnyOrder = "combine_in_any_order";

// Integers, and one element everywhere: by atomic operations on a copy.
TEST(IndexingCuda, UpdatesInAnyOrderAreNotSorted) {
  RowTexts texts;
  const auto function = [&](const CudaProblem& p) {
    const CudaCode code = texts.add("scatter_elements", p, {});
    EXPECT_EQ(code.launches.size(), p.replaced.empty() ? 2u : 1u);
    EXPECT_EQ(code.workspace_bytes, Dim(0));
    EXPECT_TRUE(code.launches.back().reports_errors);
    return last_scatter(code);
  };
  for (const DType dtype : {DType::i32, DType::i64})
    for (const int64_t reduction : {1, 3, 4})
      for (const int64_t lines : {30, 9000}) {
        CudaProblem p = lines_problem(dtype, lines, 40000, 1000, reduction);
        EXPECT_EQ(function(p), kAnyOrder);
        p.replaced = {0};
        EXPECT_EQ(function(p), kAnyOrder);
      }
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64})
    for (const int64_t reduction : {3, 4}) {
      EXPECT_EQ(function(lines_problem(dtype, 30, 40000, 1000, reduction)), kAnyOrder);
      CudaProblem rows = edges_problem(dtype, 80000, 5000, 56);  // which share an order
      rows.params[1] = Dim(reduction);
      EXPECT_NE(last_scatter(find_cuda_kernel("scatter_elements")->generate(rows)), kAnyOrder);
    }
  for (const DType dtype : {DType::i32, DType::i64}) {
    CudaProblem p = lines_problem(dtype, 1, 100000, 300, 1);
    repeat(p.inputs[2]);
    EXPECT_EQ(function(p), "count_updates");
  }
  CudaProblem p = lines_problem(DType::i64, 1, 100000, 30000, 1);  // too many for shared memory
  repeat(p.inputs[2]);
  EXPECT_EQ(function(p), kAnyOrder);
  for (const DType dtype : {DType::boolean, DType::f16, DType::f32, DType::f64}) {
    p = lines_problem(dtype, 1, 100000, 300, 0);
    repeat(p.inputs[2]);
    EXPECT_EQ(function(p), kAnyOrder);
  }
  // Rows, and members of a bundle, which have no launch before them.
  p = edges_problem(DType::i64, 80000, 5000, 64);
  EXPECT_EQ(function(p), kAnyOrder);
  EXPECT_FALSE(scatter_order("scatter_elements", p));
  p.form = CodeForm::member;
  EXPECT_NE(last_scatter(find_cuda_kernel("scatter_elements")->generate(p)), kAnyOrder);
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

TEST(IndexingCuda, UpdatesWhoseOrderMattersAreSorted) {
  const auto function = [](const CudaProblem& p) {
    return last_scatter(find_cuda_kernel("scatter_elements")->generate(p));
  };
  for (const auto& [dtype, reduction] :
       {std::pair{DType::f32, 1}, {DType::f16, 2}, {DType::i64, 2}, {DType::i64, 0}, {DType::i8, 1}})
    EXPECT_NE(function(lines_problem(dtype, 1, 100000, 30000, reduction)), kAnyOrder);
}

// Sums of halves and of f32 are whole numbers of one unit: no order, where every update has an index of its
// own.
TEST(IndexingCuda, SumsOfLinesAreExact) {
  RowTexts texts;
  const auto functions = [&](const CudaProblem& p) {
    const CudaCode code = texts.add("scatter_elements", p, {});
    EXPECT_FALSE(scatter_order("scatter_elements", p) && last_scatter(code) == "sum_buckets");
    return std::pair{code.launches.size(), last_scatter(code)};
  };
  const std::string exact = "sum_buckets";
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    CudaProblem p = lines_problem(dtype, 16, 400000, 100000, 1);
    EXPECT_EQ(functions(p), std::pair(size_t{4}, exact));
    p.replaced = {0};
    EXPECT_EQ(functions(p), std::pair(size_t{4}, exact));
    p.replaced = {};
    p.inputs[0].strides = {Dim(1), Dim(100000)};
    EXPECT_EQ(functions(p), std::pair(size_t{4}, exact));
    repeat(p.inputs[0]);
    EXPECT_EQ(functions(p), std::pair(size_t{4}, exact));
    // Some lines get no updates: x is copied first.
    p.inputs[1].sizes[1] = p.inputs[2].sizes[1] = Dim(9);
    EXPECT_EQ(functions(p), std::pair(size_t{5}, exact));
    p.form = CodeForm::member;
    EXPECT_NE(last_scatter(find_cuda_kernel("scatter_elements")->generate(p)), exact);
  }
  for (const CudaProblem& other :
       {lines_problem(DType::f64, 16, 400000, 100000, 1), lines_problem(DType::f32, 16, 400000, 100000, 2),
        lines_problem(DType::f16, 16, (1 << 22) + 1, 100000, 1),
        lines_problem(DType::f16, 1, 400000, 100000, 1), lines_problem(DType::f32, 16, 100, 100, 1),
        edges_problem(DType::f16, 80000, 5000, 64)})
    EXPECT_NE(functions(other).second, exact);
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

// A block holds the sums of 8192 places at most, of fewer where all blocks would not fill the device often.
TEST(IndexingCuda, BucketsOfExactSumsFollowTheirPlaces) {
  RowTexts texts;
  const auto shape = [&](CudaProblem p) {
    const std::string source = texts.add("scatter_elements", p, {}).source;
    const size_t at = source.find("SumShape<");
    return at == std::string::npos ? "" : source.substr(at, source.find('>', at) + 1 - at);
  };
  EXPECT_EQ(shape(lines_problem(DType::f32, 64, 205214, 410429, 1)), "SumShape<8, 10, true>");
  EXPECT_EQ(shape(lines_problem(DType::f32, 471, 5691, 11383, 1)), "SumShape<8, 9, true>");
  EXPECT_EQ(shape(lines_problem(DType::f16, 64, 60000, 1000, 1)), "SumShape<8, 4, true>");
  EXPECT_EQ(shape(lines_problem(DType::f16, 3, 60000, 1000, 1)), "SumShape<4, 5, true>");
  EXPECT_EQ(shape(lines_problem(DType::bf16, 5000, 100, 300, 1)), "SumShape<64, 4, true>");
  CudaProblem along = lines_problem(DType::f32, 128, 50000, 100000, 1);
  for (CudaWindow* window : {&along.inputs[0], &along.inputs[1], &along.inputs[2], &along.outputs[0]})
    window->strides = {Dim(1), window->sizes[0]};
  EXPECT_EQ(shape(along), "SumShape<1, 13, false>");
  // More buckets of a line than a block counts.
  EXPECT_EQ(shape(lines_problem(DType::f32, 16, 1 << 20, int64_t{1} << 23, 1)), "");
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

// Sums of whole numbers that the type has all of are not rounded.
TEST(IndexingCuda, CountsOfConstantsAreAddedInAnyOrder) {
  RowTexts texts;
  const auto function = [&](const CudaProblem& p) {
    return last_scatter(texts.add("scatter_elements", p, {}));
  };
  EXPECT_EQ(function(count_problem(DType::f32, 100000, 0, 1)), kAnyOrder);
  EXPECT_EQ(function(count_problem(DType::f32, 100000, -7, -160)), kAnyOrder);
  EXPECT_EQ(function(count_problem(DType::f32, 1 << 24, 0, 1)), kAnyOrder);
  EXPECT_EQ(function(count_problem(DType::f64, 100000, 1 << 30, 1 << 30)), kAnyOrder);
  CudaProblem few = count_problem(DType::f32, 100000, 0, 1);
  few.inputs[0].sizes[0] = few.outputs[0].sizes[0] = Dim(300);
  EXPECT_EQ(function(few), "count_updates");
  EXPECT_FALSE(scatter_order("scatter_elements", few));
  constexpr double kMost = 1 << 24, kInfinity = std::numeric_limits<double>::infinity(),
                   kNan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [x, update] : {std::pair{0.0, 0.5},
                                  {0.5, 1.0},
                                  {0.0, -200.0},
                                  {kMost, 1.0},
                                  {0.0, kInfinity},
                                  {kNan, 1.0},
                                  {0.0, kNan}})
    EXPECT_NE(function(count_problem(DType::f32, 100000, x, update)), kAnyOrder) << x << " " << update;
  EXPECT_NE(function(count_problem(DType::f32, (1 << 24) + 1, 0, 1)), kAnyOrder);
  EXPECT_NE(function(count_problem(DType::f16, 100, 0, 1)), kAnyOrder);
  for (const size_t input : {0, 2}) {
    CudaProblem p = count_problem(DType::f32, 100000, 0, 1);
    p.inputs[input].value.reset();
    EXPECT_NE(function(p), kAnyOrder) << input;
  }
  // Every update of no index is one of the whole of x.
  CudaProblem whole;
  whole.inputs = {{DType::f32, Dim(0), {Dim(8)}, {Dim(0)}},
                  {DType::i64, Dim(0), {Dim(1 << 24), Dim(0)}, {Dim(0), Dim(1)}},
                  {DType::f32, Dim(0), {Dim(1 << 24), Dim(8)}, {Dim(0), Dim(0)}}};
  whole.outputs = {{DType::f32, Dim(0), {Dim(8)}, {Dim(1)}}};
  whole.params = {Dim(1)};
  whole.inputs[0].value = 0;
  whole.inputs[2].value = 2;
  EXPECT_NE(last_scatter(texts.add("scatter_nd", whole, {})), kAnyOrder);
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

// One launch that looks through them takes less than a copy and another.
TEST(IndexingCuda, FewUpdatesInAnyOrderTakeOneLaunch) {
  CudaProblem p;
  p.inputs = {{DType::i64, Dim(0), {Dim(1000), Dim(768)}, {Dim(0), Dim(0)}},
              {DType::i64, Dim(0), {Dim(64), Dim(1)}, {Dim(1), Dim(1)}},
              {DType::i64, Dim(0), {Dim(64), Dim(768)}, {Dim(768), Dim(1)}}};
  p.outputs = {{DType::i64, Dim(0), {Dim(1000), Dim(768)}, {Dim(768), Dim(1)}}};
  p.params = {Dim(1)};
  EXPECT_EQ(last_scatter(find_cuda_kernel("scatter_nd")->generate(p)), "scan_updates");
  p.inputs[1].sizes[0] = p.inputs[2].sizes[0] = Dim(4096);
  EXPECT_EQ(last_scatter(find_cuda_kernel("scatter_nd")->generate(p)), kAnyOrder);
}

// What few updates reach of many rows is written twice; finding where the updates of each row begin would
// take longer.
TEST(IndexingCuda, FewUpdatesOfManyRowsFollowACopy) {
  CudaProblem p;
  p.inputs = {{DType::bf16, Dim(0), {Dim(1000000), Dim(32)}, {Dim(0), Dim(0)}},
              {DType::i64, Dim(0), {Dim(4096), Dim(1)}, {Dim(1), Dim(1)}},
              {DType::bf16, Dim(0), {Dim(4096), Dim(32)}, {Dim(32), Dim(1)}}};
  p.outputs = {{DType::bf16, Dim(0), {Dim(1000000), Dim(32)}, {Dim(32), Dim(1)}}};
  p.params = {Dim(1)};
  RowTexts texts;
  const CudaCode code = texts.add("scatter_nd", p, {});
  EXPECT_EQ(code.launches[0].function, "copy");
  EXPECT_NE(code.source.find("aicf::fill("), std::string::npos);
  EXPECT_NE(code.source.find("aicf::kInPlace"), std::string::npos);
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

TEST(IndexingCuda, FewUpdatesAreSortedByOneBlock) {
  CudaProblem p;
  p.inputs = {{DType::f32, Dim(0), {Dim(1000000), Dim(16)}, {Dim(16), Dim(1)}},
              {DType::i64, Dim(0), {Dim(4096), Dim(1)}, {Dim(1), Dim(1)}},
              {DType::f32, Dim(0), {Dim(4096), Dim(16)}, {Dim(16), Dim(1)}}};
  p.outputs = {p.inputs[0]};
  p.params = {Dim(1)};
  p.replaced = {0};
  RowTexts texts;
  EXPECT_EQ(texts.add("scatter_nd", p, {}).launches[0].function, "order_updates");
  p.inputs[1].sizes[0] = p.inputs[2].sizes[0] = Dim(4097);
  EXPECT_EQ(texts.add("scatter_nd", p, {}).launches[0].function, "count_digits_0");
}

// Each block looks through the indices, as long as that takes less time than sorting them.
TEST(IndexingCuda, FewUpdatesOfFewRowsTakeOneLaunch) {
  CudaProblem p;
  p.inputs = {{DType::f32, Dim(0), {Dim(1000), Dim(768)}, {Dim(0), Dim(0)}},
              {DType::i64, Dim(0), {Dim(64), Dim(1)}, {Dim(1), Dim(1)}},
              {DType::f32, Dim(0), {Dim(64), Dim(768)}, {Dim(768), Dim(1)}}};
  p.outputs = {{DType::f32, Dim(0), {Dim(1000), Dim(768)}, {Dim(768), Dim(1)}}};
  p.params = {Dim(1)};
  RowTexts texts;
  const CudaCode code = texts.add("scatter_nd", p, {});
  ASSERT_EQ(code.launches.size(), 1u);
  EXPECT_TRUE(code.launches[0].reports_errors);
  EXPECT_NE(code.source.find("scan_updates<1, aicf::kFromOne, 4, 128>"), std::string::npos);
  p.inputs[1].sizes[0] = p.inputs[2].sizes[0] = Dim(200000);
  EXPECT_GT(texts.add("scatter_nd", p, {}).launches.size(), 1u);
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

// Where a place has many updates, each block sorts those of its places; a member of a bundle does not.
TEST(IndexingCuda, UpdatesOfFewPlacesAreSortedByTheBlocksOfOneLaunch) {
  RowTexts texts;
  for (const DType dtype : {DType::f32, DType::f16, DType::f64, DType::u8})
    for (const int64_t reduction : {0, 1, 3})
      for (const auto& [updates, places, width] :
           {std::array<int64_t, 3>{4096, 256, 16}, {2048, 100, 3}, {4096, 4096, 1}, {8000, 256, 64}}) {
        CudaProblem p;
        p.inputs = {{dtype, Dim(0), {Dim(places), Dim(width)}, {Dim(0), Dim(0)}},
                    {DType::i64, Dim(0), {Dim(updates), Dim(1)}, {Dim(1), Dim(1)}},
                    {dtype, Dim(0), {Dim(updates), Dim(width)}, {Dim(width), Dim(1)}}};
        p.outputs = {{dtype, Dim(0), {Dim(places), Dim(width)}, {Dim(width), Dim(1)}}};
        p.params = {Dim(reduction)};
        const CudaCode code = texts.add("scatter_nd", p, {});
        ASSERT_EQ(code.launches.size(), 1u);
        EXPECT_EQ(code.launches[0].function, "sort_scanned_updates");
        EXPECT_TRUE(code.launches[0].reports_errors);
        EXPECT_FALSE(code.member);
        p.form = CodeForm::member;
        EXPECT_NE(find_cuda_kernel("scatter_nd")->generate(p).launches[0].function, "sort_scanned_updates");
      }
  // Long runs are cut into chunks that the whole device adds.
  CudaProblem p = edges_problem(DType::f32, 3000, 12, 3);
  EXPECT_EQ(find_cuda_kernel("scatter_elements")->generate(p).launches[0].function, "order_updates");
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

// Members of a bundle that look up, or add to, tables of other lengths have one text.
TEST(IndexingCuda, TablesOfManyLengthsShareTheTextOfAMember) {
  const auto member = [](const char* row, int64_t length) {
    const CudaWindow table{DType::f32, Dim(0), {Dim(length), Dim(32)}, {Dim(32), Dim(1)}};
    const CudaWindow rows{DType::f32, Dim(0), {Dim(64), Dim(32)}, {Dim(32), Dim(1)}};
    CudaProblem p;
    p.form = CodeForm::member;
    p.inputs = {table, {DType::i64, Dim(0), {Dim(64)}, {Dim(1)}}};
    p.outputs = {rows};
    p.params = {Dim(0)};
    if (std::string_view(row) == "scatter_nd") {
      p.inputs[1] = {DType::i64, Dim(0), {Dim(64), Dim(1)}, {Dim(1), Dim(1)}};
      p.inputs.push_back(rows);
      p.outputs = {table};
      p.params = {Dim(1)};
    }
    return find_cuda_kernel(row)->generate(p);
  };
  for (const char* row : {"gather", "scatter_nd"}) {
    const CudaCode one = member(row, 1000), other = member(row, 300);
    EXPECT_TRUE(one.member) << row;
    ASSERT_EQ(one.launches.size(), 1u) << row;
    EXPECT_TRUE(one.launches[0].reports_errors);
    EXPECT_EQ(one.source, other.source) << row;
    EXPECT_NE(one.launches[0].params, other.launches[0].params);
    EXPECT_EQ(one.source.find("wait_for_inputs"), std::string::npos);
  }
}

// The order is one launch, or left by the scatter before; each scatter is one more.
CudaWindow order_window(const ScatterOrder& order) { return {DType::u8, Dim(0), {order.bytes}, {Dim(1)}}; }

TEST(IndexingCuda, AScatterTakesTheOrderThatAnotherHasLeft) {
  RowTexts texts;
  for (const int64_t edges : {4000, 100000}) {
    CudaProblem p = edges_problem(DType::f32, edges, 5000, 64);
    const std::optional<ScatterOrder> order = scatter_order("scatter_elements", p);
    ASSERT_TRUE(order);
    // Whatever is under an index, and however it is combined.
    EXPECT_EQ(order, scatter_order("scatter_elements", edges_problem(DType::f16, edges, 5000, 1)));
    EXPECT_NE(order, scatter_order("scatter_elements", edges_problem(DType::f32, edges, 5001, 64)));
    CudaProblem leaves = p, takes = p;
    leaves.outputs.push_back(order_window(*order));
    takes.inputs.push_back(order_window(*order));
    EXPECT_EQ(texts.add("scatter_elements", leaves, {}).launches.back().function, "apply_updates");
    const CudaCode one = texts.add("scatter_elements", takes, {});
    // Of many updates blocks of their own fold the chunks of long runs first.
    ASSERT_EQ(one.launches.size(), edges == 4000 ? 1u : 3u);
    EXPECT_FALSE(one.launches.back().reports_errors);
    EXPECT_EQ(one.launches.back().function, "apply_updates");
    EXPECT_EQ(one.workspace_bytes == Dim(0), edges == 4000);
  }
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

// What a thread reads ahead leaves registers for three blocks of a multiprocessor: rows of a few updates wait
// for one load after another.
TEST(IndexingCuda, ManyThreadsAddUpRowsAtATime) {
  CudaProblem takes = edges_problem(DType::f32, 80000, 10000, 128);
  takes.arch = 90;
  takes.inputs.push_back(order_window(*scatter_order("scatter_elements", takes)));
  const CudaCode code = find_cuda_kernel("scatter_elements")->generate(takes);
  ASSERT_EQ(code.launches.back().function, "apply_updates");
  constexpr int64_t kRegisters = 65536;  // of a multiprocessor
  AICF_NEEDS_NVRTC();
  const std::string image = compile_cuda(code.source, "sm_90a");
  EXPECT_GT(cuda_testing::most_registers(image), 0);
  EXPECT_LE(cuda_testing::most_registers(image), kRegisters / (3 * code.launches.back().block));
  EXPECT_EQ(cuda_testing::stack_bytes(image), 0);
}

}  // namespace
}  // namespace aicf
