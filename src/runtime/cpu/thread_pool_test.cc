#include "runtime/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "runtime/cpu/testing/forked.h"

namespace aicf {
namespace {

constexpr int64_t kTiles = 1000;
std::atomic<int> counts[kTiles];

// Every tile runs exactly once.
bool runs_all(ThreadPool& pool) {
  for (std::atomic<int>& count : counts) count = 0;
  BoundCall call;
  call.tiles = kTiles;
  call.run = [](const BoundCall&, int64_t tile, std::byte*) { ++counts[tile]; };
  const std::vector<std::byte*> scratch(static_cast<size_t>(pool.threads()), nullptr);
  const auto lock = pool.try_acquire();
  if (!lock.owns_lock()) return false;
  pool.run(call, scratch.data());
  return std::all_of(std::begin(counts), std::end(counts), [](const auto& count) { return count == 1; });
}

TEST(ThreadPool, RunsEveryTileOnce) {
  for (int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    for (int run = 0; run < 100; ++run) ASSERT_TRUE(runs_all(pool)) << threads;
  }
}

TEST(ThreadPool, RunsInAForkedProcess) {
  auto pool = std::make_unique<ThreadPool>(3);
  ASSERT_TRUE(runs_all(*pool));
  EXPECT_TRUE(testing::in_fork([&] { return runs_all(*pool) && runs_all(*pool); }));
  EXPECT_TRUE(
      testing::in_fork([&] { return testing::in_fork([&] { return runs_all(*pool); }) && runs_all(*pool); }));
  EXPECT_TRUE(runs_all(*pool));
}

TEST(ThreadPool, SaysThatTheSystemHasNoMoreThreads) {
  EXPECT_TRUE(testing::in_fork([] {
    if (geteuid() == 0 && setuid(65534) != 0) return false;  // root may exceed the limit
    const rlimit one{1, 1};
    if (setrlimit(RLIMIT_NPROC, &one) != 0) return false;
    for (const int threads : {2, 4}) {
      try {
        ThreadPool pool(threads);
        return false;
      } catch (const EnvironmentError& error) {
        if (error.code != ErrorCode::kE_io_failed || error.actual.empty()) return false;
      }
    }
    ThreadPool alone(1);
    return runs_all(alone);
  }));
}

TEST(ThreadPool, EndsInAForkedProcess) {
  auto pool = std::make_unique<ThreadPool>(2);
  EXPECT_TRUE(testing::in_fork([&] {
    pool.reset();
    return runs_all(*ThreadPool::shared(2));
  }));
  EXPECT_TRUE(runs_all(*pool));
}

}  // namespace
}  // namespace aicf
