// For tests of products with weights: their packed form.
#pragma once

#include "kernels/matmul/cpu/pack.h"
#include "kernels/testing/step.h"

namespace aicf::matmul_testing {

inline step_testing::TestTensor pack_y(const step_testing::TestTensor& y, IsaLevel isa) {
  step_testing::TestTensor packed(DType::u8, {packed_matmul_y_bytes(y.sizes()[0], y.sizes()[1])});
  step_testing::run_step({"pack_matmul_y_f32", {y.arg()}, {packed.arg()}, {}, {}}, isa, true);
  return packed;
}

}  // namespace aicf::matmul_testing
