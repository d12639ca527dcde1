#include "base/file_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

namespace aicf {
namespace {

namespace fs = std::filesystem;

TEST(FileLock, IsReleasedByTheKernelWhenItsProcessIsKilled) {
  const std::string path = (fs::temp_directory_path() / ("aicf_lock_" + std::to_string(getpid()))).string();
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t other = fork();
  if (other == 0) {
    const FileLock lock(path, {7, 3}, 10);
    const char held = lock.held() ? 'y' : 'n';
    if (write(ready[1], &held, 1) == 1) pause();
    _exit(1);
  }
  char held = 0;
  ASSERT_EQ(read(ready[0], &held, 1), 1);
  EXPECT_EQ(held, 'y');
  EXPECT_FALSE(FileLock(path, {3}, 0.02).held());
  EXPECT_FALSE(FileLock(path, {4, 7}, 0.02).held());
  EXPECT_TRUE(FileLock(path, {4}, 0.02).held());
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  EXPECT_TRUE(FileLock(path, {3, 7}, 10).held());
  close(ready[0]);
  close(ready[1]);
  fs::remove(path);
}

TEST(FileLock, OneThreadOfAProcessHoldsTheFile) {
  const std::string path = (fs::temp_directory_path() / ("aicf_lock_" + std::to_string(getpid()))).string();
  constexpr int kThreads = 4, kRounds = 50;
  std::atomic<int> inside = 0, most = 0, held = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        // One file by two names.
        const fs::path at = path;
        const std::string name = t % 2 == 0 ? path : (at.parent_path() / "." / at.filename()).string();
        for (int i = 0; i < kRounds; ++i) {
          const FileLock lock(name, {i}, 60);
          held += lock.held() ? 1 : 0;
          most = std::max(most.load(), ++inside);
          std::this_thread::yield();
          --inside;
        }
      });
  }
  EXPECT_EQ(held, kThreads * kRounds);
  EXPECT_EQ(most, 1);
  // A child takes part, whatever its parent's threads held when it was forked.
  const auto parents = std::make_unique<FileLock>(path, 10);
  const pid_t child = fork();
  if (child == 0) {
    const bool same = FileLock(path, 0.02).held();
    const bool other = FileLock(path, {1}, 10).held();
    _exit(!same && other ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  fs::remove(path);
}

TEST(FileLock, WithoutAFileNothingIsHeld) { EXPECT_FALSE(FileLock("/no such folder/lock", 0.02).held()); }

}  // namespace
}  // namespace aicf
