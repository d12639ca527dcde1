#include "codegen/code_cache.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "base/error.h"
#include "codegen/testing/needs_nvrtc.h"

namespace aicf {
namespace {

const std::string kKernel = "extern \"C\" __global__ void k(float* x) { x[threadIdx.x] = 1; }\n";

namespace fs = std::filesystem;

// AICF_CACHE_DIR is an empty folder of the test's.
class CodeCache : public ::testing::Test {
 protected:
  void SetUp() override {
    AICF_NEEDS_NVRTC();
    folder_ = fs::temp_directory_path() / ("aicf_cache_test_" + std::to_string(getpid()));
    setenv("AICF_CACHE_DIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("AICF_CACHE_DIR");
    unsetenv("AICF_JIT");
    fs::remove_all(folder_);
  }
  std::vector<fs::path> entries() const {
    std::vector<fs::path> files;
    for (const auto& file : fs::directory_iterator(folder_ / "cuda" / nvrtc_version()))
      if (file.path().filename() != "lock") files.push_back(file.path());
    return files;
  }
  fs::path folder_;
};

TEST_F(CodeCache, keeps_sound_entries_and_replaces_damaged_ones) {
  const std::vector<std::string> first = compile_cached({{kKernel, "sm_80"}});
  const std::vector<fs::path> files = entries();
  ASSERT_EQ(files.size(), 1u);
  std::vector<double> milliseconds;
  const std::vector<std::string> second =
      compile_cached({{kKernel + "// other\n", "sm_80"}, {kKernel, "sm_80"}}, &milliseconds);
  EXPECT_EQ(second[1], first[0]);
  ASSERT_EQ(milliseconds.size(), 2u);
  EXPECT_GT(milliseconds[0], 0);
  EXPECT_EQ(milliseconds[1], 0);
  fs::resize_file(files[0], fs::file_size(files[0]) - 1);
  EXPECT_EQ(compile_cached({{kKernel, "sm_80"}}), first);
}

TEST_F(CodeCache, without_a_compiler_a_filled_one_serves_wherever_it_lies) {
  const std::vector<CudaUnit> units = {{kKernel, "sm_80"}, {kKernel, "compute_80"}};
  setenv("AICF_JIT", "0", 1);
  try {
    compile_cached(units);
    ADD_FAILURE() << "it was compiled";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code, ErrorCode::kU_unsupported_option);
    EXPECT_EQ(error.actual, "2 of them missing");
  }
  unsetenv("AICF_JIT");
  const std::vector<std::string> images = compile_cached(units);
  // Moved, and beside what an older compiler left.
  const fs::path moved = folder_.string() + "_moved";
  fs::rename(folder_, moved);
  fs::create_directories(moved / "cuda" / "9.2");
  folder_ = moved;
  setenv("AICF_CACHE_DIR", folder_.c_str(), 1);
  setenv("AICF_JIT", "0", 1);
  EXPECT_EQ(compile_cached(units), images);
  // What is damaged is not run.
  fs::resize_file(entries()[0], 40);
  EXPECT_THROW(compile_cached(units), UserError);
}

TEST_F(CodeCache, one_that_cannot_be_written_costs_time_only) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "cuda") << "in the way of the folder";
  EXPECT_FALSE(compile_cached({{kKernel, "sm_80"}})[0].empty());
}

TEST_F(CodeCache, what_is_no_folder_is_named) {
  std::ofstream(folder_) << "a file";
  try {
    compile_cached({{kKernel, "sm_80"}});
    ADD_FAILURE() << "it was compiled";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code, ErrorCode::kU_bad_option);
    EXPECT_EQ(error.value, folder_.string());
  }
}

bool has_open(const fs::path& file) {
  std::error_code error;
  for (const auto& open : fs::directory_iterator("/proc/self/fd"))
    if (fs::read_symlink(open.path(), error) == file) return true;
  return false;
}

std::string error_of(const std::string& source, const WhileForked& here = {}) {
  try {
    compile_cached({{source, "sm_80"}}, nullptr, here);
    return "none";
  } catch (const Error& error) {
    return error.text();
  }
}

std::atomic<int> forks = 0;

// The first process does not come to its end before a thread of this one waits for its lock.
TEST_F(CodeCache, who_waits_gets_the_error_of_the_one_that_compiles) {
  ASSERT_EQ(pthread_atfork([] { ++forks; }, nullptr, nullptr), 0);
  const std::string source = "extern \"C\" __global__ void k() { no_such_function(); }\n";
  int begun[2], waiting[2];
  ASSERT_EQ(pipe(begun), 0);
  ASSERT_EQ(pipe(waiting), 0);
  const pid_t first = fork();
  if (first == 0) {
    char byte = 'x';
    const std::string error =
        error_of(source, {[&] {
                   if (write(begun[1], &byte, 1) != 1 || read(waiting[0], &byte, 1) != 1) _exit(1);
                 }});
    _exit(error.find("no_such_function") == std::string::npos ? 2 : 0);
  }
  char byte = 'x';
  ASSERT_EQ(read(begun[0], &byte, 1), 1);
  forks = 0;
  std::string told;
  std::thread other([&] { told = error_of(source); });
  const fs::path lock = folder_ / "cuda" / nvrtc_version() / "lock";
  while (!has_open(lock)) usleep(1000);
  EXPECT_EQ(write(waiting[1], &byte, 1), 1);
  other.join();
  int status = -1;
  waitpid(first, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(forks, 0) << "it compiled by itself";
  EXPECT_TRUE(told.starts_with("error[AICF-I")) << told;
  EXPECT_NE(told.find("no_such_function"), std::string::npos);
  // Whoever comes later, or wants something else, compiles.
  EXPECT_EQ(error_of(source), told);
  EXPECT_EQ(forks, 1);
  EXPECT_EQ(error_of(kKernel), "none");
  EXPECT_EQ(forks, 2);
  for (const int end : {begun[0], begun[1], waiting[0], waiting[1]}) close(end);
}

}  // namespace
}  // namespace aicf
