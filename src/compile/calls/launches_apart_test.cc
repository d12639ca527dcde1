// Large blocks of a launch that fits the device at once come to a multiprocessor each.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "codegen/cuda_build.h"
#include "compile/testing/selected_calls.h"
#include "ir/text.h"
#include "kernels/common/cuda_machine.h"

namespace aicf::testing {
namespace {

// The launch of a product [m, k] x [k, 256] in this way.
CudaLaunch product(const std::string& m, const std::string& k, const char* target, int32_t lane = 0,
                   const std::string& dtype = "f32",
                   const std::string& way = "matmul_simt/simt 128x128 stages 4") {
  SelectedCalls s =
      select_calls(parse("program {\n  entry main(%x: " + dtype + "[" + m + ", " + k + "], %w: " + dtype +
                         "[" + k + ", 256]) {\n    %y = matmul(%x, %w) : " + dtype + "[" + m +
                         ", 256]\n    return \"y\" = %y\n  }\n}\n"),
                   target, {{"matmul", way}});
  for (KernelCall& call : s.calls.calls) call.lane.number = lane;
  CudaBuilder cuda(s.target);
  const CodedGraph code = cuda.add(s.calls);
  return code.calls[0].launches[0];
}

int64_t blocks_at_once(const CudaLaunch& launch) { return shared_limit(90) / (launch.shared_bytes + 1024); }

TEST(LaunchesApart, FewLargeBlocksShareNoMultiprocessor) {
  const CudaLaunch few = product("8192", "832", "sm_90");
  EXPECT_EQ(*(few.grid[0] * few.grid[1] * few.grid[2]).constant(), 128);
  EXPECT_EQ(blocks_at_once(few), 1);
}

// More blocks than multiprocessors, a call that runs beside others, a GPU whose kernels do not
// begin early: as the kernel asks.
TEST(LaunchesApart, OthersMay) {
  EXPECT_GT(blocks_at_once(product("16384", "832", "sm_90")), 1);
  EXPECT_GT(blocks_at_once(product("8192", "832", "sm_90", 1)), 1);
  EXPECT_GT(blocks_at_once(product("8192", "832", "sm_80")), 1);
}

// What loses less by sharing than a later start costs it.
TEST(LaunchesApart, BlocksOfAShortCallMayShareOne) {
  const auto halves = [](const char* k) {
    return product("1024", k, "sm_90", 0, "f16", "matmul_tensor_core/mma 64x64 stages 4");
  };
  EXPECT_EQ(blocks_at_once(halves("8192")), 1);
  EXPECT_GT(blocks_at_once(halves("64")), 1);
}

}  // namespace
}  // namespace aicf::testing
