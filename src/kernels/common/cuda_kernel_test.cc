// What holds for every row of the CUDA table.
#include "kernels/common/cuda_kernel.h"

#include <gtest/gtest.h>

#include <set>

namespace aicf {
namespace {

TEST(CudaKernels, names_are_unique) {
  std::set<std::string_view> names;
  for (const CudaKernel& row : cuda_kernel_table()) EXPECT_TRUE(names.insert(row.name).second) << row.name;
}

TEST(CudaKernels, headers_are_found_by_name) {
  std::set<std::string> names;
  for (const CudaHeader& header : cuda_headers()) names.insert(header.name);
  EXPECT_TRUE(names.contains("prelude.cuh"));
  EXPECT_TRUE(names.contains("tile/cuda/tile_math.cuh"));
}

}  // namespace
}  // namespace aicf
