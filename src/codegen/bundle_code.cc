#include "codegen/fused_code.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "base/comma_list.h"
#include "base/error.h"
#include "codegen/unit_writer.h"
#include "kernels/common/cuda_text.h"
#include "select/cuda_problem.h"
#include "select/layout.h"

namespace aicf {
namespace {

constexpr int kSharedThreads = 384;      // of a multiprocessor, for which registers are kept side by side
constexpr int64_t kManyCallers = 4;      // of a function, from which on its code stands there once
constexpr int64_t kWorkspaceUnit = 256;  // bytes: where a member's workspace begins
constexpr char kMemberPrefix[] = "member_";
constexpr char kWaitText[] = "aicf::wait_for_inputs();\naicf::launch_dependents();\n";

class BundleWriter {
 public:
  BundleWriter(const KernelCall& bundle, const CodeContext& context) : bundle_(bundle), context_(context) {}

  CudaCode write() {
    add_members(std::get<Bundle>(bundle_.what).members);
    CudaProblem problem = cuda_problem(bundle_, context_.target, context_.ranges);
    // What one member writes the next one reads, so no pointer is alone.
    problem.replaced.resize(problem.inputs.size());
    std::iota(problem.replaced.begin(), problem.replaced.end(), 0);
    CudaCode code;
    std::string kernels;
    for (number_ = 0; number_ < members_[0].launches.size(); ++number_) {
      kernels += kernel_text(problem);
      code.launches.push_back(launch_);
    }
    code.source = "#include \"bundle.cuh\"\n" + unit_.text() + "\n" + kernels;
    code.workspace_bytes = workspace_bytes_;
    code.compile_cost = std::min(compile_cost_, kLongToCompile);
    return code;
  }

 private:
  struct Member {
    size_t number;
    const KernelCall& call;
    int stage;
    bool has_any_sizes;  // it has its text with members of other sizes
    std::string space;   // the namespace of its text
    std::vector<CudaLaunch> launches;
    std::optional<Dim> workspace;  // where its own begins in that of all, in bytes
  };

  // Of the launch that is written.
  const CudaLaunch& launch_of(const Member& member) const { return member.launches[number_]; }
  std::string function_of(const Member& member) const {
    return member.space + "::" + launch_of(member).function;
  }

  // The launch in which all members run theirs of this number.
  std::string kernel_text(const CudaProblem& problem) {
    params_ = CudaParams();
    launch_ = CudaLaunch();
    launch_.block = 0;
    for (const Member& member : members_) {
      launch_.block = std::max(launch_.block, launch_of(member).block);
      launch_.shared_bytes = std::max(launch_.shared_bytes, launch_of(member).shared_bytes);
    }
    const int stages = members_.back().stage + 1;
    blocks_ = stages == 1 ? 0 : bundle_blocks(widest(), context_.target);
    launch_.function = kBundleKernel + (number_ == 0 ? "" : "_launch" + std::to_string(number_));
    launch_.cluster = std::max(blocks_, 1);
    launch_.grid[0] = stages == 1 ? total(0) : Dim(blocks_);
    if (stages == 1)
      for (const Member& member : members_) add_early_inputs(member);
    std::string body = launch_.early_inputs.empty() ? kWaitText : "";
    for (int stage = 0; stage < stages; ++stage)
      body +=
          (stage == 0 ? "" : "aicf::stage_barrier<" + std::to_string(blocks_) + ">();\n") + stage_text(stage);
    launch_.params = params_.dims();
    return cuda_kernel_head(problem, launch_, !(workspace_bytes_ == Dim(0)),
                            stages == 1 ? kSharedThreads / launch_.block : 0) +
           body + "}\n";
  }

  // Members that differ in sizes alone get one text for any; equal texts stand there once.
  void add_members(const std::vector<BundleMember>& calls) {
    std::vector<CudaCode> own, any_sizes;
    std::map<std::string, std::set<std::string>> texts;  // by that for any sizes
    for (const auto& [call, stage] : calls) {
      own.push_back(call_code(call, context_, CodeForm::member));
      any_sizes.push_back(call_code(call, context_, CodeForm::member_any_sizes));
      AICF_CHECK(joins_bundle(own.back()), "a member of a bundle cannot be one: " + origin_text(call));
      texts[any_sizes.back().source].insert(own.back().source);
    }
    std::map<std::string, std::string> spaces;  // by text
    for (size_t i = 0; i < calls.size(); ++i) {
      const bool has_any_sizes = texts[any_sizes[i].source].size() > 1;
      const CudaCode& code = has_any_sizes ? any_sizes[i] : own[i];
      const auto [at, fresh] = spaces.emplace(code.source, kMemberPrefix + std::to_string(spaces.size()));
      if (fresh) unit_.add(code.source, at->second), compile_cost_ += code.compile_cost;
      members_.push_back({i, calls[i].call, calls[i].stage, has_any_sizes, at->second, code.launches, {}});
      AICF_CHECK(members_.back().launches.size() == members_[0].launches.size() &&
                     (members_[0].launches.size() == 1 || calls[i].stage == 0),
                 "members of a bundle have as many launches, and of several one stage");
      if (code.workspace_bytes == Dim(0)) continue;
      members_.back().workspace = workspace_bytes_;
      workspace_bytes_ =
          workspace_bytes_ + ceildiv(code.workspace_bytes, Dim(kWorkspaceUnit)) * Dim(kWorkspaceUnit);
    }
  }

  Dim total(int stage) const {
    Dim blocks(0);
    for (const Member& member : members_)
      if (member.stage == stage) blocks = blocks + launch_of(member).grid[0];
    return blocks;
  }
  int64_t widest() const {
    int64_t blocks = 1;
    for (int stage = 0; stage <= members_.back().stage; ++stage)
      blocks = std::max(blocks, bounds(total(stage), context_.ranges).hi);
    return blocks;
  }

  struct Argument {
    std::string type, value;
    std::string variable;  // of a shared function: member_2_0, …
  };

  // Of a member: its first block past the end, and the text that runs it.
  struct Branch {
    Dim end;
    std::string text;
  };

  // The branch that block `at` takes, found by halves: each comparison may be a line of instructions to
  // fetch.
  std::string choice_text(const std::vector<Branch>& branches, size_t begin, size_t end) {
    if (end - begin == 1) return branches[begin].text;
    const size_t middle = begin + (end - begin + 1) / 2;
    return "if (at < uint32_t(" + params_.expr(branches[middle - 1].end) + ")) {\n" +
           choice_text(branches, begin, middle) + "} else {\n" + choice_text(branches, middle, end) + "}\n";
  }

  // Block `at` of the stage belongs to the member whose range it lies in. Many members with one function
  // choose its arguments, and one call of it follows: its code stands there once.
  std::string stage_text(int stage) {
    std::string declarations, shared;
    std::vector<Branch> branches;
    Dim begin(0);
    std::set<std::string> declared;
    for (const Member& member : members_) {
      if (member.stage != stage) continue;
      const Dim end = begin + launch_of(member).grid[0];
      const std::vector<Argument> list = arguments(member, begin);
      const std::string chosen = member.space + "_chosen";
      const bool shares = member.has_any_sizes || callers(member) >= kManyCallers;
      std::string own = shares ? chosen + " = true;\n" : call_text(member, list, &Argument::value);
      for (size_t i = 0; shares && i < list.size(); ++i)
        own += list[i].variable + " = " + list[i].value + ";\n";
      branches.push_back({end, std::move(own)});
      if (shares && declared.insert(function_of(member)).second) {
        declarations += "bool " + chosen + " = false;\n";
        for (const Argument& one : list) declarations += one.type + " " + one.variable + " = {};\n";
        shared += "if (" + chosen + ") {\n" + call_text(member, list, &Argument::variable) + "}\n";
      }
      begin = end;
    }
    const std::string text = declarations + choice_text(branches, 0, branches.size()) + shared;
    if (blocks_ == 0) return "const uint32_t at = blockIdx.x;\n" + text;
    // A member's shared memory is free for the next block when all threads have left it.
    return "for (uint32_t at = blockIdx.x; at < uint32_t(" + params_.expr(begin) +
           "); at += " + std::to_string(blocks_) + ") {\n" + text + "__syncthreads();\n}\n";
  }

  // Members of its stage that call the function of this one.
  int64_t callers(const Member& member) const {
    return std::count_if(members_.begin(), members_.end(), [&](const Member& other) {
      return other.stage == member.stage && function_of(other) == function_of(member);
    });
  }

  std::vector<Argument> arguments(const Member& member, const Dim& begin) {
    std::vector<Argument> list;
    const auto add = [&](const std::string& type, const std::string& value) {
      list.push_back({type, value, member.space + "_" + std::to_string(list.size())});
    };
    const auto add_operands = [&](const std::vector<Window>& windows, const std::vector<Window>& all,
                                  const std::string& qualifier, const std::string& name) {
      const std::vector<int32_t> numbers = operand_numbers(windows, all);
      for (size_t i = 0; i < numbers.size(); ++i)
        add(qualifier + std::string(cuda_type(windows[i].dtype)) + "*", name + std::to_string(numbers[i]));
    };
    add("uint32_t", "at - uint32_t(" + params_.expr(begin) + ")");
    add_operands(member.call.inputs, bundle_.inputs, "const ", "in");
    add_operands(member.call.outputs, bundle_.outputs, "", "out");
    if (member.workspace) add("void*", "static_cast<char*>(workspace) + " + params_.expr(*member.workspace));
    for (const Dim& param : launch_of(member).params) add("int64_t", params_.expr(param));
    for (const double param : launch_of(member).fparams) {
      add("double", "f" + std::to_string(launch_.fparams.size()));
      launch_.fparams.push_back(param);
    }
    if (launch_of(member).reports_errors) {
      launch_.reports_errors = true;
      add("aicf::CallError*", "error + " + std::to_string(member.number));
    }
    return list;
  }

  std::string call_text(const Member& member, const std::vector<Argument>& list,
                        std::string Argument::* text) const {
    const int block = launch_of(member).block;
    const bool waits = !launch_.early_inputs.empty() && launch_of(member).early_inputs.empty();
    return (waits ? kWaitText : "") +
           (block < launch_.block ? "if (threadIdx.x < " + std::to_string(block) + ") " : "") +
           function_of(member) + "(" + comma_list(list, text) + ");\n";
  }

  // The inputs that a member reads early are the bundle's; all its members then wait by themselves.
  void add_early_inputs(const Member& member) {
    const std::vector<int32_t> numbers = operand_numbers(member.call.inputs, bundle_.inputs);
    std::vector<int32_t>& early = launch_.early_inputs;
    for (const int32_t input : launch_of(member).early_inputs) {
      const int32_t number = numbers[static_cast<size_t>(input)];
      if (std::find(early.begin(), early.end(), number) == early.end()) early.push_back(number);
    }
  }

  const KernelCall& bundle_;
  const CodeContext& context_;
  std::vector<Member> members_;
  UnitWriter unit_;
  size_t number_ = 0;  // of the launch that is written
  CudaParams params_;
  CudaLaunch launch_;
  Dim workspace_bytes_ = Dim(0);
  int compile_cost_ = 0;  // of the texts
  int blocks_ = 0;        // over which all stages are distributed; 0: one stage
};

}  // namespace

CudaCode bundle_code(const KernelCall& bundle, const CodeContext& context) {
  return BundleWriter(bundle, context).write();
}

}  // namespace aicf
