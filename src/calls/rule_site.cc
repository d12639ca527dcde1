#include "calls/rule_site.h"

#include <utility>

namespace aicf {

void RuleSite::report(std::vector<std::string> calls, bool taken, std::string reason,
                      double microseconds) const {
  if (reports()) on_report(graph, {"", "", rule, std::move(calls), taken, std::move(reason), microseconds});
}

std::string to_string(const CallReport& report) {
  std::string text = report.rule + ": ";
  for (const std::string& origin : report.calls)
    text += (&origin == report.calls.data() ? "" : ", ") + origin;
  return text + ": " + report.reason;
}

}  // namespace aicf
