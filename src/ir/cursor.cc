#include "ir/cursor.h"

#include <algorithm>

#include "base/error.h"
#include "ir/literal.h"

namespace aicf {
namespace {

// Longest text of one size: keeps the cost of a hostile size expression small.
constexpr size_t kMaxDimText = 4096;
constexpr size_t kShownText = 40;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}
bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

void Cursor::skip() {
  while (at_ < text_.size()) {
    if (is_space(text_[at_])) {
      ++at_;
    } else if (text_[at_] == '/' && at_ + 1 < text_.size() && text_[at_ + 1] == '/') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else {
      return;
    }
  }
}

size_t Cursor::position() {
  skip();
  return at_;
}

std::string Cursor::place(size_t position) const {
  const std::string_view before = text_.substr(0, position);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t line_start = before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1;
  return "line " + std::to_string(line) + ", column " + std::to_string(position - line_start + 1) + ": ";
}

void Cursor::fail_at(size_t position, std::string message, std::string expected, std::string actual) const {
  if (actual.empty()) {
    const std::string_view rest = text_.substr(position, kShownText);
    append_quoted(actual, rest.substr(0, rest.find('\n')));
  }
  throw UserError(ErrorCode::kU_bad_text, place(position) + message)
      .with_expected(std::move(expected))
      .with_actual(position >= text_.size() ? "end of text" : std::move(actual));
}

void Cursor::fail(std::string message, std::string expected) {
  fail_at(position(), std::move(message), std::move(expected));
}

bool Cursor::peek_exactly(char c) const { return at_ < text_.size() && text_[at_] == c; }

bool Cursor::peek(char c) {
  skip();
  return peek_exactly(c);
}

bool Cursor::take(char c) {
  if (!peek(c)) return false;
  ++at_;
  return true;
}

void Cursor::expect(char c) {
  if (!take(c)) fail("unexpected text", std::string("'") + c + "'");
}

void Cursor::expect_end() {
  skip();
  if (at_ != text_.size()) fail("text after the end", "nothing");
}

template <typename Accept>
std::string_view Cursor::run(Accept accept, const char* what) {
  const size_t begin = at_;
  while (at_ < text_.size() && accept(text_[at_])) ++at_;
  if (at_ == begin) fail_at(begin, "unexpected text", what);
  return text_.substr(begin, at_ - begin);
}

std::string_view Cursor::word() {
  skip();
  return run(is_word_char, "a word");
}

bool Cursor::take_word(std::string_view w) {
  skip();
  if (!text_.substr(at_).starts_with(w)) return false;
  if (at_ + w.size() < text_.size() && is_word_char(text_[at_ + w.size()])) return false;
  at_ += w.size();
  return true;
}

void Cursor::expect_word(std::string_view w) {
  if (!take_word(w)) fail("unexpected text", std::string(w));
}

std::string_view Cursor::symbol_name() {
  skip();
  return run([](char c) { return is_word_char(c) || c == '.' || c == '$' || c == ':' || c == '/'; },
             "the name of a size");
}

std::string_view Cursor::value_token() {
  return run([](char c) { return is_word_char(c) || c == '.'; }, "the name of a value");
}

std::string_view Cursor::scalar() {
  skip();
  return run([](char c) { return is_word_char(c) || c == '.' || c == '+' || c == '-' || c == ':'; },
             "a number");
}

std::string_view Cursor::integer_token() {
  skip();
  const size_t begin = at_;
  if (peek_exactly('-')) ++at_;
  run(is_digit, "an integer");
  return text_.substr(begin, at_ - begin);
}

char Cursor::escape() {
  if (at_ >= text_.size()) fail_at(at_, "a string has no end", "'\"'");
  const char c = text_[at_++];
  if (c == 'n') return '\n';
  if (c == '"' || c == '\\') return c;
  if (c != 'x' || at_ + 2 > text_.size() || hex_value(text_[at_]) < 0 || hex_value(text_[at_ + 1]) < 0)
    fail_at(at_ - 2, "unknown escape in a string", "\\\" \\\\ \\n or \\x and two hex digits");
  const int value = 16 * hex_value(text_[at_]) + hex_value(text_[at_ + 1]);
  at_ += 2;
  return static_cast<char>(value);
}

std::string Cursor::quoted() {
  skip();
  const size_t begin = at_;
  if (!peek_exactly('"')) fail("unexpected text", "a string in double quotes");
  ++at_;
  std::string value;
  for (;;) {
    if (at_ >= text_.size()) fail_at(begin, "a string has no end", "'\"'");
    const char c = text_[at_++];
    if (c == '"') return value;
    if (c == '\n') fail_at(at_ - 1, "a string ends on the line where it starts", "\\n for a line break");
    value += c == '\\' ? escape() : c;
  }
}

Shape Cursor::dims() {
  Shape shape;
  expect('[');
  if (take(']')) return shape;
  do shape.push_back(dim());
  while (take(','));
  expect(']');
  return shape;
}

Dim Cursor::dim() {
  skip();
  const size_t begin = at_;
  for (int depth = 0; at_ < text_.size() && at_ - begin <= kMaxDimText; ++at_) {
    const char c = text_[at_];
    if (depth == 0 && (c == ',' || c == ']' || c == ')')) break;
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
  }
  const std::string_view text = text_.substr(begin, at_ - begin);
  if (text.size() > kMaxDimText)
    fail_at(begin, "a size expression is too long", std::to_string(kMaxDimText) + " bytes");
  if (const auto number = read_int(text)) return Dim(*number);
  try {
    return Dim::parse(text);
  } catch (UserError& error) {
    error.message = place(begin) + error.message;
    error.refresh();
    throw;
  }
}

}  // namespace aicf
