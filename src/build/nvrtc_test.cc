#include "build/nvrtc.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace aicf {
namespace {

const std::string kKernel =
    "#include \"prelude.cuh\"\n"
    "extern \"C\" __global__ void k(const aicf::f16* x, float* y) {\n"
    "  aicf::wait_for_inputs();\n"
    "  y[threadIdx.x] = aicf::to_float(x[threadIdx.x]);\n"
    "}\n";

TEST(Nvrtc, compiles_for_every_architecture) {
  for (const char* target : {"sm_80", "sm_86", "sm_89", "sm_90a", "compute_80"})
    EXPECT_GT(compile_cuda(kKernel, target).bytes.size(), 100u) << target;
}

TEST(Nvrtc, names_the_line_that_does_not_compile) {
  try {
    compile_cuda(kKernel + "int broken(", "sm_80");
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_NE(error.text().find("kernel.cu"), std::string::npos) << error.text();
  }
}

TEST(Nvrtc, compiles_in_parallel_in_order) {
  const auto images = compile_cuda(std::vector<std::string>(4, kKernel), "sm_80");
  for (const CudaModuleImage& image : images) EXPECT_EQ(image.bytes, images[0].bytes);
}

}  // namespace
}  // namespace aicf
