// Reads the text of a way (way.h) word by word. Each family's parser takes its words in the order in which
// its to_string() writes them.
#pragma once

#include <string_view>

#include "kernels/common/call_words.h"

namespace aicf {

class WayWords {
 public:
  explicit WayWords(std::string_view text) : left_(text) {}

  bool is_done() const { return left_.empty(); }
  // Whether the next words are these; then they are behind.
  bool take(std::string_view words) {
    if (!left_.starts_with(words)) return false;
    const std::string_view after = left_.substr(words.size());
    if (!after.empty() && after.front() != ' ') return false;
    left_ = after.empty() ? after : after.substr(1);
    return true;
  }
  // A number as the next word, of digits alone and at least 1.
  bool take_number(int& number) {
    const std::string_view word = left_.substr(0, left_.find(' '));
    return parse(word, number) && take(word);
  }
  // "64x32" as the next word.
  bool take_tile(int& rows, int& columns) {
    const std::string_view word = left_.substr(0, left_.find(' '));
    const size_t x = word.find('x');
    return x != word.npos && parse(word.substr(0, x), rows) && parse(word.substr(x + 1), columns) &&
           take(word);
  }
  // These words and a number, or neither.
  bool take_optional(std::string_view words, int& number) { return !take(words) || take_number(number); }

 private:
  static bool parse(std::string_view text, int& number) {
    return parse_number(text, number) && number > 0 && text.front() != '0';
  }
  std::string_view left_;
};

}  // namespace aicf
