// The rules over calls: those that every compilation needs, those that make one launch of several calls, the
// one that stores weights for their readers, the one that lets small calls share launches. call_rules.def is
// the table; a rule is its function and its row.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "calls/rule_site.h"
#include "select/call_program.h"
#include "select/choose.h"

namespace aicf {

class JoinSite;

enum class Scope : uint8_t { kCall, kGraph, kProgram };
enum class Need : uint8_t { kOptional, kRequired };

struct Targets {
  bool cpu = false;
  int least_arch = 0;  // of GPUs
  bool contains(const Target& target) const { return target.is_cuda() ? target.arch >= least_arch : cpu; }
};

// A graph's calls are site(i)'s; graphs share their weights.
struct ProgramSite {
  CallProgram& program;
  std::function<RuleSite(CallGraph&)> site_of;
};

using RunOnCall = void(JoinSite&, size_t at);
using RunOnGraph = void(const RuleSite&);
using RunOnProgram = void(const ProgramSite&);

struct Rule {
  Scope scope;
  const char* name;
  Targets targets;
  Need need;
  const char* place;  // why it stands there
  std::variant<RunOnCall*, RunOnGraph*, RunOnProgram*> run;
};

const std::vector<Rule>& call_rules();
// Those that CompileOptions::skip_passes may name.
std::vector<std::string> optional_call_rules();

struct RuleOptions {
  const SelectOptions& select;
  bool optional = true;             // else the required ones alone
  std::set<std::string> skip = {};  // optional ones
  // Gets each graph when the choices of its calls are final.
  std::function<void(const CallGraph&)> on_choices = {};
  OnCallReport on_report = {};
};

// All rules for the program's target, over every graph; verifies the calls behind each of them.
void run_call_rules(CallProgram& program, const RuleOptions& options);
// The required ones alone, over calls that are no program's; and one by its name.
void run_required_rules(CallGraph& calls, const Target& target, const SelectOptions& options);
void run_call_rule(std::string_view name, CallGraph& calls, const Target& target,
                   const SelectOptions& options, std::vector<CallReport>* reports = nullptr);

}  // namespace aicf
