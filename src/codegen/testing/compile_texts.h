// For tests that compile CUDA text: it takes NVRTC, but no GPU.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/testing/random_seeds.h"
#include "codegen/testing/compile_cuda.h"
#include "kernels/testing/cuda_texts.h"

namespace aicf::cuda_testing {

// Every text becomes machine code, optimised little but with AICF_SOAK=1. What asks for more of it than to be
// there compiles it itself.
inline void expect_compiles(const std::vector<std::string>& sources, const std::string& target) {
  if (testing::soaks()) {
    EXPECT_NO_THROW(compile_cuda(sources, target)) << target;
  } else {
    EXPECT_NO_THROW(check_cuda(sources, target)) << target;
  }
}

// The same of each text for its architecture.
inline void compile_all(const RowTexts& texts) { texts.compile(expect_compiles); }

// The values that the functions of a cubin have for an attribute: a symbol and its number. From its sections
// ".nv.info", whose attributes are a format, a kind and a value each.
inline std::vector<int64_t> cuda_attributes(const std::string& cubin, uint8_t kind) {
  constexpr uint32_t kCudaInfo = 0x70000000;
  constexpr uint8_t kSized = 4;  // EIFMT_SVAL
  const auto number = [&]<class T>(size_t at, T) {
    T value;
    std::memcpy(&value, &cubin.at(at + sizeof(T) - 1) - (sizeof(T) - 1), sizeof(T));
    return value;
  };
  std::vector<int64_t> values;
  const auto sections = number(40, uint64_t{});
  for (size_t i = 0; i < number(60, uint16_t{}); ++i) {
    const size_t header = sections + i * number(58, uint16_t{});
    if (number(header + 4, uint32_t{}) != kCudaInfo) continue;
    size_t at = number(header + 24, uint64_t{});
    const size_t end = at + number(header + 32, uint64_t{});
    while (at < end) {
      const auto size = number(at + 2, uint16_t{});
      const bool sized = cubin.at(at) == kSized;
      if (sized && cubin.at(at + 1) == static_cast<char>(kind)) values.push_back(number(at + 8, uint32_t{}));
      at += 4 + (sized ? size : 0);
    }
  }
  return values;
}

// Bytes of stack that the kernels of a cubin take, all together: arrays that did not stay in registers.
inline int64_t stack_bytes(const std::string& cubin) {
  constexpr uint8_t kFrameSize = 0x11;  // EIATTR_FRAME_SIZE
  int64_t sum = 0;
  for (const int64_t bytes : cuda_attributes(cubin, kFrameSize)) sum += bytes;
  return sum;
}

// Bytes of machine code.
inline int64_t code_bytes(const std::string& cubin) {
  constexpr uint64_t kExecutable = 4;
  const auto number = [&]<class T>(size_t at, T) {
    T value;
    std::memcpy(&value, &cubin.at(at + sizeof(T) - 1) - (sizeof(T) - 1), sizeof(T));
    return value;
  };
  int64_t sum = 0;
  for (size_t i = 0; i < number(60, uint16_t{}); ++i) {
    const size_t header = number(40, uint64_t{}) + i * number(58, uint16_t{});
    if (number(header + 8, uint64_t{}) & kExecutable)
      sum += static_cast<int64_t>(number(header + 32, uint64_t{}));
  }
  return sum;
}

// Every text keeps what its threads compute with in registers.
inline void expect_no_stack(const std::vector<std::string>& sources, const std::string& target) {
  for (const std::string& image : compile_cuda(sources, target)) EXPECT_EQ(stack_bytes(image), 0);
}
// Of a thread of the function that takes most.
inline int64_t most_registers(const std::string& cubin) {
  constexpr uint8_t kRegisterCount = 0x2f;  // EIATTR_REGCOUNT
  int64_t most = 0;
  for (const int64_t count : cuda_attributes(cubin, kRegisterCount)) most = std::max(most, count);
  return most;
}

}  // namespace aicf::cuda_testing
