// The text of the pool rows compiles for random problems.
#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"

namespace aicf {
namespace {

using cuda_testing::compile_all;
using cuda_testing::RandomWindows;
using cuda_testing::RowTexts;

TEST(PoolCuda, Compiles) {
  RowTexts texts;
  for (DType dtype : cuda_testing::all_dtypes()) {
    if (dtype == DType::boolean) continue;
    for (size_t spatial = 1; spatial <= 3; ++spatial) {
      RandomWindows random(spatial * 100 + static_cast<uint64_t>(dtype));
      CudaProblem p;
      const Shape x = random.shape(spatial + 2, 8, 24);
      Shape out(x.begin(), x.begin() + 2);
      p.params = {Dim(static_cast<int64_t>(spatial)), Dim(0), Dim(random.below(2))};
      const int64_t lists[] = {3, 2, 1, 1, 1};  // kernel, strides, low, high, dilations
      for (int64_t number : lists) p.params.insert(p.params.end(), spatial, Dim(number));
      for (size_t i = 0; i < spatial; ++i) out.push_back(floordiv(x[2 + i] - Dim(1), Dim(2)) + Dim(1));
      p.inputs = {random.window(dtype, x)};
      p.outputs = {random.window(dtype, out)};
      if (spatial == 2) {  // channels last
        for (CudaWindow* w : {&p.inputs[0], &p.outputs[0]}) {
          w->sizes[1] = Dim(32);
          w->strides = {w->sizes[3] * w->sizes[2] * Dim(32), Dim(1), w->sizes[3] * Dim(32), Dim(32)};
        }
      }
      texts.add("max_pool", p, random.ranges());
      if (is_float(dtype)) texts.add("avg_pool", p, random.ranges());
      p.outputs[0].dtype = DType::i64;
      texts.add("max_pool_indices", p, random.ranges());
    }
  }
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

// Positions share the finding of their place, and the loads of all are under way at once.
TEST(PoolCuda, AThreadTakesNeighboursOfALargeResult) {
  RowTexts texts;
  const auto across = [&](const std::string& row, DType dtype, int64_t planes, int64_t side,
                          int64_t offset = 0) {
    CudaProblem p;
    p.params = {Dim(2), Dim(0), Dim(0)};
    for (const int64_t number : {3, 2, 1, 1, 1}) p.params.insert(p.params.end(), 2, Dim(number));
    const Dim out((side - 1) / 2 + 1), plane = out * out;
    p.inputs = {{dtype,
                 Dim(0),
                 {Dim(planes), Dim(32), Dim(side), Dim(side)},
                 {Dim(32 * side * side), Dim(side * side), Dim(side), Dim(1)}}};
    p.outputs = {
        {dtype, Dim(offset), {Dim(planes), Dim(32), out, out}, {plane * Dim(32), plane, out, Dim(1)}}};
    const CudaCode code = texts.add(row, p, {});
    const std::string name = "aicf::" + row + "<1, ";
    EXPECT_NE(code.source.find(", 3, 3> p = "), std::string::npos) << code.source;
    const int64_t found = std::stoll(code.source.substr(code.source.find(name) + name.size()));
    const int64_t threads = planes * 32 * *plane.constant() / found;
    EXPECT_EQ(code.launches[0].grid[0], Dim((threads + 255) / 256));
    return found;
  };
  for (const std::string row : {"max_pool", "avg_pool"}) {
    EXPECT_EQ(across(row, DType::f16, 256, 56), 4);
    EXPECT_EQ(across(row, DType::f32, 256, 56), 4);
    EXPECT_EQ(across(row, DType::f64, 256, 56), 2);
    EXPECT_EQ(across(row, DType::f16, 8, 56), 1);  // the threads come first
    EXPECT_EQ(across(row, DType::f16, 256, 59), 2);
    EXPECT_EQ(across(row, DType::f16, 256, 57), 1);  // 29 in a row
    EXPECT_EQ(across(row, DType::f16, 256, 56, 1), 1);
  }
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

}  // namespace
}  // namespace aicf
