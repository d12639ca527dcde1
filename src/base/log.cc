#include "base/log.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/printable.h"

namespace aicf {
namespace {

constexpr std::string_view kLevels[] = {"off", "error", "warning", "info", "debug"};

LogLevel read_log_level() {
  const char* text = std::getenv("AICF_LOG_LEVEL");
  if (text == nullptr || *text == '\0') return LogLevel::kWarning;
  for (size_t i = 0; i < std::size(kLevels); ++i)
    if (kLevels[i] == text) return static_cast<LogLevel>(i);
  throw UserError(ErrorCode::kU_bad_option, "an environment variable has a value that is not accepted")
      .with_op("AICF_LOG_LEVEL")
      .with_value(text)
      .with_expected("off, error, warning, info or debug");
}

int read_debug_level() {
  const char* text = std::getenv("AICF_DEBUG");
  if (text == nullptr || *text == '\0') return 0;
  if (text[0] >= '0' && text[0] <= '4' && text[1] == '\0') return text[0] - '0';
  throw UserError(ErrorCode::kU_bad_option, "an environment variable has a value that is not accepted")
      .with_op("AICF_DEBUG")
      .with_value(text)
      .with_expected("0 to 4");
}

}  // namespace

LogLevel log_level() {
  static const LogLevel level = read_log_level();
  return level;
}

void log_at(LogLevel level, const std::function<std::string()>& text) {
  if (level > log_level()) return;
  const std::string name(kLevels[static_cast<size_t>(level)]);
  std::fprintf(stderr, "aicf[%s]: %s\n", name.c_str(), printable_text(text()).c_str());
}

int debug_level() {
  static const int level = read_debug_level();
  return level;
}

void debug_print(int level, const std::function<std::string()>& text) {
  if (level <= debug_level()) std::fprintf(stderr, "%s\n", printable_text(text()).c_str());
}

}  // namespace aicf
