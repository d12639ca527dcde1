// Reading the texts of library calls: words apart by single spaces, whole numbers.
#pragma once

#include <charconv>
#include <string_view>

namespace aicf {

template <class T>
bool parse_number(std::string_view text, T& value, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}

class Words {
 public:
  explicit Words(std::string_view text, char separator = ' ') : rest_(text), separator_(separator) {}
  std::string_view next() {
    const size_t end = rest_.find(separator_);
    const std::string_view word = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    return word;
  }
  bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  char separator_;
};

inline constexpr int64_t kMostLibraryWorkspace = int64_t{1} << 32;  // bytes
inline constexpr int kMostLibraryInputs = 64;

}  // namespace aicf
