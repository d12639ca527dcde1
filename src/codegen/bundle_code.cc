#include "codegen/fused_code.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/comma_list.h"
#include "base/error.h"
#include "codegen/unit_writer.h"
#include "kernels/common/cuda_text.h"
#include "select/cuda_problem.h"
#include "select/layout.h"

namespace aicf {
namespace {

constexpr int kSharedThreads = 384;  // of a multiprocessor, for which registers are kept side by side
constexpr int64_t kManyCallers = 4;  // of a function, from which on its code stands there once
constexpr char kMemberPrefix[] = "member_";
constexpr char kWaitText[] = "aicf::wait_for_inputs();\naicf::launch_dependents();\n";

class BundleWriter {
 public:
  BundleWriter(const KernelCall& bundle, const CodeContext& context)
      : bundle_(bundle), members_(std::get<Bundle>(bundle.what).members), context_(context) {}

  CudaCode write() {
    add_members();
    const int stages = members_.back().stage + 1;
    blocks_ = stages == 1 ? 0 : bundle_blocks(widest(), context_.target);
    launch_.function = kBundleKernel;
    launch_.cluster = std::max(blocks_, 1);
    launch_.grid[0] = stages == 1 ? total(0) : Dim(blocks_);
    if (stages == 1)
      for (size_t i = 0; i < launches_.size(); ++i) add_early_inputs(i);
    std::string body = launch_.early_inputs.empty() ? kWaitText : "";
    for (int stage = 0; stage < stages; ++stage)
      body +=
          (stage == 0 ? "" : "aicf::stage_barrier<" + std::to_string(blocks_) + ">();\n") + stage_text(stage);
    launch_.params = params_.dims();
    CudaProblem problem = cuda_problem(bundle_, context_.target, context_.ranges);
    // What one member writes the next one reads, so no pointer is alone.
    problem.replaced.resize(problem.inputs.size());
    std::iota(problem.replaced.begin(), problem.replaced.end(), 0);
    CudaCode code;
    code.source =
        "#include \"bundle.cuh\"\n" + unit_.text() + "\n" +
        cuda_kernel_head(problem, launch_, false, stages == 1 ? kSharedThreads / launch_.block : 0) + body +
        "}\n";
    code.launches = {launch_};
    code.compile_cost = std::min(compile_cost_, kLongToCompile);
    return code;
  }

 private:
  void add_members() {
    std::map<std::string, std::string> names;  // of namespaces, by text: equal texts stand there once
    for (const CudaCode& code : member_codes()) {
      const auto [at, fresh] = names.emplace(code.source, kMemberPrefix + std::to_string(names.size()));
      if (fresh) unit_.add(code.source, at->second), compile_cost_ += code.compile_cost;
      functions_.push_back(at->second + "::" + code.launches[0].function);
      launches_.push_back(code.launches[0]);
      launch_.block =
          functions_.size() == 1 ? code.launches[0].block : std::max(launch_.block, code.launches[0].block);
      launch_.shared_bytes = std::max(launch_.shared_bytes, code.launches[0].shared_bytes);
    }
  }

  // Members that differ in sizes alone get one text for any.
  std::vector<CudaCode> member_codes() {
    std::vector<CudaCode> codes, any_sizes;
    for (const auto& [member, stage] : members_) {
      codes.push_back(call_code(member, context_, CodeForm::member));
      any_sizes.push_back(call_code(member, context_, CodeForm::member_any_sizes));
      AICF_CHECK(joins_bundle(codes.back()), "a member of a bundle cannot be one: " + origin_text(member));
    }
    std::map<std::string, std::set<std::string>> texts;  // by that for any sizes
    for (size_t i = 0; i < codes.size(); ++i) texts[any_sizes[i].source].insert(codes[i].source);
    for (size_t i = 0; i < codes.size(); ++i) {
      any_sizes_.push_back(texts[any_sizes[i].source].size() > 1);
      if (any_sizes_[i]) codes[i] = any_sizes[i];
    }
    return codes;
  }

  Dim total(int stage) const {
    Dim blocks(0);
    for (size_t i = 0; i < launches_.size(); ++i)
      if (members_[i].stage == stage) blocks = blocks + launches_[i].grid[0];
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
  };

  // Block `at` of the stage belongs to the member whose range it lies in. Many members with one function
  // choose its arguments, and one call of it follows: its code stands there once.
  std::string stage_text(int stage) {
    std::string text, else_text, shared;
    Dim begin(0);
    std::set<std::string> declared;
    for (size_t i = 0; i < launches_.size(); ++i) {
      if (members_[i].stage != stage) continue;
      const Dim end = begin + launches_[i].grid[0];
      const std::vector<Argument> list = arguments(i, begin);
      const bool shares = any_sizes_[i] || callers(i) >= kManyCallers;
      text += else_text + "if (at < uint32_t(" + params_.expr(end) + ")) {\n" +
              (shares ? choice_text(i, list) : call_text(i, values(list))) + "}";
      if (shares && declared.insert(functions_[i]).second) {
        text = declaration_text(i, list) + text;
        shared += "if (" + variable(i) + "chosen) {\n" + call_text(i, variables(i, list)) + "}\n";
      }
      else_text = " else ";
      begin = end;
    }
    text += "\n" + shared;
    if (blocks_ == 0) return "const uint32_t at = blockIdx.x;\n" + text;
    // A member's shared memory is free for the next block when all threads have left it.
    return "for (uint32_t at = blockIdx.x; at < uint32_t(" + params_.expr(begin) +
           "); at += " + std::to_string(blocks_) + ") {\n" + text + "__syncthreads();\n}\n";
  }

  // Members of its stage that call the function of this one.
  int64_t callers(size_t index) const {
    int64_t count = 0;
    for (size_t i = 0; i < functions_.size(); ++i)
      count += functions_[i] == functions_[index] && members_[i].stage == members_[index].stage;
    return count;
  }

  std::vector<Argument> arguments(size_t index, const Dim& begin) {
    const KernelCall& member = members_[index].call;
    const CudaLaunch& launch = launches_[index];
    std::vector<Argument> list = {{"uint32_t", "at - uint32_t(" + params_.expr(begin) + ")"}};
    const auto add = [&](const std::vector<Window>& windows, const std::vector<Window>& all, const char* name,
                         const std::string& qualifier) {
      const std::vector<int32_t> numbers = operand_numbers(windows, all);
      for (size_t i = 0; i < numbers.size(); ++i)
        list.push_back(
            {qualifier + std::string(cuda_type(windows[i].dtype)) + "*", name + std::to_string(numbers[i])});
    };
    add(member.inputs, bundle_.inputs, "in", "const ");
    add(member.outputs, bundle_.outputs, "out", "");
    for (const Dim& param : launch.params) list.push_back({"int64_t", params_.expr(param)});
    for (const double param : launch.fparams) {
      list.push_back({"double", "f" + std::to_string(launch_.fparams.size())});
      launch_.fparams.push_back(param);
    }
    if (launch.reports_errors) {
      launch_.reports_errors = true;
      list.push_back({"aicf::CallError*", "error + " + std::to_string(index)});
    }
    return list;
  }
  static std::vector<std::string> values(const std::vector<Argument>& list) {
    std::vector<std::string> texts;
    for (const Argument& argument : list) texts.push_back(argument.value);
    return texts;
  }
  std::string call_text(size_t index, const std::vector<std::string>& texts) const {
    const int block = launches_[index].block;
    std::string text = block < launch_.block ? "if (threadIdx.x < " + std::to_string(block) + ") " : "";
    if (!launch_.early_inputs.empty() && launches_[index].early_inputs.empty()) text = kWaitText + text;
    return text + functions_[index] + "(" + comma_list(texts) + ");\n";
  }

  // The inputs that a member reads early are the bundle's; all its members then wait by themselves.
  void add_early_inputs(size_t index) {
    const std::vector<int32_t> numbers = operand_numbers(members_[index].call.inputs, bundle_.inputs);
    for (const int32_t input : launches_[index].early_inputs) {
      const int32_t number = numbers[static_cast<size_t>(input)];
      if (std::find(launch_.early_inputs.begin(), launch_.early_inputs.end(), number) ==
          launch_.early_inputs.end())
        launch_.early_inputs.push_back(number);
    }
  }

  // Variables of a shared function: member_2_0, …, and member_2_chosen.
  std::string variable(size_t index) const {
    return functions_[index].substr(0, functions_[index].find(':')) + "_";
  }
  std::vector<std::string> variables(size_t index, const std::vector<Argument>& list) const {
    std::vector<std::string> names;
    for (size_t i = 0; i < list.size(); ++i) names.push_back(variable(index) + std::to_string(i));
    return names;
  }
  std::string declaration_text(size_t index, const std::vector<Argument>& list) const {
    const std::vector<std::string> names = variables(index, list);
    std::string text = "bool " + variable(index) + "chosen = false;\n";
    for (size_t i = 0; i < list.size(); ++i) text += list[i].type + " " + names[i] + " = {};\n";
    return text;
  }
  std::string choice_text(size_t index, const std::vector<Argument>& list) const {
    const std::vector<std::string> names = variables(index, list);
    std::string text = variable(index) + "chosen = true;\n";
    for (size_t i = 0; i < list.size(); ++i) text += names[i] + " = " + list[i].value + ";\n";
    return text;
  }

  const KernelCall& bundle_;
  const std::vector<BundleMember>& members_;
  const CodeContext& context_;
  UnitWriter unit_;
  CudaParams params_;
  CudaLaunch launch_;
  int compile_cost_ = 0;                // of the texts
  int blocks_ = 0;                      // over which all stages are distributed; 0: one stage
  std::vector<std::string> functions_;  // of the members
  std::vector<CudaLaunch> launches_;
  std::vector<bool> any_sizes_;  // whether a member has its text with members of other sizes
};

}  // namespace

CudaCode bundle_code(const KernelCall& bundle, const CodeContext& context) {
  return BundleWriter(bundle, context).write();
}

}  // namespace aicf
