#include "plan/plan.h"

#include <algorithm>
#include <string>

#include "base/comma_list.h"
#include "base/format.h"
#include "base/printable.h"

namespace aicf {

std::string_view buffer_kind_name(BufferKind kind) {
  constexpr std::string_view kNames[] = {"input", "output", "variable", "constant", "packed", "arena"};
  return kNames[static_cast<size_t>(kind)];
}

const EntryPlan* Plan::entry(std::string_view name) const {
  for (const EntryPlan& entry : entries)
    if (entry.name == name) return &entry;
  return nullptr;
}

const EntryPlan& Plan::at_sizes(const EntryPlan& entry, const SymbolValues& sizes) const {
  const auto holds = [&](const EntryPlan& bucket) {
    return bucket.name == entry.name &&
           std::all_of(bucket.bucket.begin(), bucket.bucket.end(), [&](const auto& part) {
             const auto at = sizes.find(part.first);
             return at != sizes.end() && at->second >= part.second.lo && at->second <= part.second.hi;
           });
  };
  const auto at = std::find_if(buckets.begin(), buckets.end(), holds);
  return at == buckets.end() ? entry : *at;
}

std::string to_string(const SymbolRanges& ranges) {
  return comma_list(ranges, [](const auto& item) {
    const auto& [name, range] = item;
    return printable_name(name) + " in " + std::to_string(range.lo) + ".." + std::to_string(range.hi);
  });
}

namespace {

std::string to_string(const Step& step) {
  std::string text =
      printable_name(step.kernel + (step.variant.empty() ? "" : "/" + step.variant) +
                     (step.library.call.empty() ? "" : " or library " + step.library.call) + "  (");
  for (size_t k = 0; k < step.inputs.size(); ++k)
    text += (k ? ", b" : "b") + std::to_string(step.inputs[k].buffer) + to_string(step.inputs[k].sizes);
  text += ") -> (";
  for (size_t k = 0; k < step.outputs.size(); ++k)
    text += (k ? ", b" : "b") + std::to_string(step.outputs[k].buffer) + to_string(step.outputs[k].sizes);
  text += ")  ";
  for (int32_t body : step.bodies) text += "body " + std::to_string(body) + "  ";
  text += to_string(step.lane);
  text += printable_name(step.origin);
  for (const StepMember& member : step.members)
    text += "\n       stage " + std::to_string(member.stage) + "  " +
            printable_name(member.kernel + (member.variant.empty() ? "" : "/" + member.variant) + "  " +
                           member.origin);
  return text;
}

std::string to_string(const Buffer& b) {
  std::string text = std::string(buffer_kind_name(b.kind)) + "  " + b.bytes.to_string() + " B (max " +
                     format_bytes(b.max_bytes) + ")";
  if (b.kind == BufferKind::kArena || b.kind == BufferKind::kPacked)
    text += "  at " + std::to_string(b.offset);
  if (b.kind == BufferKind::kArena)
    text += "  steps " + std::to_string(b.first_step) + ".." + std::to_string(b.last_step);
  if (!b.name.empty()) text += "  '" + printable_name(b.name) + "'";
  if (!b.note.empty()) text += "  " + printable_name(b.note);
  return text;
}

std::string to_string(const EntryPlan& entry, const std::string& heading) {
  std::string text = heading + ": " + std::to_string(entry.steps.size()) + " steps, arena " +
                     format_bytes(entry.arena_bytes) + "\n";
  for (size_t i = 0; i < entry.steps.size(); ++i)
    text += "  " + std::to_string(i) + "  " + to_string(entry.steps[i]) + "\n";
  for (size_t i = 0; i < entry.buffers.size(); ++i)
    text += "  b" + std::to_string(i) + "  " + to_string(entry.buffers[i]) + "\n";
  return text;
}

}  // namespace

std::string to_string(const Plan& plan) {
  std::string text;
  for (const auto* list : {&plan.entries, &plan.buckets})
    for (const EntryPlan& entry : *list)
      text += to_string(entry, "entry " + printable_name(entry.name) +
                                   (entry.bucket.empty() ? "" : " for " + to_string(entry.bucket)));
  for (size_t i = 0; i < plan.bodies.size(); ++i)
    text += to_string(plan.bodies[i], "body " + std::to_string(i));
  return text;
}

}  // namespace aicf
