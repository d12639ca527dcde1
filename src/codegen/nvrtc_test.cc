#include "codegen/nvrtc.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <new>

#include "base/error.h"
#include "codegen/testing/compile_cuda.h"
#include "codegen/testing/needs_nvrtc.h"

namespace aicf {
namespace {

const std::string kEmptyKernel =
    "#include \"prelude.cuh\"\n"
    "extern \"C\" __global__ void k(const aicf::f16* x, float* y) {\n"
    "  aicf::wait_for_inputs();\n"
    "  y[threadIdx.x] = aicf::to_float(x[threadIdx.x]);\n"
    "}\n";

TEST(Nvrtc, compiles_for_every_architecture) {
  AICF_NEEDS_NVRTC();
  for (const char* target : {"sm_80", "sm_86", "sm_89", "sm_90a", "compute_80"})
    EXPECT_GT(compile_cuda(kEmptyKernel, target).size(), 100u) << target;
}

TEST(Nvrtc, names_the_line_that_does_not_compile) {
  AICF_NEEDS_NVRTC();
  try {
    compile_cuda(kEmptyKernel + "int broken(", "sm_80");
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_NE(error.text().find("kernel.cu"), std::string::npos) << error.text();
  }
}

// Of every stage of the compiler: types, assertions, assembly, what an architecture has and how much of it.
TEST(Nvrtc, a_check_refuses_what_does_not_compile) {
  AICF_NEEDS_NVRTC();
  const auto kernel = [](const std::string& body) {
    return "extern \"C\" __global__ void k(float* y) {\n" + body + "\n}\n";
  };
  EXPECT_NO_THROW(check_cuda({kEmptyKernel, kernel("y[0] = 1;")}, "sm_80"));
  for (const char* body :
       {"y[0] = nowhere;", "static_assert(sizeof(int) == 8, \"\");", "asm volatile(\"mma.sync.nowhere;\");",
        "asm volatile(\"mov.b64 %0, 1;\" : \"=f\"(y[0]));", "asm volatile(\"wgmma.fence.sync.aligned;\");",
        "__shared__ float a[100000]; a[threadIdx.x] = y[0]; __syncthreads(); y[1] = a[threadIdx.x ^ 1];"})
    EXPECT_THROW(check_cuda({kEmptyKernel, kernel(body)}, "sm_80"), InternalError) << body;
}

// Under a limit it may fail anywhere, and its log may name nothing.
TEST(Nvrtc, memory_that_runs_out_is_no_fault_of_the_text) {
  AICF_NEEDS_NVRTC();
  compile_cuda(kEmptyKernel, "sm_80");  // the library is loaded before the limits
  for (rlim_t more = 0; more < 32 << 20; more += 1 << 20) {
    const pid_t child = fork();
    if (child == 0) {
      int64_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      const rlim_t limit = static_cast<rlim_t>(pages * getpagesize()) + more;
      const rlimit limits = {limit, limit};
      setrlimit(RLIMIT_AS, &limits);
      try {
        compile_cuda(kEmptyKernel, "sm_80");
      } catch (const EnvironmentError&) {
      } catch (const std::bad_alloc&) {
      } catch (const std::exception& error) {
        std::fputs(error.what(), stderr);
        _exit(1);
      }
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "under a limit of " << more << " bytes more";
  }
}

TEST(Nvrtc, an_error_in_a_process_of_its_own_arrives) {
  AICF_NEEDS_NVRTC();
  EXPECT_THROW(
      compile_cuda(std::vector<std::string>{kEmptyKernel, kEmptyKernel + "int broken(", kEmptyKernel},
                   "sm_80"),
      InternalError);
}

TEST(Nvrtc, compiles_in_parallel_in_order) {
  AICF_NEEDS_NVRTC();
  std::vector<CudaUnit> units;
  for (int i = 0; i < 4; ++i)
    units.push_back(
        {kEmptyKernel + "__device__ int number" + std::to_string(i) + ";\n", i < 2 ? "sm_80" : "compute_80"});
  std::vector<double> milliseconds;
  const std::vector<std::string> images = compile_cuda(units, &milliseconds);
  ASSERT_EQ(milliseconds.size(), units.size());
  for (size_t i = 0; i < units.size(); ++i) {
    EXPECT_EQ(images[i], compile_cuda(units[i].source, units[i].target));
    EXPECT_GT(milliseconds[i], 0);
  }
}

// Such units are compiled by threads of NVRTC's own.
TEST(Nvrtc, units_of_several_kernels_have_the_same_bytes_alone_and_beside_others) {
  AICF_NEEDS_NVRTC();
  std::string several = kEmptyKernel;
  for (const char* name : {"a", "b", "c"})
    several += "extern \"C\" __global__ void " + std::string(name) + "(float* y) { y[0] += 1; }\n";
  for (const char* target : {"sm_80", "sm_90a", "compute_80"}) {
    const std::string alone = compile_cuda(several, target);
    const std::vector<std::string> beside = compile_cuda({several, kEmptyKernel, several}, target);
    EXPECT_EQ(beside[0], alone) << target;
    EXPECT_EQ(beside[2], alone) << target;
    EXPECT_EQ(compile_cuda(several, target), alone) << target;
  }
}

}  // namespace
}  // namespace aicf
