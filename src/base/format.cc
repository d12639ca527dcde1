#include "base/format.h"

#include <charconv>
#include <cmath>

namespace aicf {

namespace {

template <class... Form>
std::string text_of(double value, Form... form) {
  char text[400];  // the largest double has 309 digits
  return {text, std::to_chars(text, text + sizeof text, value, form...).ptr};
}

}  // namespace

std::string format_bytes(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 10 * 1024) return std::to_string(bytes) + " B";
  if (bytes < 10 * 1024 * 1024) return format_fixed(value / 1024, 1) + " KiB";
  return format_fixed(value / (1024 * 1024), 1) + " MiB";
}

std::string format_number(double value) { return text_of(value, std::chars_format::general, 10); }

std::string format_fixed(double value, int decimals) {
  return text_of(value, std::chars_format::fixed, decimals);
}

std::string format_hex(double value) {
  if (!std::isfinite(value)) return text_of(value);
  return (std::signbit(value) ? "-0x" : "0x") + text_of(std::abs(value), std::chars_format::hex);
}

}  // namespace aicf
