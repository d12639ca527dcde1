#include "codegen/cuda_build.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/error.h"
#include "codegen/fused_code.h"
#include "codegen/nvrtc.h"
#include "codegen/unit_writer.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/common/custom_kernel.h"

namespace aicf {
namespace {

constexpr int kModuleCost = kLongToCompile;  // of a module that is full

// Functions of different sources may have one name, and an extern "C" name belongs to the whole module. A
// kernel's name stands at the start of a line, as cuda_kernel_head writes it, and nowhere else.
std::string with_unique_names(const CudaCode& code, size_t index) {
  std::set<std::string> names;
  for (const CudaLaunch& launch : code.launches) names.insert("\n" + launch.function + "(");
  std::string text = code.source;
  for (const std::string& name : names) {
    const size_t at = text.find(name);
    AICF_CHECK(at != std::string::npos, "a launched function is not in its source:" + name);
    text.insert(at + name.size() - 1, "_" + std::to_string(index));
  }
  return text;
}

// What the calls before the next one write, back to the last that it follows and that launches whatever the
// sizes: that has waited for all before itself, and the next call's first launch begins after that
// (prelude.cuh). Else `roots`, too.
std::set<ValueId> roots_of_running(const std::vector<KernelCall>& calls,
                                   const std::vector<StepLaunches>& before, std::set<ValueId> roots) {
  std::set<ValueId> written;
  for (size_t i = before.size(); i-- > 0;) {
    for (const Window& w : calls[i].outputs) written.insert(w.root);
    if (always_follows(calls[before.size()].lane, calls[i].lane) &&
        std::any_of(before[i].launches.begin(), before[i].launches.end(), is_always_launched))
      return written;
  }
  roots.merge(written);
  return roots;
}

// Bytes of shared memory of a large block, and microseconds of a call that loses more by sharing than a later
// start costs it.
constexpr int64_t kLargeBlock = 32 * 1024;
constexpr double kLongCall = 5;

bool is_long(const KernelCall& call) {
  const Choice& choice = call.choice;
  return std::holds_alternative<GroupedProducts>(call.what) ||
         (!choice.candidates.empty() && choice.candidates[choice.chosen].price_us >= kLongCall);
}

// From sm_90 on a kernel may begin while the one before it ends, and blocks come to where that ends first:
// two of few large ones to one multiprocessor, while another has none. Blocks that ask for more than half of
// the shared memory stay apart.
void keep_apart(CudaLaunch& launch, const Target& target) {
  const auto blocks = (launch.grid[0] * launch.grid[1] * launch.grid[2]).constant();
  if (!blocks || *blocks > target.facts().multiprocessors || launch.shared_bytes < kLargeBlock) return;
  constexpr int64_t kReserved = 1024;  // bytes that each block takes beside its own
  launch.shared_bytes = std::max(launch.shared_bytes, shared_limit(target.arch) / 2 + kReserved);
}

CudaCode code_of(const KernelCall& call, const CodeContext& context) {
  if (std::holds_alternative<Bundle>(call.what)) return bundle_code(call, context);
  if (std::holds_alternative<GroupedProducts>(call.what)) return product_group_code(call, context);
  if (std::holds_alternative<PrologueFusion>(call.what)) return prologue_code(call, context);
  return call_code(call, context, CodeForm::kernel);
}

}  // namespace

std::string to_string(const ModuleRecord& record) {
  const size_t count = record.functions.size();
  std::string text = "module";
  if (count > 0) text += " of " + record.functions.front();
  if (count > 1) text += " and " + std::to_string(count - 1) + " more";
  return text + ": " + std::to_string(record.milliseconds) + " ms, " + std::to_string(record.bytes) +
         " bytes";
}

int32_t CudaBuilder::intern_source(const CudaCode& code) {
  const auto [at, fresh] = index_.emplace(code.source, static_cast<int32_t>(sources_.size()));
  if (fresh) {
    sources_.push_back(with_unique_names(code, sources_.size()));
    std::set<std::string> functions;
    for (const CudaLaunch& launch : code.launches) functions.insert(launch.function);
    works_.push_back({static_cast<int>(functions.size()), code.compile_cost});
  }
  return at->second;
}

StepLaunches CudaBuilder::add_call(const KernelCall& call, const CodeContext& context) {
  CudaCode code = code_of(call, context);
  const int32_t source = intern_source(code);
  for (CudaLaunch& launch : code.launches) launch.function += "_" + std::to_string(source);
  return {source, std::move(code.launches), std::move(code.workspace_bytes)};
}

std::vector<StepLaunches> CudaBuilder::add_list(const std::vector<KernelCall>& calls, CodeContext context,
                                                const std::set<ValueId>& running) {
  std::vector<StepLaunches> result;
  OpenLanes open;
  for (const KernelCall& call : calls) {
    context.running = roots_of_running(calls, result, running);
    open.begin(call.lane, result.size());
    result.push_back(add_call(call, context));
    bool is_alone = call.lane.number == 0;
    open.visit_beside(call.lane, [&](size_t) { is_alone = false; });
    if (target_.arch >= 90 && is_alone && is_long(call))
      for (CudaLaunch& launch : result.back().launches) keep_apart(launch, target_);
  }
  return result;
}

CodedGraph CudaBuilder::add(const CallGraph& calls, const std::set<ValueId>& running) {
  static const std::vector<bool> kNothing;  // is constant for init, which writes it
  CodedGraph code;
  code.calls = add_list(calls.calls, context_of(calls, target_), running);
  code.init = add_list(calls.init_calls, {calls.programs, kNothing, target_, calls.ranges}, {});
  return code;
}

std::vector<CudaUnit> CudaBuilder::units(const std::vector<CodedGraph*>& graphs) const {
  std::vector<UnitWriter> writers;
  std::vector<CompileWork> works;  // by unit
  int32_t images = 0;              // of PTX, which the driver compiles: modules after those of the units
  std::vector<int32_t> module_of(sources_.size());
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (is_ptx(sources_[i])) {
      module_of[i] = -++images;
      continue;
    }
    const auto& [kernels, cost] = works_[i];
    if (works.empty() || works.back().cost + cost > kModuleCost) {
      writers.emplace_back();
      works.push_back({0, 0});
    }
    works.back().kernels += kernels;
    works.back().cost += cost;
    writers.back().add(sources_[i], "source_" + std::to_string(i));
    module_of[i] = static_cast<int32_t>(writers.size()) - 1;
  }
  for (int32_t& module : module_of)
    if (module < 0) module = static_cast<int32_t>(writers.size()) - 1 - module;
  for (CodedGraph* graph : graphs)
    for (auto* list : {&graph->calls, &graph->init})
      for (StepLaunches& step : *list)
        if (step.module >= 0) step.module = module_of[static_cast<size_t>(step.module)];
  std::vector<CudaUnit> result;
  for (size_t i = 0; i < writers.size(); ++i)
    result.push_back({writers[i].text(), target_.code_target(), works[i]});
  return result;
}

std::vector<Array> CudaBuilder::modules(const std::vector<std::string>& images) const {
  std::vector<Array> result;
  const auto add = [&](const std::string& image) {
    Array bytes(DType::u8, {static_cast<int64_t>(image.size())});
    std::memcpy(bytes.mutable_data(), image.data(), image.size());
    result.push_back(std::move(bytes));
  };
  for (const std::string& image : images) add(image);
  for (const std::string& source : sources_)
    if (is_ptx(source)) add(source);
  return result;
}

std::vector<ModuleRecord> module_records(const std::vector<CodedGraph*>& graphs,
                                         const std::vector<Array>& modules, std::vector<double> milliseconds,
                                         const std::string& target) {
  milliseconds.resize(modules.size());
  std::vector<std::set<std::string>> functions(modules.size());
  for (const CodedGraph* graph : graphs)
    for (const auto* list : {&graph->calls, &graph->init})
      for (const StepLaunches& step : *list)
        for (const CudaLaunch& launch : step.launches)
          if (step.module >= 0) functions[static_cast<size_t>(step.module)].insert(launch.function);
  std::vector<ModuleRecord> records;
  for (size_t i = 0; i < modules.size(); ++i)
    records.push_back(
        {target, {functions[i].begin(), functions[i].end()}, modules[i].sizes()[0], milliseconds[i]});
  return records;
}

}  // namespace aicf
