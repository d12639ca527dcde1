#include "base/parse_number.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace aicf {
namespace {

template <class T, class... Form>
std::optional<T> parsed(std::string_view text, Form... form) {
  T value{};
  return parse_number(text, value, form...) ? std::optional(value) : std::nullopt;
}

TEST(ParseNumber, takes_whole_texts_alone) {
  EXPECT_EQ(parsed<int>("-12"), -12);
  EXPECT_EQ(parsed<uint64_t>("ff", 16), 255u);
  EXPECT_EQ(parsed<double>("2.5e3"), 2500.0);
  for (const char* text : {"", "-", "12 ", " 12", "+12", "1x", "99999999999"})
    EXPECT_EQ(parsed<int>(text), std::nullopt) << text;
  EXPECT_EQ(parsed<double>("0,3"), std::nullopt);
}

}  // namespace
}  // namespace aicf
