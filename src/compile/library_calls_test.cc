// Calls of vendor libraries in a compiled program, on a GPU: what runs where the library has another version.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "compile/testing/random_arrays.h"
#include "compile/testing/two_ways.h"
#include "kernels/matmul/cuda/cublaslt_call.h"

namespace aicf::testing {
namespace {

TEST(LibraryCalls, OfAnotherVersionAreRefusedOrOwnKernelsRun) {
  const TestDevice& where = TestDevice::get();
  if (!where.cuda || !where.runs) GTEST_SKIP() << "needs a GPU (AICF_TEST_DEVICE=cuda)";
  Program program;
  Graph graph("main");
  const ValueId x = graph.add_input("x", {DType::bf16, {Dim(256), Dim(1024)}});
  const ValueId w = graph.add_input("w", {DType::bf16, {Dim(1024), Dim(512)}});
  graph.add_output(graph.add(Op::matmul, {x, w}), "y");
  program.entries.push_back(std::move(graph));
  CompileOptions own, called;
  own.target = called.target = where.target;
  called.forced = {{"*", "matmul_cublaslt/" + to_string(CublasLtCall{1, {}, -1, -1, 0, {}})}};
  const auto artifact = [&] { return compile(program, called); };
  ASSERT_NE(steps_of(artifact())[0].library.call, "");
  const auto inputs = normal_inputs(program, 1);
  try {
    TwoWays(artifact(), compile(program, own)).run(inputs);
    ADD_FAILURE() << "a call of another version ran";
  } catch (const EnvironmentError& error) {
    if (error.code == ErrorCode::kE_device_missing) GTEST_SKIP() << "needs cuBLASLt";
    EXPECT_EQ(error.code, ErrorCode::kE_library_unusable);
  }
  setenv("AICF_LIBRARY_FALLBACK", "1", 1);
  const auto [got, want] = TwoWays(artifact(), compile(program, own)).run(inputs);
  unsetenv("AICF_LIBRARY_FALLBACK");
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace aicf::testing
