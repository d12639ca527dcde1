// Kernels for a named GPU fill the multiprocessors that it has, wherever they are compiled.
#include <gtest/gtest.h>

#include <string>

#include "calls/call_code.h"
#include "compile/testing/selected_calls.h"
#include "ir/text.h"

namespace aicf::testing {
namespace {

constexpr const char* kGpus[] = {"sm_80", "sm_86", "sm_89", "sm_90", "compute_80"};

CudaCode code_of_first(const std::string& body, const char* target) {
  const SelectedCalls s =
      select_calls(parse("program {\n  entry main(" + body + "\n    return \"y\" = %y\n  }\n}\n"), target);
  return call_code(s.calls.calls[0], context_of(s.calls, s.target), CodeForm::kernel);
}

// One sum over many elements: a part for each multiprocessor.
TEST(MachineSize, ALongSumHasAPartForEachMultiprocessor) {
  for (const char* target : kGpus) {
    const CudaCode code = code_of_first(
        "%x: f32[1, 8388608]) {\n    %y = reduce_sum(%x) {axes = [1], keepdims = true} : f32[1, 1]", target);
    EXPECT_EQ(code.launches[0].grid[0], Dim(Target::from_name(target).facts().multiprocessors)) << target;
  }
}

}  // namespace
}  // namespace aicf::testing
