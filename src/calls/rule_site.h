// What a rule has at hand: the calls that it rewrites, for which target and with which of the caller's
// choices, and where it says what it has taken and refused.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/comma_list.h"
#include "select/call_program.h"
#include "select/choose.h"

namespace aicf {

// What a rule did with some calls, or did not do although it nearly would have, and why. For people: no
// artifact holds it.
struct CallReport {
  std::string target, entry;  // the compiler's
  std::string rule;
  std::vector<std::string> calls;  // their origins
  bool taken = false;
  std::string reason;
  double microseconds = 0;  // of one call in their place, estimated; 0: nothing depended on it
};

// "join_rows: matmul_3, softmax_5: not joined: …"
inline std::string to_string(const CallReport& report) {
  return report.rule + ": " + comma_list(report.calls) + ": " + report.reason;
}

using OnCallReport = std::function<void(const CallGraph&, CallReport)>;

// A call in a reason.
inline std::string quoted(const KernelCall& call) { return "'" + origin_text(call) + "'"; }

struct RuleSite {
  const char* rule;
  CallGraph& graph;
  const Target& target;
  const SelectOptions& options;
  const OnCallReport& on_report;  // none: nobody wants them
  const std::function<void(const CallGraph&)>& on_choices;

  bool reports() const { return static_cast<bool>(on_report); }
  void report(const std::vector<const KernelCall*>& calls, bool taken, std::string reason,
              double microseconds = 0) const {
    if (!reports()) return;
    CallReport report{"", "", rule, {}, taken, std::move(reason), microseconds};
    for (const KernelCall* call : calls) report.calls.push_back(origin_text(*call));
    on_report(graph, std::move(report));
  }
};

}  // namespace aicf
