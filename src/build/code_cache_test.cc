#include "build/code_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "build/testing/needs_nvrtc.h"

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

}  // namespace
}  // namespace aicf
