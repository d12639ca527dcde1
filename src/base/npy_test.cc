#include "base/npy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

namespace aicf {
namespace {

std::string scratch_file() {
  return (std::filesystem::temp_directory_path() / ("aicf_npy_test." + std::to_string(::getpid()))).string();
}

TEST(Npy, WhatIsWrittenIsReadAgain) {
  const std::string path = scratch_file();
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::i64, DType::i32, DType::i16, DType::i8,
                            DType::u8, DType::boolean})
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{}, {3}, {2, 0, 4}, {2, 3, 4}}) {
      Array array(dtype, sizes);
      for (int64_t i = 0; i < array.count(); ++i) array.set_i64(i, i % 5);
      write_npy(path, array);
      EXPECT_EQ(read_npy(path), array) << dtype_name(dtype) << sizes.size();
    }
  std::filesystem::remove(path);
}

// Of a stream the array is all there is: a member of an archive that holds more is no array.
TEST(Npy, AStreamHoldsOneArrayAndNothingElse) {
  const std::string header = "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 2)}";
  std::string bytes = std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' + header;
  const int16_t stored[] = {1, 2, 3, 4};
  bytes.append(reinterpret_cast<const char*>(stored), sizeof(stored));
  const auto read = [&](const std::string& stream) {
    size_t at = 0;
    const auto next = [&](std::byte* to, int64_t count) {
      std::memcpy(to, stream.data() + at, static_cast<size_t>(count));
      at += static_cast<size_t>(count);
    };
    return read_npy(static_cast<int64_t>(stream.size()), next, "stream");
  };
  EXPECT_EQ(read(bytes), Array::from<int64_t>(DType::i16, {2, 2}, {1, 3, 2, 4}));
  for (const std::string& other :
       {bytes + '\0', bytes.substr(0, bytes.size() - 1), bytes.substr(0, 40), bytes.substr(0, 7)}) {
    try {
      read(other);
      ADD_FAILURE() << other.size();
    } catch (const UserError& error) {
      EXPECT_EQ(error.code, ErrorCode::kU_bad_model_file);
      EXPECT_EQ(error.value, "stream");
    }
  }
}

}  // namespace
}  // namespace aicf
