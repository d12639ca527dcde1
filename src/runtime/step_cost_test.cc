// What a step moves at least.
#include "runtime/step_cost.h"

#include <gtest/gtest.h>

namespace aicf {
namespace {

TensorRef window(int32_t buffer, int64_t offset) {
  TensorRef ref;
  ref.buffer = buffer;
  ref.dtype = DType::f32;
  ref.offset = Dim(offset);
  ref.sizes = {Dim(36), Dim(36)};
  ref.strides = {Dim(37), Dim(1)};
  return ref;
}

double bytes_of(const std::vector<TensorRef>& inputs) {
  Step step;
  step.kernel = "tile";
  step.inputs = inputs;
  step.outputs = {window(9, 0)};
  const StepCost cost = step_cost(step, {});
  EXPECT_EQ(cost.bytes, cost.sure_bytes);
  return cost.bytes / 4 - 36 * 36;
}

// A pool's gradient reads its input beside itself moved by a row, a column and both.
TEST(StepCost, WindowsOfOneBufferCountWhatTheyHaveTogether) {
  EXPECT_EQ(bytes_of({window(0, 0)}), 36 * 36);
  EXPECT_EQ(bytes_of({window(0, 0), window(0, 0)}), 36 * 36);
  EXPECT_EQ(bytes_of({window(0, 0), window(0, 1), window(0, 37), window(0, 38)}), 37 * 37);
  EXPECT_EQ(bytes_of({window(0, 0), window(1, 1), window(0, 5000)}), 3 * 36 * 36);
  TensorRef other = window(0, 1);
  other.strides = {Dim(74), Dim(1)};
  EXPECT_EQ(bytes_of({window(0, 0), other}), 2 * 36 * 36);
}

}  // namespace
}  // namespace aicf
