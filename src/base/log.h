// What AICF says while it works, on stderr: messages by level, and the ladder of AICF_DEBUG. Nothing is
// printed by default but warnings. Both variables are read once, when first needed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace aicf {

enum class LogLevel : uint8_t { kOff, kError, kWarning, kInfo, kDebug };

// AICF_LOG_LEVEL: off, error, warning (default), info or debug; bad_option for another value.
LogLevel log_level();
// Prints "aicf[info]: text" if the level is wanted. The text is made only then.
void log_at(LogLevel level, const std::function<std::string()>& text);

// AICF_DEBUG, 0 to 4: how much of a compile is shown. 1 stages and their times; 2 and the passes; 3 and the
// plan; 4 and the graph after every pass that changed it. bad_option for another value.
int debug_level();
// Prints if AICF_DEBUG is at least `level`.
void debug_print(int level, const std::function<std::string()>& text);

}  // namespace aicf
