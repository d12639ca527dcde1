#include "base/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/atomic_file.h"
#include "base/error.h"

namespace aicf {
namespace {

class SafetensorsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "aicf_safetensors_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/t.safetensors";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string bytes() const {
    std::ifstream in(path_, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  // A file whose header is `header` before `data_bytes` zeros.
  void write_raw(const std::string& header, size_t data_bytes) {
    std::string text;
    for (int i = 0; i < 8; ++i) text.push_back(static_cast<char>(header.size() >> (8 * i) & 0xff));
    std::ofstream(path_, std::ios::binary) << text << header << std::string(data_bytes, '\0');
  }
  ErrorCode read_error() {
    try {
      read_safetensors(path_);
    } catch (const Error& error) {
      return error.code;
    }
    return ErrorCode::kI_check_failed;
  }

  std::string folder_, path_;
};

TEST_F(SafetensorsTest, RoundTripKeepsBytesNamesAndMetadata) {
  std::vector<SafetensorsTensor> tensors = {
      {"odd", Array::from<int64_t>(DType::u8, {3}, {1, 2, 3}), 1},
      {"w", Array::from<double>(DType::f32, {2, 2}, {1, 2, 3, 4}), 1},
      {"empty", Array(DType::i64, {0, 4}), 1},
      {"scalar", Array::scalar_f64(DType::f64, 2.5), 1},
  };
  sort_for_safetensors(tensors);
  write_safetensors(path_, tensors, {{"format", "pt"}});
  const SafetensorsFile file = read_safetensors(path_);
  ASSERT_EQ(file.tensors.size(), 4u);
  for (const SafetensorsTensor& tensor : tensors) EXPECT_EQ(file.tensors.at(tensor.name), tensor.array);
  EXPECT_EQ(file.metadata.at("format"), "pt");
}

TEST_F(SafetensorsTest, DataBeginsAlignedAndFillersKeepEachTensorAligned) {
  const std::vector<SafetensorsTensor> tensors = {{"a", Array::from<int64_t>(DType::u8, {3}, {1, 2, 3}), 64},
                                                  {"b", Array(DType::f32, {5}), 64}};
  write_safetensors(path_, tensors, {});
  const SafetensorsFile file = read_safetensors(path_);
  for (const char* name : {"a", "b"})
    EXPECT_EQ(reinterpret_cast<uintptr_t>(file.tensors.at(name).data()) % 64, 0u) << name;
  EXPECT_EQ(file.tensors.count("aicf.filler.0"), 1u);
  const std::string first = bytes();
  write_safetensors(path_, tensors, {});
  EXPECT_EQ(first, bytes());
}

// Whatever was written ahead, and where, the file is that of write_safetensors.
TEST_F(SafetensorsTest, WhatIsWrittenAheadChangesNothing) {
  constexpr int64_t kElements = 3 << 20;
  Array large(DType::f64, {kElements}), other(DType::f64, {kElements});
  for (int64_t i = 0; i < kElements; i += 1000) large.set_f64(i, static_cast<double>(i));
  const std::vector<SafetensorsTensor> first = {{"a", large, 64}};
  std::vector<SafetensorsTensor> all = first;
  all.push_back({"b", Array::from<int64_t>(DType::u8, {3}, {1, 2, 3}), 64});
  all.push_back({"c", Array::from<int64_t>(DType::u8, {1}, {4}), 64});
  all.push_back({"empty", Array(DType::u8, {0}), 64});
  const std::vector<SafetensorsTensor> others = {{"a", other, 64}},
                                       more = {{"a", large, 64}, {"x", other, 64}};
  const std::string short_text = "short", long_text(100'000, 'x');
  for (const std::string& text : {short_text, long_text}) {
    write_safetensors(path_, all, {{"text", text}});
    const std::string expected = bytes();
    EXPECT_EQ(read_safetensors(path_).tensors.at("a"), large);
    EXPECT_EQ((expected.size() - 8 * kElements) / 65536, text == short_text ? 1u : 2u)
        << "the data begins there";
    for (const auto* ahead : {&first, &others, &more}) {
      std::filesystem::remove(path_);
      SafetensorsWriter writer(path_);
      writer.write_ahead(*ahead);
      EXPECT_FALSE(std::filesystem::exists(path_));
      writer.finish(all, {{"text", text}});
      EXPECT_TRUE(bytes() == expected);
    }
  }
}

// The same data, which another alignment puts elsewhere.
TEST_F(SafetensorsTest, WhatWasWrittenAheadElsewhereIsWrittenAnew) {
  const Array large(DType::u8, {(16 << 20) + 64});
  const Array small = Array::from<int64_t>(DType::u8, {3}, {1, 2, 3});
  SafetensorsWriter writer(path_);
  writer.write_ahead({{"a", large, 64}, {"b", small, 128}});
  writer.finish({{"a", large, 64}, {"b", small, 4096}}, {});
  EXPECT_EQ(read_safetensors(path_).tensors.at("b"), small);
}

TEST_F(SafetensorsTest, HostileHeadersAreRefused) {
  const std::string ok = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  struct Case {
    std::string header;
    size_t data;
    ErrorCode code;
  };
  const ErrorCode bad = ErrorCode::kU_bad_model_file;
  const std::vector<Case> cases = {
      {ok, 7, bad},
      {"[]", 0, bad},
      {"{", 0, bad},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, bad},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, bad},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8, bad},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, bad},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", 8,
       ErrorCode::kU_size_overflow},
      {R"({"a":{"dtype":"Q4","shape":[2],"data_offsets":[0,8]}})", 8, ErrorCode::kU_unsupported_dtype},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
       12, bad},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       8, bad},
      {R"({"a":{"dtype":"F32","shape":[2]}})", 8, bad},
      {std::string(200, '[') + std::string(200, ']'), 0, bad},
  };
  for (const Case& item : cases) {
    write_raw(item.header, item.data);
    EXPECT_EQ(read_error(), item.code) << item.header;
  }
  write_raw(ok, 8);
  EXPECT_NO_THROW(read_safetensors(path_));
  std::ofstream(path_, std::ios::binary) << std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
  EXPECT_EQ(read_error(), bad);
  std::ofstream(path_, std::ios::binary) << "abc";
  EXPECT_EQ(read_error(), bad);
}

TEST_F(SafetensorsTest, UnalignedTensorsAreReadable) {
  write_raw(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} )", 4);
  EXPECT_EQ(read_safetensors(path_).tensors.at("a"), Array(DType::f32, {1}));
}

TEST_F(SafetensorsTest, AnAbandonedAtomicFileLeavesTheTargetAndNoTemporary) {
  write_file_atomically(path_, "old");
  {
    AtomicFile file(path_);
    file.write("new");
  }
  EXPECT_EQ(bytes(), "old");
  write_file_atomically(path_, "new");
  EXPECT_EQ(bytes(), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

// To ask for the process's mask is to change it: two threads at once would leave another.
TEST_F(SafetensorsTest, WritingInSeveralThreadsKeepsTheModeOfNewFiles) {
  const mode_t before = ::umask(027);
  std::vector<std::thread> threads;
  std::atomic<int> others = 0;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, path = path_ + std::to_string(thread)] {
      for (int i = 0; i < 200; ++i) {
        write_file_atomically(path, "new");
        struct stat found{};
        others += ::stat(path.c_str(), &found) != 0 || (found.st_mode & 0777) != 0640;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(::umask(before), 027u);
  EXPECT_EQ(others, 0);
}

TEST_F(SafetensorsTest, WhatIsNoRegularFileIsNotReplaced) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  for (const std::string& path : {path_, folder_}) {
    try {
      write_file_atomically(path, "new");
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code, ErrorCode::kE_io_failed) << path;
    }
  }
  EXPECT_TRUE(std::filesystem::is_fifo(path_));
}

TEST_F(SafetensorsTest, MissingFilesAndFoldersAreUserErrors) {
  EXPECT_EQ(read_error(), ErrorCode::kU_file_not_found);
  path_ = folder_;
  EXPECT_EQ(read_error(), ErrorCode::kU_bad_option);
}

}  // namespace
}  // namespace aicf
