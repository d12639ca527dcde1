// What inspect prints of a plan.
#include <gtest/gtest.h>

#include <tuple>

#include "plan/plan.h"

namespace aicf {
namespace {

TEST(PlanText, BuffersSayWhereTheyLie) {
  Buffer buffer;
  buffer.bytes = Dim(64);
  buffer.max_bytes = 64;
  buffer.offset = 4096;
  buffer.first_step = 3;
  buffer.last_step = 5;
  for (const auto& [kind, has_offset, has_steps] :
       std::initializer_list<std::tuple<BufferKind, bool, bool>>{{BufferKind::kArena, true, true},
                                                                 {BufferKind::kPacked, true, false},
                                                                 {BufferKind::kInput, false, false}}) {
    buffer.kind = kind;
    Plan plan;
    plan.entries.emplace_back().buffers = {buffer};
    const std::string text = to_string(plan);
    EXPECT_EQ(text.find("at 4096") != std::string::npos, has_offset) << text;
    EXPECT_EQ(text.find("steps 3..5") != std::string::npos, has_steps) << text;
  }
}

}  // namespace
}  // namespace aicf
