#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "aicf/aicf_c.h"

namespace {

// A field of a protobuf message; the text is shorter than 128 bytes.
std::string field(int number, const std::string& text) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(text.size())} + text;
}

std::string value_info(const std::string& name) {
  const std::string shape = field(1, field(2, "batch")) + field(1, "\x08\x04");
  return field(1, name) + field(2, field(1, "\x08\x01" + field(2, shape)));
}

// ONNX: y = relu(x), f32 [batch, 4].
std::string relu_model() {
  const std::string node = field(1, "x") + field(2, "y") + field(4, "Relu");
  const std::string graph =
      field(1, node) + field(2, "g") + field(11, value_info("x")) + field(12, value_info("y"));
  return "\x08\x08" + field(7, graph) + field(8, "\x10\x11");
}

std::string last_code(aicf_status status) { return status == AICF_OK ? "" : aicf_last_error_code(); }

// y = relu(x) of two rows, through the executable.
void expect_relu(aicf_executable* exe) {
  float x_data[8] = {-1, 2, -3, 4, 5, -6, 7, -8}, y_data[8] = {};
  const int64_t sizes[] = {2, 4};
  const aicf_tensor x{x_data, AICF_DTYPE_f32, 2, sizes, nullptr, AICF_HOST};
  const aicf_tensor y{y_data, AICF_DTYPE_f32, 2, sizes, nullptr, AICF_HOST};
  ASSERT_EQ(aicf_run(exe, 0, &x, 1, &y, 1), AICF_OK) << aicf_last_error();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(y_data[i], x_data[i] > 0 ? x_data[i] : 0.0f);
}

class CCompile : public ::testing::Test {
 protected:
  CCompile() {
    options_.dims = dims_;
    options_.dim_count = 1;
  }
  ~CCompile() override {
    aicf_free(exe_);
    aicf_artifact_free(artifact_);
  }
  std::string compile(const std::string& model) {
    return last_code(aicf_compile_onnx_memory(model.data(), model.size(), &options_, &artifact_));
  }

  const char* dims_[2] = {"batch=1..8", "batch=2"};
  aicf_compile_options options_ = {};
  aicf_artifact* artifact_ = nullptr;
  aicf_executable* exe_ = nullptr;
};

TEST_F(CCompile, AModelInMemoryCompilesAndRuns) {
  ASSERT_EQ(compile(relu_model()), "") << aicf_last_error();
  ASSERT_EQ(aicf_artifact_load(artifact_, "cpu", 1, 0, &exe_), AICF_OK) << aicf_last_error();
  expect_relu(exe_);
}

TEST_F(CCompile, AFileCompilesSavesAndLoads) {
  const std::string model = ::testing::TempDir() + "/c_compile.onnx", file = model + ".aicf",
                    text = relu_model();
  std::FILE* to = std::fopen(model.c_str(), "wb");
  ASSERT_NE(to, nullptr);
  ASSERT_EQ(std::fwrite(text.data(), 1, text.size(), to), text.size());
  std::fclose(to);
  options_.unoptimised = 1;
  ASSERT_EQ(aicf_compile_onnx_file(model.c_str(), &options_, &artifact_), AICF_OK) << aicf_last_error();
  ASSERT_EQ(aicf_artifact_save(artifact_, file.c_str()), AICF_OK) << aicf_last_error();
  ASSERT_EQ(aicf_load(file.c_str(), 1, &exe_), AICF_OK) << aicf_last_error();
  expect_relu(exe_);
}

TEST_F(CCompile, OptionsThatDoNotHoldAreRefused) {
  const std::string model = relu_model();
  options_.dim_count = 2;
  EXPECT_EQ(compile(model), "AICF-U0001");  // twice
  options_.dim_count = 1;
  dims_[0] = "batch";
  EXPECT_EQ(compile(model), "AICF-U0001");
  dims_[0] = nullptr;
  EXPECT_EQ(compile(model), "AICF-U0004");
  options_.dim_count = -1;
  EXPECT_EQ(compile(model), "AICF-U0004");
  options_.dim_count = 0;
  EXPECT_EQ(compile(model), "AICF-U0200");  // batch is not set
  dims_[0] = "batch=1..8";
  options_.dim_count = 1;
  options_.target = "tpu";
  EXPECT_EQ(compile(model), "AICF-U0601");
  options_.target = nullptr;
  EXPECT_EQ(compile("no model"), "AICF-U0300");
  EXPECT_EQ(last_code(aicf_compile_onnx_file("no/such.onnx", &options_, &artifact_)), "AICF-U0003");
  EXPECT_EQ(last_code(aicf_compile_onnx_file(nullptr, nullptr, &artifact_)), "AICF-U0004");
  EXPECT_EQ(last_code(aicf_compile_onnx_memory(nullptr, 0, nullptr, &artifact_)), "AICF-U0004");
  EXPECT_EQ(last_code(aicf_artifact_save(nullptr, "x.aicf")), "AICF-U0004");
  EXPECT_EQ(artifact_, nullptr);
}

}  // namespace
