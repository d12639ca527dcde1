#include "base/file_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

namespace aicf {
namespace {

TEST(FileLock, IsReleasedByTheKernelWhenItsProcessIsKilled) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("aicf_lock_" + std::to_string(getpid()))).string();
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
  std::filesystem::remove(path);
}

TEST(FileLock, WithoutAFileNothingIsHeld) { EXPECT_FALSE(FileLock("/no such folder/lock", 0.02).held()); }

}  // namespace
}  // namespace aicf
