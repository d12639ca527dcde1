#include "base/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace aicf {
namespace {

namespace fs = std::filesystem;

class AtomicFileTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  std::set<std::string> names() const {
    std::set<std::string> names;
    for (const auto& file : fs::directory_iterator(folder_)) names.insert(file.path().filename().string());
    return names;
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  void make(const std::string& name) const { std::ofstream(at(name)) << "half of it"; }

  const fs::path folder_ = fs::temp_directory_path() / ("aicf_atomic_" + std::to_string(getpid()));
};

TEST_F(AtomicFileTest, TheNextWriterRemovesWhatAKilledOneLeft) {
  make(".aicf.tmp.123.0");
  make(".aicf.tmp.124.7");
  make("aicf.tmp.1.0");
  make(".aicf.temp");
  write_file_atomically(at("out"), "whole");
  EXPECT_EQ(names(), (std::set<std::string>{"out", "aicf.tmp.1.0", ".aicf.temp"}));
}

TEST_F(AtomicFileTest, AWriterThatLivesKeepsItsFile) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t writer = fork();
  if (writer == 0) {
    const int fd = open(at(".aicf.tmp.9.0").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    const bool locked = flock(fd, LOCK_EX) == 0;
    if (write(ready[1], locked ? "y" : "n", 1) == 1) pause();
    _exit(1);
  }
  char locked = 0;
  ASSERT_EQ(read(ready[0], &locked, 1), 1);
  EXPECT_EQ(locked, 'y');
  write_file_atomically(at("out"), "whole");
  EXPECT_EQ(names(), (std::set<std::string>{"out", ".aicf.tmp.9.0"}));
  kill(writer, SIGKILL);
  waitpid(writer, nullptr, 0);
  write_file_atomically(at("out"), "whole again");
  EXPECT_EQ(names(), (std::set<std::string>{"out"}));
  close(ready[0]);
  close(ready[1]);
}

TEST_F(AtomicFileTest, NothingElseOfThisNameIsTouched) {
  ASSERT_EQ(mkfifo(at(".aicf.tmp.1.0").c_str(), 0666), 0);
  fs::create_directory(at(".aicf.tmp.1.1"));
  make("target");
  fs::create_symlink("target", at(".aicf.tmp.1.2"));
  write_file_atomically(at("out"), "whole");
  EXPECT_EQ(names(),
            (std::set<std::string>{"out", "target", ".aicf.tmp.1.0", ".aicf.tmp.1.1", ".aicf.tmp.1.2"}));
}

// Of writers that are killed at any moment the target is the old or the new one, and one writer later it is
// alone.
TEST_F(AtomicFileTest, KilledWritersLeaveTheTargetWhole) {
  const std::string old(1 << 16, 'a'), fresh(1 << 16, 'b');
  write_file_atomically(at("out"), old);
  for (int i = 0; i < 40; ++i) {
    const pid_t writer = fork();
    if (writer == 0) {
      for (;;) write_file_atomically(at("out"), fresh);
    }
    usleep(200 * (i % 10));
    kill(writer, SIGKILL);
    waitpid(writer, nullptr, 0);
    std::ifstream file(at("out"));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_TRUE(text == old || text == fresh) << i;
    write_file_atomically(at("out"), old);
    EXPECT_EQ(names(), (std::set<std::string>{"out"})) << i;
  }
}

}  // namespace
}  // namespace aicf
