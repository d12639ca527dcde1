#include "base/format.h"

#include <cstdio>

namespace aicf {

std::string format_bytes(int64_t bytes) {
  char text[32];
  const auto value = static_cast<double>(bytes);
  if (bytes < 10 * 1024) {
    std::snprintf(text, sizeof(text), "%lld B", static_cast<long long>(bytes));
  } else if (bytes < 10 * 1024 * 1024) {
    std::snprintf(text, sizeof(text), "%.1f KiB", value / 1024);
  } else {
    std::snprintf(text, sizeof(text), "%.1f MiB", value / (1024 * 1024));
  }
  return text;
}

std::string format_number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.10g", value);
  return text;
}

}  // namespace aicf
