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

}  // namespace
}  // namespace aicf
