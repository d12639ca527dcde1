#include "compile/artifact_part.h"

#include <algorithm>

#include "base/comma_list.h"
#include "base/error.h"
#include "base/training_names.h"
#include "ir/text.h"
#include "plan/plan_part.h"

namespace aicf {
namespace {

const Plan& any_plan(const Artifact& artifact) {
  if (artifact.variants.empty())
    throw UserError(ErrorCode::kU_bad_artifact, "the file holds no variant")
        .with_remedy("compile the model again");
  return artifact.variants.front().plan;
}

std::vector<std::string> entry_names(const Plan& plan) {
  std::vector<std::string> names;
  for (const EntryPlan& entry : plan.entries)
    if (entry.name != kInitEntry) names.push_back(entry.name);
  return names;
}

bool is_training_entry(const std::string& name) {
  return name == kStepEntry || name == kAccumulateEntry || name == kGradientsEntry;
}

}  // namespace

std::set<std::string> inference_entries(const Artifact& artifact) {
  const Plan& plan = any_plan(artifact);
  const bool trains = std::any_of(plan.variables.begin(), plan.variables.end(),
                                  [](const PlanVariable& v) { return v.is_state && v.name == kStepState; });
  std::set<std::string> names;
  for (const std::string& name : entry_names(plan))
    if (!trains || !is_training_entry(name)) names.insert(name);
  return names;
}

Artifact part_of(const Artifact& whole, const std::set<std::string>& entries) {
  const std::vector<std::string> all = entry_names(any_plan(whole));
  for (const std::string& name : entries)
    if (std::find(all.begin(), all.end(), name) == all.end())
      throw UserError(ErrorCode::kU_bad_option, "the model has no entry of this name")
          .with_value(name)
          .with_expected(comma_list(all));
  const bool trains = std::any_of(entries.begin(), entries.end(), is_training_entry);
  Artifact part{
      keep_entries(whole.program, entries, trains ? "" : kTrainingMetadata), whole.metadata, {}, {}, {}};
  if (!trains)
    std::erase_if(part.metadata, [](const auto& item) { return item.first.starts_with(kTrainingMetadata); });
  std::set<std::string> variables, constants;
  for (const Variant& variant : whole.variants) {
    PlanPart plan = part_of(variant.plan, entries);
    variables.merge(buffer_names(plan.plan, BufferKind::kVariable));
    constants.merge(buffer_names(plan.plan, BufferKind::kConstant));
    Variant& kept = part.variants.emplace_back(Variant{variant.target, std::move(plan.plan)});
    for (const size_t module : plan.modules) kept.code.push_back(variant.code[module]);
  }
  for (const auto& item : whole.weights)
    if (variables.contains(item.first)) part.weights.insert(item);
  for (const auto& item : whole.constants)
    if (constants.contains(item.first)) part.constants.insert(item);
  return part;
}

}  // namespace aicf
