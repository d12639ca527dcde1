#include "calls/rules.h"

#include <algorithm>

#include "base/error.h"
#include "calls/join_site.h"
#include "calls/verify_calls.h"

namespace aicf {

// By scope.
using Run_kCall = RunOnCall;
using Run_kGraph = RunOnGraph;
using Run_kProgram = RunOnProgram;

#define CALL_RULE(scope, name, targets, need, place) Run_##scope name;
#include "calls/call_rules.def"
#undef CALL_RULE

void report_choices(const RuleSite& site) {
  if (site.on_choices) site.on_choices(site.graph);
}

namespace {

constexpr Targets kAll{true, 0}, kGpus{false, 0}, kFromHopper{false, 90};

bool runs(const Rule& rule, const Target& target, const RuleOptions& options) {
  const bool wanted = rule.need == Need::kRequired || (options.optional && !options.skip.contains(rule.name));
  return wanted && rule.targets.contains(target);
}

RuleSite site_of(const Rule& rule, CallGraph& graph, const Target& target, const RuleOptions& options) {
  return {rule.name, graph, target, options.select, options.on_report, options.on_choices};
}

// One of a graph.
void run_on(CallGraph& graph, const Rule& rule, const Target& target, const RuleOptions& options) {
  const RuleSite site = site_of(rule, graph, target, options);
  if (rule.scope == Scope::kCall)
    JoinSite(site).scan(std::get<RunOnCall*>(rule.run));
  else
    std::get<RunOnGraph*>(rule.run)(site);
  verify(graph, rule.name);
}

}  // namespace

const std::vector<Rule>& call_rules() {
  static const std::vector<Rule> rules = {
#define CALL_RULE(scope, name, targets, need, place) \
  {Scope::scope, #name, targets, Need::need, place, &(name)},
#include "calls/call_rules.def"
#undef CALL_RULE
  };
  return rules;
}

std::vector<std::string> optional_call_rules() {
  std::vector<std::string> names;
  for (const Rule& rule : call_rules())
    if (rule.need == Need::kOptional) names.emplace_back(rule.name);
  return names;
}

void run_call_rules(CallProgram& program, const RuleOptions& options) {
  const std::vector<Rule>& all = call_rules();
  const auto is_of_program = [](const Rule& rule) { return rule.scope == Scope::kProgram; };
  for (auto begin = all.begin(); begin != all.end();) {
    // Rules up to the next one of all graphs run graph by graph.
    const auto end = std::find_if(begin, all.end(), is_of_program);
    for (CallGraph& graph : program.graphs)
      for (auto rule = begin; rule != end; ++rule)
        if (runs(*rule, program.target, options)) run_on(graph, *rule, program.target, options);
    begin = end;
    for (; begin != all.end() && is_of_program(*begin); ++begin) {
      if (!runs(*begin, program.target, options)) continue;
      std::get<RunOnProgram*>(begin->run)({program, [&, rule = *begin](CallGraph& graph) {
                                             return site_of(rule, graph, program.target, options);
                                           }});
      verify(program, begin->name);
    }
  }
#ifndef NDEBUG
  verify_ways(program);
#endif
}

void run_required_rules(CallGraph& calls, const Target& target, const SelectOptions& select) {
  const RuleOptions options{.select = select, .optional = false};
  for (const Rule& rule : call_rules())
    if (runs(rule, target, options)) run_on(calls, rule, target, options);
}

void run_call_rule(std::string_view name, CallGraph& calls, const Target& target, const SelectOptions& select,
                   std::vector<CallReport>* reports) {
  const auto rule =
      std::find_if(call_rules().begin(), call_rules().end(), [&](const Rule& r) { return r.name == name; });
  AICF_CHECK(rule != call_rules().end() && rule->scope != Scope::kProgram,
             "no rule over the calls of a graph: " + std::string(name));
  RuleOptions options{.select = select};
  if (reports != nullptr)
    options.on_report = [&](const CallGraph&, CallReport report) { reports->push_back(std::move(report)); };
  if (rule->targets.contains(target)) run_on(calls, *rule, target, options);
}

}  // namespace aicf
