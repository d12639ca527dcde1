#include "aicf/aicf_c.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string_view>
#include <thread>

#include "test_models.h"

namespace {

// The last error's code after a call that failed with a status.
std::string failure(aicf_status status, aicf_status expected = AICF_USER_ERROR) {
  EXPECT_EQ(status, expected) << aicf_last_error();
  EXPECT_NE(std::string(aicf_last_error()).find(aicf_last_error_code()), std::string::npos);
  return aicf_last_error_code();
}

class CApi : public ::testing::Test {
 protected:
  static std::string path() {
    static const std::string file = aicf_test::save(aicf_test::mlp(), "c");
    return file;
  }
  void SetUp() override { ASSERT_EQ(aicf_load(path().c_str(), 2, &exe_), AICF_OK) << aicf_last_error(); }
  void TearDown() override { EXPECT_EQ(aicf_free(exe_), AICF_OK); }

  aicf_status run(int64_t rows, int32_t dtype, int32_t inputs = 1) {
    const int64_t x_sizes[] = {rows, 16}, y_sizes[] = {rows, 8};
    const aicf_tensor x{x_, dtype, 2, x_sizes, nullptr}, y{y_, AICF_DTYPE_f32, 2, y_sizes, nullptr};
    return aicf_run(exe_, 0, &x, inputs, &y, 1);
  }

  aicf_executable* exe_ = nullptr;
  float x_[64 * 16] = {}, y_[64 * 8] = {};
};

TEST_F(CApi, StatesItsVersion) {
  EXPECT_EQ(aicf_abi_version(), AICF_ABI_VERSION);
  EXPECT_STREQ(aicf_version(), aicf::version());
}

TEST_F(CApi, DescribesInputsOutputsAndMetadata) {
  int32_t count = -1;
  ASSERT_EQ(aicf_entry_count(exe_, &count), AICF_OK);
  EXPECT_EQ(count, 1);
  const char* text = nullptr;
  ASSERT_EQ(aicf_entry_name(exe_, 0, &text), AICF_OK);
  EXPECT_STREQ(text, "main");
  ASSERT_EQ(aicf_input_count(exe_, 0, &count), AICF_OK);
  ASSERT_EQ(count, 1);
  aicf_tensor_info info;
  ASSERT_EQ(aicf_input_info(exe_, 0, 0, &info), AICF_OK);
  EXPECT_STREQ(info.name, "x");
  EXPECT_EQ(info.dtype, AICF_DTYPE_f32);
  ASSERT_EQ(info.rank, 2);
  EXPECT_EQ(info.min_sizes[0], 1);
  EXPECT_EQ(info.max_sizes[0], 64);
  EXPECT_STREQ(info.size_names[0], "batch");
  EXPECT_STREQ(info.size_names[1], "16");
  ASSERT_EQ(aicf_output_count(exe_, 0, &count), AICF_OK);
  ASSERT_EQ(aicf_output_info(exe_, 0, 0, &info), AICF_OK);
  EXPECT_STREQ(info.name, "y");
  const int64_t x_sizes[] = {5, 16};
  const aicf_tensor x{nullptr, AICF_DTYPE_f32, 2, x_sizes, nullptr};
  int64_t sizes[2];
  ASSERT_EQ(aicf_output_sizes(exe_, 0, &x, 1, 0, sizes), AICF_OK) << aicf_last_error();
  EXPECT_EQ(sizes[0], 5);
  EXPECT_EQ(sizes[1], 8);
  size_t bytes = 0;
  ASSERT_EQ(aicf_metadata(exe_, "vocabulary", &text, &bytes), AICF_OK);
  EXPECT_EQ(std::string(text, bytes), "[PAD]\nhello\n");
  ASSERT_EQ(aicf_metadata(exe_, "nothing", &text, nullptr), AICF_OK);
  EXPECT_EQ(text, nullptr);
}

TEST_F(CApi, GivesTheBitsOfTheCppApi) {
  const aicf::Tensor x = aicf_test::pattern({64, 16}, 5);
  std::memcpy(x_, x.data(), sizeof(x_));
  ASSERT_EQ(run(64, AICF_DTYPE_f32), AICF_OK) << aicf_last_error();
  aicf::Executable exe = aicf::Executable::load(path());
  const aicf::Tensor y = exe.run({{"x", x}}).at("y");
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(y_), sizeof(y_)),
            std::string_view(static_cast<const char*>(y.data()), sizeof(y_)));
}

TEST_F(CApi, ReportsErrors) {
  EXPECT_EQ(failure(run(2, AICF_DTYPE_f64)), "AICF-U0402");
  EXPECT_EQ(failure(run(65, AICF_DTYPE_f32)), "AICF-U0201");
  EXPECT_EQ(failure(run(2, 77)), "AICF-U0104");
  EXPECT_EQ(failure(run(2, AICF_DTYPE_f32, 0)), "AICF-U0400");
  EXPECT_EQ(failure(run(2, AICF_DTYPE_f32, -1)), "AICF-U0004");
  EXPECT_EQ(run(2, AICF_DTYPE_f32), AICF_OK);
  aicf_executable* other = exe_;
  EXPECT_EQ(failure(aicf_load("no/such/file.aicf", 0, &other)), "AICF-U0003");
  EXPECT_EQ(other, nullptr);
  const std::string truncated = ::testing::TempDir() + "/api_c_truncated.aicf";
  std::ofstream(truncated, std::ios::binary) << "half";
  EXPECT_EQ(failure(aicf_load(truncated.c_str(), 0, &other)), "AICF-U0500");
  aicf_tensor_info info;
  EXPECT_EQ(failure(aicf_input_info(exe_, 0, 1, &info)), "AICF-U0004");
  EXPECT_EQ(failure(aicf_input_info(exe_, 7, 0, &info)), "AICF-U0004");
  EXPECT_EQ(failure(aicf_state_get(exe_, "nobody", x_, 4)), "AICF-U0406");
}

TEST_F(CApi, LastErrorBelongsToTheThread) {
  failure(run(65, AICF_DTYPE_f32));
  std::string seen = "?";
  std::thread([&] { seen = aicf_last_error(); }).join();
  EXPECT_EQ(seen, "");
}

TEST_F(CApi, NullPointersAreErrors) {
  const char* text;
  int32_t count;
  aicf_executable* other;
  aicf_tensor_info info;
  int64_t sizes[2];
  const aicf_tensor no_sizes{x_, AICF_DTYPE_f32, 2, nullptr, nullptr};
  const int64_t x_sizes[] = {2, 16};
  const aicf_tensor no_data{nullptr, AICF_DTYPE_f32, 2, x_sizes, nullptr};
  for (const aicf_status status : {
           aicf_load(nullptr, 0, &other),
           aicf_load("x", 0, nullptr),
           aicf_clone(nullptr, &other),
           aicf_clone(exe_, nullptr),
           aicf_entry_count(nullptr, &count),
           aicf_entry_count(exe_, nullptr),
           aicf_entry_name(nullptr, 0, &text),
           aicf_entry_name(exe_, 0, nullptr),
           aicf_input_count(nullptr, 0, &count),
           aicf_input_count(exe_, 0, nullptr),
           aicf_output_count(nullptr, 0, &count),
           aicf_input_info(nullptr, 0, 0, &info),
           aicf_input_info(exe_, 0, 0, nullptr),
           aicf_output_info(exe_, 0, 0, nullptr),
           aicf_output_sizes(exe_, 0, nullptr, 1, 0, sizes),
           aicf_output_sizes(exe_, 0, &no_data, 1, 0, nullptr),
           aicf_run(nullptr, 0, &no_data, 1, &no_data, 1),
           aicf_run(exe_, 0, nullptr, 1, nullptr, 1),
           aicf_run(exe_, 0, &no_sizes, 1, &no_sizes, 1),
           aicf_run(exe_, 0, &no_data, 1, &no_data, 1),
           aicf_state_count(exe_, nullptr),
           aicf_state_name(nullptr, 0, &text),
           aicf_state_get(exe_, nullptr, x_, 4),
           aicf_state_set(nullptr, "s", x_, 4),
           aicf_reset(nullptr),
           aicf_metadata(nullptr, "k", &text, nullptr),
           aicf_metadata(exe_, nullptr, &text, nullptr),
           aicf_metadata(exe_, "k", nullptr, nullptr),
       })
    EXPECT_EQ(status, AICF_USER_ERROR);
  EXPECT_EQ(aicf_free(nullptr), AICF_OK);
}

TEST(CApiStates, AreReadWrittenClonedAndReset) {
  aicf_executable *exe = nullptr, *copy = nullptr;
  ASSERT_EQ(aicf_load(aicf_test::save(aicf_test::counter(), "c_states").c_str(), 0, &exe), AICF_OK)
      << aicf_last_error();
  int32_t count = 0;
  const char* name = nullptr;
  ASSERT_EQ(aicf_state_count(exe, &count), AICF_OK);
  ASSERT_EQ(count, 1);
  ASSERT_EQ(aicf_state_name(exe, 0, &name), AICF_OK);
  EXPECT_STREQ(name, "total");
  const float set[] = {1, 2, 3, 4};
  float got[4] = {};
  ASSERT_EQ(aicf_state_set(exe, name, set, sizeof(set)), AICF_OK);
  ASSERT_EQ(aicf_clone(exe, &copy), AICF_OK);
  ASSERT_EQ(aicf_reset(exe), AICF_OK);
  ASSERT_EQ(aicf_state_get(copy, name, got, sizeof(got)), AICF_OK);
  EXPECT_EQ(got[3], 4);
  ASSERT_EQ(aicf_state_get(exe, name, got, sizeof(got)), AICF_OK);
  EXPECT_EQ(got[3], 0);
  EXPECT_EQ(failure(aicf_state_get(exe, name, got, 3)), "AICF-U0403");
  EXPECT_EQ(failure(aicf_state_set(exe, name, nullptr, sizeof(set))), "AICF-U0004");
  EXPECT_EQ(failure(aicf_state_name(exe, 1, &name)), "AICF-U0004");
  aicf_free(exe);
  aicf_free(copy);
}

}  // namespace
