#include "select/call_program.h"

#include <algorithm>

#include "ir/text.h"

namespace aicf {
namespace {

std::string root_text(ValueId root, const CallGraph& calls) {
  const int values = calls.graph.value_count();
  const std::string name = root < 0        ? ""
                           : root < values ? calls.graph.value(root).name
                                           : calls.extra[static_cast<size_t>(root - values)].name;
  return "%" + std::to_string(root) + (name.empty() ? "" : " " + name);
}

// "f16 %3 x + 8 [4, 16] by [16, 1]"
std::string window_text(const Window& w, const CallGraph& calls) {
  return std::string(dtype_name(w.dtype)) + " " + root_text(w.root, calls) +
         (w.offset == Dim(0) ? "" : " + " + w.offset.to_string()) + " " + to_string(w.sizes) + " by " +
         to_string(w.strides);
}

std::string bucket_text(const SymbolRanges& bucket) {
  std::string text;
  for (const auto& [name, range] : bucket)
    text += (text.empty() ? " for " : ", ") + name + " in " + std::to_string(range.lo) + ".." +
            std::to_string(range.hi);
  return text;
}

std::string call_text(const KernelCall& call, const CallGraph& calls, const std::string& indent) {
  std::string text = indent + to_string(Candidate{call.kernel, call.variant}) + "  " + call.origin + "; " +
                     call.reason + "\n";
  const auto line = [&](const std::string& what) { text += indent + "  " + what + "\n"; };
  for (const Window& w : call.inputs) line("in  " + window_text(w, calls));
  for (const Window& w : call.outputs) line("out " + window_text(w, calls));
  if (!call.params.empty()) line("params " + to_string(call.params));
  for (const double param : call.fparams) line("fparam " + std::to_string(param));
  if (call.region >= 0)
    line("program " + std::to_string(call.region) + ", inner rank " +
         std::to_string(call.schedule.inner_rank) + " of axes " + to_string(call.schedule.domain_axes));
  if (!call.elementwise.empty())
    line("elementwise " + to_string(std::vector<int64_t>(call.elementwise.begin(), call.elementwise.end())));
  for (const int body : call.bodies) line("body " + std::to_string(calls.bodies[static_cast<size_t>(body)]));
  if (!call.library.call.empty())
    line("library " + call.library.call + ", workspace " + std::to_string(call.library.workspace_bytes));
  for (const KernelCall& member : call.members) {
    line("member of stage " + std::to_string(member.stage));
    text += call_text(member, calls, indent + "    ");
  }
  return text;
}

}  // namespace

bool CallGraph::operator==(const CallGraph& other) const {
  const auto same_region = [](const Region& a, const Region& b) {
    return a.full_shape == b.full_shape && print(a.body) == print(b.body);
  };
  return print(graph) == print(other.graph) && ranges == other.ranges && bucket == other.bucket &&
         is_body == other.is_body && bodies == other.bodies && calls == other.calls &&
         init_calls == other.init_calls &&
         std::equal(regions.begin(), regions.end(), other.regions.begin(), other.regions.end(),
                    same_region) &&
         programs == other.programs && extra == other.extra && placement == other.placement &&
         output_roots == other.output_roots && constant == other.constant;
}

bool CallProgram::operator==(const CallProgram& other) const {
  return target.name == other.target.name && graphs == other.graphs;
}

std::string to_string(const CallGraph& calls) {
  const Graph& graph = calls.graph;
  const auto describe = [&](const Window& w) {
    std::string name = w.root < graph.value_count() && !graph.value(w.root).name.empty()
                           ? graph.value(w.root).name
                           : "%" + std::to_string(w.root);
    return name + to_string(w.sizes);
  };
  std::string text;
  for (const auto* list : {&calls.init_calls, &calls.calls})
    for (const KernelCall& call : *list) {
      const std::string name = to_string(Candidate{call.kernel, call.variant});
      text += (list == &calls.init_calls ? "init " : "     ") + name + " (";
      for (size_t i = 0; i < call.inputs.size(); ++i) text += (i ? ", " : "") + describe(call.inputs[i]);
      text += ") -> (";
      for (size_t i = 0; i < call.outputs.size(); ++i) text += (i ? ", " : "") + describe(call.outputs[i]);
      text += ")  " + call.origin + "; " + call.reason + "\n";
    }
  return text;
}

std::string to_string(const CallProgram& program) {
  std::string text = "target " + program.target.name + "\n";
  for (size_t i = 0; i < program.graphs.size(); ++i) {
    const CallGraph& calls = program.graphs[i];
    text += std::string(calls.is_body ? "body " : "entry ") + std::to_string(i) + " " + calls.graph.name() +
            bucket_text(calls.bucket) + "\n";
    for (size_t extra = 0; extra < calls.extra.size(); ++extra)
      text += "  extra " +
              root_text(static_cast<ValueId>(calls.graph.value_count() + static_cast<int>(extra)), calls) +
              " " + to_string(calls.extra[extra].type) + "\n";
    for (const KernelCall& call : calls.init_calls) text += "  init\n" + call_text(call, calls, "  ");
    for (const KernelCall& call : calls.calls) text += call_text(call, calls, "  ");
    for (size_t output = 0; output < calls.output_roots.size(); ++output)
      text += "  output " + calls.graph.output_names()[output] + " is " +
              root_text(calls.output_roots[output], calls) + "\n";
    for (size_t number = 0; number < calls.programs.size(); ++number)
      text += "  program " + std::to_string(number) + "\n" + to_string(calls.programs[number]) + "\n";
  }
  return text;
}

}  // namespace aicf
