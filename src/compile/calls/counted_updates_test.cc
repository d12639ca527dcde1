// A scatter knows what the constants are that it counts.
#include <gtest/gtest.h>

#include <string>

#include "calls/call_code.h"
#include "compile/testing/selected_calls.h"
#include "ir/text.h"

namespace aicf::testing {
namespace {

std::string last_function(const std::string& update) {
  const SelectedCalls s = select_calls(
      parse("program {\n  entry main(%i: i64[400000]) {\n    %n = constant f32[] = [0]\n"
            "    %z = broadcast_to(%n) {shape = [50000]} : f32[50000]\n    %o = constant f32[] = [" +
            update +
            "]\n    %u = broadcast_to(%o) {shape = [400000]} : f32[400000]\n"
            "    %y = scatter_elements(%z, %i, %u) {axis = 0, reduction = \"add\"} : f32[50000]\n"
            "    return \"y\" = %y\n  }\n}\n"),
      "sm_90");
  return call_code(s.calls.calls.back(), context_of(s.calls, s.target), CodeForm::kernel)
      .launches.back()
      .function;
}

TEST(CountedUpdates, OnesAreAddedInAnyOrder) { EXPECT_EQ(last_function("1"), "combine_in_any_order"); }

TEST(CountedUpdates, SumsThatAreRoundedAreSorted) { EXPECT_EQ(last_function("0.1"), "apply_updates"); }

}  // namespace
}  // namespace aicf::testing
