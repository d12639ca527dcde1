// The text of the row of random bits compiles for random problems.
#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"

namespace aicf {
namespace {

using cuda_testing::compile_all;
using cuda_testing::RandomWindows;
using cuda_testing::RowTexts;

TEST(RandomCuda, Compiles) {
  RowTexts texts;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    RandomWindows random(seed);
    CudaProblem p;
    p.inputs = {{DType::i64, Dim(0), {}, {}}, {DType::i64, Dim(0), {Dim(1)}, {Dim(1)}}};
    p.outputs = {random.window(DType::i32, random.shape(static_cast<size_t>(random.below(4))))};
    p.params = {Dim(random.below(1000))};
    texts.add("random_bits", p, random.ranges());
  }
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

}  // namespace
}  // namespace aicf
