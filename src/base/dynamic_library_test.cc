#include "base/dynamic_library.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace aicf {
namespace {

namespace fs = std::filesystem;

class DynamicLibraryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    setenv("AICF_CUDA_PATH", folder_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("AICF_CUDA_PATH");
    fs::remove_all(folder_);
  }
  EnvironmentError error_of(const std::string& name) const {
    try {
      DynamicLibrary::open({name}, "install it");
    } catch (const EnvironmentError& error) {
      return error;
    }
    return {ErrorCode::kE_io_failed, "it opened"};
  }
  const fs::path folder_ = fs::temp_directory_path() / ("aicf_library_" + std::to_string(getpid()));
};

TEST_F(DynamicLibraryTest, OneThatIsNowhereIsMissing) {
  const EnvironmentError error = error_of("libaicf_nowhere.so.1");
  EXPECT_EQ(error.code, ErrorCode::kE_device_missing);
  EXPECT_EQ(error.remedy, "install it");
  EXPECT_NE(error.actual.find(folder_.string()), std::string::npos);
}

TEST_F(DynamicLibraryTest, OneThatIsThereAndDoesNotLoadSaysSoInTheLoadersWords) {
  std::string other_machine(
      "\x7f"
      "ELF\x01\x01\x01",
      7);  // of 32 bits
  other_machine.resize(4096, '\0');
  for (const std::string& bytes :
       {std::string("#!/bin/sh\n") + std::string(100, ' '), std::string(), other_machine}) {
    std::ofstream(folder_ / "libaicf_broken.so.1", std::ios::trunc) << bytes;
    const EnvironmentError error = error_of("libaicf_broken.so.1");
    EXPECT_EQ(error.code, ErrorCode::kE_library_unusable) << error.text();
    EXPECT_EQ(error.value, (folder_ / "libaicf_broken.so.1").string());
    EXPECT_NE(error.actual, "");
    EXPECT_NE(error.remedy.find("install"), std::string::npos) << error.remedy;
  }
}

}  // namespace
}  // namespace aicf
