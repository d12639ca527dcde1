// Numbers out of text, whatever the locale.
#pragma once

#include <charconv>
#include <string_view>
#include <system_error>

namespace aicf {

// Whether the whole text is a number, which `value` then is. `form`: of std::from_chars, the base of a whole
// number for one.
template <class T, class... Form>
bool parse_number(std::string_view text, T& value, Form... form) {
  const char *first = text.data(), *last = first + text.size();
  const auto [end, error] = std::from_chars(first, last, value, form...);
  return error == std::errc() && end == last;
}

}  // namespace aicf
