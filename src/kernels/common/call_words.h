// Reading the texts of library calls: words apart by single spaces.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/parse_number.h"

namespace aicf {

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
