#include "base/format.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "base/comma_list.h"

namespace aicf {
namespace {

std::string printed(const char* form, double value) {
  char text[400];
  std::snprintf(text, sizeof(text), form, value);
  return text;
}

TEST(Format, NumbersReadAsPrintfWritesThemInTheCLocale) {
  for (double value : {0.0, -0.0, 1.0, 0.125, -0.1, 1e-5, 3.14159, 1e30, 123456.75, 1e300,
                       std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(format_hex(value), printed("%a", value));
    EXPECT_EQ(format_fixed(value, 3), printed("%.3f", value));
    EXPECT_EQ(format_number(value), printed("%.10g", value));
  }
  EXPECT_EQ(format_bytes(10239), "10239 B");
  EXPECT_EQ(format_bytes(24000), "23.4 KiB");
}

TEST(CommaList, TakesItemsMembersAndFunctions) {
  const std::map<std::string, int> sizes = {{"batch", 2}, {"n", 3}};
  EXPECT_EQ(comma_list(std::vector<std::string_view>{}), "");
  EXPECT_EQ(comma_list(std::vector<std::string_view>{"one"}), "one");
  EXPECT_EQ(comma_list(sizes, &std::pair<const std::string, int>::first), "batch, n");
  EXPECT_EQ(comma_list(sizes, [](const auto& size) { return std::to_string(size.second); }), "2, 3");
}

}  // namespace
}  // namespace aicf
