#include "plan/arena.h"

#include <gtest/gtest.h>

#include <random>

namespace aicf {
namespace {

Buffer temp(int64_t bytes, int32_t first, int32_t last) {
  Buffer buffer;
  buffer.max_bytes = bytes;
  buffer.first_step = first;
  buffer.last_step = last;
  return buffer;
}

bool share_bytes(const Buffer& a, const Buffer& b) {
  return a.offset < b.offset + b.max_bytes && b.offset < a.offset + a.max_bytes;
}
bool share_time(const Buffer& a, const Buffer& b) {
  return a.first_step <= b.last_step && b.first_step <= a.last_step;
}

TEST(Arena, LiveBuffersNeverOverlap) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 engine(seed);
    std::vector<Buffer> buffers;
    const int count = 1 + static_cast<int>(engine() % 60);
    for (int i = 0; i < count; ++i) {
      const auto first = static_cast<int32_t>(engine() % 40);
      buffers.push_back(temp(engine() % 5000, first, first + static_cast<int32_t>(engine() % 10)));
    }
    const int64_t arena = assign_arena_offsets(buffers);
    for (size_t i = 0; i < buffers.size(); ++i) {
      EXPECT_EQ(buffers[i].offset % kBufferAlignment, 0);
      EXPECT_TRUE(buffers[i].max_bytes < kLargeBuffer || buffers[i].offset % kLargeBufferAlignment == 0);
      EXPECT_LE(buffers[i].offset + buffers[i].max_bytes, arena);
      for (size_t j = 0; j < i; ++j)
        EXPECT_FALSE(share_time(buffers[i], buffers[j]) && share_bytes(buffers[i], buffers[j]))
            << "seed " << seed << ", buffers " << j << " and " << i;
    }
  }
}

TEST(Arena, ReusesMemoryOfTheDead) {
  std::vector<Buffer> chain;
  for (int32_t i = 0; i < 10; ++i) chain.push_back(temp(1024, i, i + 1));
  EXPECT_EQ(assign_arena_offsets(chain), 2048);
}

TEST(Arena, LeavesOtherBuffersAlone) {
  std::vector<Buffer> buffers{temp(64, 0, 1)};
  buffers[0].kind = BufferKind::kInput;
  EXPECT_EQ(assign_arena_offsets(buffers), 0);
}

}  // namespace
}  // namespace aicf
