#include "runtime/cpu/cpu_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "runtime/cpu/testing/forked.h"

namespace aicf {
namespace {

constexpr int64_t kBlock = int64_t{2} << 20;

// What the fake system was asked for.
int taken = 0, fast_pages = 0;
std::atomic<int> replaced{0};

double take(std::byte*) { return ++taken <= fast_pages ? 0 : 1; }
void replace(std::byte*) { ++replaced; }

class CpuMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override { taken = fast_pages = 0, replaced = 0; }
  static bool becomes(int count) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (replaced < count && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    return replaced == count;
  }
};

TEST_F(CpuMemoryTest, AsksForHugePagesWhileTheyComeFast) {
  fast_pages = 100;
  CpuMemory memory(8 * kBlock, {take, replace});
  memory.will_fill(0, 8 * kBlock);
  EXPECT_EQ(taken, 8);
  EXPECT_EQ(replaced, 0);
}

TEST_F(CpuMemoryTest, ReplacesSmallPagesLaterWhereHugeOnesComeSlowly) {
  fast_pages = 2;
  CpuMemory memory(8 * kBlock, {take, replace});
  memory.will_fill(0, 6 * kBlock);
  EXPECT_EQ(taken, 3);  // the third was slow
  EXPECT_TRUE(becomes(3));
  memory.will_fill(0, 8 * kBlock);  // the first six are settled
  EXPECT_EQ(taken, 3);
  EXPECT_TRUE(becomes(5));
}

TEST_F(CpuMemoryTest, LeavesBlocksThatAreFilledInPartAlone) {
  fast_pages = 100;
  CpuMemory memory(4 * kBlock + 5, {take, replace});
  memory.will_fill(100, 2 * kBlock);
  EXPECT_EQ(taken, 1);
  memory.will_fill(0, 4 * kBlock + 5);  // the first and third may hold small pages now
  EXPECT_EQ(taken, 2);
  EXPECT_TRUE(becomes(2));
}

TEST_F(CpuMemoryTest, MayEndWithSmallPagesLeft) {
  for (int i = 0; i < 20; ++i) CpuMemory(512 * kBlock, {take, replace}).will_fill(0, 512 * kBlock);
  EXPECT_LE(replaced, 20 * 511);
}

TEST_F(CpuMemoryTest, GoesOnAndEndsInAForkedProcess) {
  auto memory = std::make_unique<CpuMemory>(8 * kBlock, CpuMemory::Pages{take, replace});
  memory->will_fill(0, 4 * kBlock);
  EXPECT_TRUE(becomes(3));
  EXPECT_TRUE(testing::in_fork([&] {
    memory->will_fill(0, 8 * kBlock);
    const bool replaced_there = becomes(7);
    memory.reset();
    return replaced_there;
  }));
  EXPECT_TRUE(testing::in_fork([&] { return memory.reset(), true; }));
}

TEST(CpuMemory, KeepsContentsUnderRealPages) {
  CpuMemory memory(6 * kBlock + 3);
  std::memset(memory.data(), 7, static_cast<size_t>(memory.bytes()));
  for (int64_t first : {int64_t{0}, kBlock / 2}) memory.will_fill(first, memory.bytes() - first);
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  EXPECT_TRUE(std::all_of(memory.data(), memory.data() + memory.bytes(),
                          [](std::byte b) { return b == std::byte{7}; }));
}

TEST(CpuMemory, OfNoBytesIsNull) {
  CpuMemory memory(0);
  memory.will_fill(0, 0);
  EXPECT_EQ(memory.data(), nullptr);
}

}  // namespace
}  // namespace aicf
