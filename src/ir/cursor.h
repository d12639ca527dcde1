// Tokens of the text form, read from left to right. Every failure is bad_text with line and column (from 1,
// in bytes).
#pragma once

#include <string>
#include <string_view>

#include "base/dim.h"
#include "base/error.h"

namespace aicf {

class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  // Where the next token starts; "line 3, column 7: " for such a position.
  size_t position();
  std::string place(size_t position) const;
  [[noreturn]] void fail_at(size_t position, std::string message, std::string expected = "",
                            std::string actual = "") const;
  [[noreturn]] void fail(std::string message, std::string expected = "");

  // Runs a call that may refuse what the text says, and puts the place into its message.
  template <typename Call>
  auto checked(size_t position, Call call) const -> decltype(call()) {
    try {
      return call();
    } catch (UserError& error) {
      error.message = place(position) + error.message;
      error.refresh();
      throw;
    }
  }

  bool peek(char c);                // the next token starts with c
  bool peek_exactly(char c) const;  // the same without skipping space
  bool take(char c);
  void expect(char c);
  void expect_end();

  std::string_view word();  // letters, digits, '_'; fails if there is none
  bool take_word(std::string_view w);
  void expect_word(std::string_view w);
  std::string_view symbol_name();    // name of a size, as Dim::parse reads it
  std::string_view value_token();    // what follows '%': letters, digits, '_', '.'
  std::string_view scalar();         // a number, nan:0x…, true, false
  std::string_view integer_token();  // '-' and digits: stops before the '..' of a range
  std::string quoted();
  Shape dims();  // "[batch, 2*sequence]"

 private:
  void skip();
  template <typename Accept>
  std::string_view run(Accept accept, const char* what);
  Dim dim();
  char escape();

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace aicf
