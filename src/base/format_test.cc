#include "base/format.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <limits>

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

}  // namespace
}  // namespace aicf
