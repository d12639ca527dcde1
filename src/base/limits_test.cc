#include "base/limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include "base/array.h"
#include "base/error.h"

namespace aicf {
namespace {

// An environment variable for the life of this object; nullptr unsets it.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    if (value != nullptr)
      setenv(name, value, 1);
    else
      unsetenv(name);
  }
  ~Variable() {
    if (before_)
      setenv(name_, before_->c_str(), 1);
    else
      unsetenv(name_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

// Bytes of memory as the kernel's own list of this machine says it, or what a control group leaves of them.
int64_t memory_of_this_machine() {
  std::ifstream list("/proc/meminfo");
  std::string word;
  int64_t kib = 0;
  while (list >> word && word != "MemTotal:") {
  }
  list >> kib;
  int64_t bytes = kib * 1024, group = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> group && group > 0) bytes = std::min(bytes, group);
  return bytes;
}

template <typename Call>
ErrorCode code_of(Call&& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.code;
  }
  return ErrorCode::kI_check_failed;
}

TEST(Limits, BytesParse) {
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("17"), 17);
  EXPECT_EQ(parse_bytes("2K"), 2048);
  EXPECT_EQ(parse_bytes("3T"), int64_t{3} << 40);
  for (const char* text : {"", "K", "-1", "1.5G", "1GB", "9999999999999999999", "99999999999T"})
    EXPECT_EQ(parse_bytes(text), -1) << text;
}

TEST(Limits, DefaultsAreTheMachineAndTenMinutes) {
  const Variable memory("AICF_MAX_MEMORY", nullptr), seconds("AICF_MAX_SECONDS", nullptr);
  const ResourceLimits limits = resource_limits();
  EXPECT_EQ(limits.memory_bytes, memory_of_this_machine());
  EXPECT_EQ(limits.seconds, 600);
}

TEST(Limits, ValuesThatDoNotParseAreRefused) {
  for (const char* value : {"much", "-5", "1GB"}) {
    const Variable memory("AICF_MAX_MEMORY", value);
    EXPECT_EQ(code_of([] { resource_limits(); }), ErrorCode::kU_bad_option) << value;
  }
  for (const char* value : {"long", "-1", "nan"}) {
    const Variable seconds("AICF_MAX_SECONDS", value);
    EXPECT_EQ(code_of([] { resource_limits(); }), ErrorCode::kU_bad_option) << value;
  }
}

TEST(Limits, CountsOfTheEnvironmentAreWholeNumbersInRange) {
  const auto read = [](const char* text) {
    const Variable count("AICF_TEST_COUNT", text);
    return number_from_environment("AICF_TEST_COUNT", 1, 8);
  };
  EXPECT_EQ(read("3"), 3);
  EXPECT_EQ(read(""), std::nullopt);
  for (const char* text : {"0", "9", "-1", "2x", "x", "99999999999999999999"})
    EXPECT_EQ(code_of([&] { read(text); }), ErrorCode::kU_bad_option) << text;
  EXPECT_EQ(number_from_environment("AICF_TEST_COUNT", 1, 8), std::nullopt);
}

TEST(Limits, LiveArraysCountUntilTheyAreFreed) {
  const Variable memory("AICF_MAX_MEMORY", "64M");
  const auto make = [] { return Array(DType::u8, {40 << 20}); };
  make();
  const Array first = make();
  EXPECT_EQ(code_of(make), ErrorCode::kU_over_limit);
  EXPECT_EQ(code_of([] { require_memory(30 << 20, "more"); }), ErrorCode::kU_over_limit);
  require_memory(1 << 20, "a little");
}

TEST(Limits, AllThatThereIsMayBeTaken) {
  const Variable memory("AICF_MAX_MEMORY", "64M");
  require_memory(64 << 20, "all");
  EXPECT_EQ(code_of([] { require_memory((64 << 20) + 1, "more"); }), ErrorCode::kU_over_limit);
}

TEST(Limits, SmallArraysCountTogether) {
  const Variable memory("AICF_MAX_MEMORY", "32M");
  std::vector<Array> arrays;
  EXPECT_EQ(code_of([&] {
              for (int i = 0; i < 2000; ++i) arrays.emplace_back(DType::u8, std::vector<int64_t>{1 << 15});
            }),
            ErrorCode::kU_over_limit);
}

}  // namespace
}  // namespace aicf
