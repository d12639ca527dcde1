#include "base/printable.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace aicf {
namespace {

TEST(Printable, WhatActsOnATerminalStandsAsItsCode) {
  const std::pair<std::string, std::string> cases[] = {
      {"layer.0.W", "layer.0.W"},
      {"größe 重み 🙂", "größe 重み 🙂"},
      {"\x1b[2J\x1b]0;x\x07", "\\x1b[2J\\x1b]0;x\\x07"},
      {"a\r\nb\tc", "a\\r\\nb\\tc"},
      {std::string("a\0b", 3), "a\\x00b"},
      {"\x7f", "\\x7f"},
      {"\xc2\x9b"
       "31m",
       "\\u009b31m"},
      {"\x9b"
       "31m",
       "\\x9b31m"},
      {"\xe2\x80\xae"
       "fdp.exe",
       "\\u202efdp.exe"},
      {"\xe2\x81\xa6\xe2\x80\xa8", "\\u2066\\u2028"},
      {"\xc0\x8a", "\\xc0\\x8a"},           // a line break, written longer than it may be
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},  // half of a pair
      {"\xe2\x80", "\\xe2\\x80"},
      {"\xff", "\\xff"},
      {"", ""},
  };
  for (const auto& [name, shown] : cases) EXPECT_EQ(printable_name(name), shown);
  EXPECT_EQ(printable_text("a\n\tb\x1b\r"), "a\n\tb\\x1b\\r");
}

TEST(Printable, AnErrorKeepsTheNamesAndShowsThemOnTheirLine) {
  const std::string name = "w\x1b[31m\nerror[AICF-U0000]: forged";
  const UserError error = UserError(ErrorCode::kU_unknown_param, "no param '" + name + "'")
                              .with_op(name)
                              .with_value(name)
                              .with_actual("first\nsecond");
  EXPECT_EQ(error.value, name);
  EXPECT_EQ(error.text().find('\x1b'), std::string::npos);
  EXPECT_EQ(error.text().find("\nerror["), std::string::npos);
  EXPECT_NE(error.text().find("value: w\\x1b[31m\\nerror[AICF-U0000]: forged\n"), std::string::npos);
  EXPECT_NE(error.text().find("actual: first\n    second"), std::string::npos);
}

}  // namespace
}  // namespace aicf
