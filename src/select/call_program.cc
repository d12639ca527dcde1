#include "select/call_program.h"

#include <algorithm>
#include <utility>

#include "ir/text.h"

namespace aicf {
namespace {

std::string root_text(ValueId root, const CallGraph& calls) {
  const std::string name = root < 0 ? "" : calls.name_of(root);
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

// What runs, a line for each field.
class WhatLines {
 public:
  explicit WhatLines(const CallGraph& calls) : calls_(calls) {}

  void operator()(std::monostate) {}
  void operator()(const RowCall& row) {
    add_params(row.params, row.fparams);
    if (row.indexed) lines.push_back("the last input numbers rows of input " + std::to_string(*row.indexed));
    for (const ProgramUse& use : row.programs)
      lines.push_back((use.role == ProgramRole::kRegion     ? "region program "
                       : use.role == ProgramRole::kEpilogue ? "epilogue program "
                                                            : "prologue program ") +
                      std::to_string(use.index) + ", operands from " + std::to_string(use.first_operand));
    if (row.schedule)
      lines.push_back("inner rank " + std::to_string(row.schedule->inner_rank) + " of axes " +
                      to_string(row.schedule->domain_axes));
  }
  void operator()(const LibraryRun& library) {
    lines.push_back("library " + library.text + ", workspace " + std::to_string(library.workspace_bytes));
    (*this)(library.fallback);
  }
  void operator()(const Bundle&) {}
  void operator()(const GroupedProducts&) {}
  void operator()(const PrologueFusion&) {}
  void operator()(const ControlRun& control) {
    add_params(control.params, {});
    for (const int body : control.bodies)
      lines.push_back("body " + std::to_string(calls_.bodies[static_cast<size_t>(body)]));
  }
  void operator()(const CustomRun& custom) { add_params(custom.params, custom.fparams); }

  std::vector<std::string> lines;

 private:
  void add_params(const std::vector<Dim>& params, const std::vector<double>& fparams) {
    if (!params.empty()) lines.push_back("params " + to_string(params));
    for (const double param : fparams) lines.push_back("fparam " + std::to_string(param));
  }

  const CallGraph& calls_;
};

std::string call_text(const KernelCall& call, const CallGraph& calls, const std::string& indent) {
  std::string text = indent + to_string(named(call)) + "  " + origin_text(call) + "; " + call.reason + "\n";
  const auto line = [&](const std::string& what) { text += indent + "  " + what + "\n"; };
  for (const Window& w : call.inputs) line("in  " + window_text(w, calls));
  for (const Window& w : call.outputs) line("out " + window_text(w, calls));
  WhatLines what(calls);
  std::visit(what, call.what);
  for (const std::string& one : what.lines) line(one);
  if (!(call.lane == Lane())) line(to_string(call.lane));
  if (!call.elementwise.empty())
    line("elementwise " + to_string(std::vector<int64_t>(call.elementwise.begin(), call.elementwise.end())));
  for (const auto& [member, stage] : members_of(call)) {
    line("member of stage " + std::to_string(stage));
    text += call_text(*member, calls, indent + "    ");
  }
  return text;
}

}  // namespace

ValueId CallGraph::add_extra(ExtraValue value) {
  const auto root = static_cast<ValueId>(graph.value_count() + static_cast<int>(extra.size()));
  constant.push_back(value.kind == ExtraValue::Kind::kPacked);
  extra.push_back(std::move(value));
  return root;
}

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
  std::string text = calls.graph.name() + bucket_text(calls.bucket) + "\n";
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
  return text;
}

std::string to_string(const CallProgram& program) {
  std::string text = "target " + program.target.name + "\n";
  for (size_t i = 0; i < program.graphs.size(); ++i)
    text += std::string(program.graphs[i].is_body ? "body " : "entry ") + std::to_string(i) + " " +
            to_string(program.graphs[i]);
  return text;
}

}  // namespace aicf
