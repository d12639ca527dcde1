#include "base/printable.h"

#include <cstdint>
#include <cstdio>

namespace aicf {
namespace {

struct Char {
  uint32_t code;
  size_t bytes;  // 0: the first byte begins no character of UTF-8
};

Char char_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[at + i])); };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t bytes = first >> 5 == 0b110 ? 2 : first >> 4 == 0b1110 ? 3 : first >> 3 == 0b11110 ? 4 : 0;
  if (bytes == 0 || text.size() - at < bytes) return {first, 0};
  uint32_t code = first & (0x7fU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if (byte(i) >> 6 != 0b10) return {first, 0};
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kLeast[bytes] || code > 0x10ffff || surrogate) return {first, 0};
  return {code, bytes};
}

// Controls, line separators, and what changes the direction of writing.
bool acts_on_terminal(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x200e && code <= 0x200f) ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code == 0x61c ||
         code == 0xfeff;
}

std::string escape_text(uint32_t code, bool whole) {
  if (code == '\n') return "\\n";
  if (code == '\t') return "\\t";
  if (code == '\r') return "\\r";
  char text[16];
  std::snprintf(text, sizeof(text), whole && code >= 0x80 ? "\\u%04x" : "\\x%02x", code);
  return text;
}

std::string printable(std::string_view text, bool keep_lines) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Char c = char_at(text, at);
    const bool kept = keep_lines && (c.code == '\n' || c.code == '\t');
    if (c.bytes > 0 && (kept || !acts_on_terminal(c.code)))
      result += text.substr(at, c.bytes);
    else
      result += escape_text(c.code, c.bytes > 0);
    at += c.bytes > 0 ? c.bytes : 1;
  }
  return result;
}

}  // namespace

std::string printable_name(std::string_view name) { return printable(name, false); }
std::string printable_text(std::string_view text) { return printable(text, true); }

std::string error_lines(std::string_view text) {
  std::string lines;
  const std::string shown = printable_text(text);
  for (size_t i = 0; i < shown.size(); ++i) {
    lines += shown[i];
    if (shown[i] == '\n' && i + 1 < shown.size() && shown[i + 1] != ' ') lines += "    ";
  }
  return lines;
}

}  // namespace aicf
