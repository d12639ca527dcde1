// The calls of a program's first entry as selection and the required rules leave them: what the optional
// rules begin with.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "calls/rules.h"
#include "ir/updates.h"
#include "passes/pass.h"
#include "select/select.h"

namespace aicf::testing {

struct SelectedCalls {
  Target target;
  Program optimised;
  SelectOptions options;
  CallGraph calls;
};

inline SelectedCalls select_calls(const Program& program, const char* target,
                                  std::vector<ForcedChoice> forced = {}, const Records* records = nullptr) {
  SelectedCalls s{Target::from_name(target), {}, {}, CallGraph()};
  s.optimised = run_pipeline(program, s.target, {}, nullptr);
  s.options.ranges = s.optimised.sizes;
  s.options.updated = updated_variables(s.optimised);
  s.options.forced = std::move(forced);
  s.options.records = records;
  s.calls = select_kernels(s.optimised.entries[0], s.target, s.options);
  run_required_rules(s.calls, s.target, s.options);
  return s;
}

// What one rule then makes of them, and what it says.
inline std::vector<CallReport> run_rule(const char* rule, SelectedCalls& s) {
  std::vector<CallReport> reports;
  run_call_rule(rule, s.calls, s.target, s.options, &reports);
  return reports;
}

// What a rule says of all entries, a line for each report, if it runs behind these rules and the required
// ones.
inline std::string told(const std::string& rule, const Program& program,
                        std::vector<ForcedChoice> forced = {}, std::set<std::string> before = {},
                        const Records* records = nullptr) {
  SelectedCalls s = select_calls(program, "sm_90", std::move(forced), records);
  CallProgram calls{s.target, {}};
  calls.graphs.push_back(std::move(s.calls));
  std::string text;
  RuleOptions options{.select = s.options};
  options.on_report = [&](const CallGraph&, const CallReport& report) {
    if (report.rule == rule) text += (report.taken ? "taken " : "refused ") + to_string(report) + "\n";
  };
  before.insert(rule);
  for (const std::string& name : optional_call_rules())
    if (!before.contains(name)) options.skip.insert(name);
  run_call_rules(calls, options);
  return text;
}
inline void expect_told(const std::string& text, const char* what, const char* why) {
  EXPECT_TRUE(text.starts_with(what) && text.find(why) != std::string::npos)
      << "not " << what << " for " << why << ", but: " << text;
}

}  // namespace aicf::testing
