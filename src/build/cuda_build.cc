#include "build/cuda_build.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <sstream>

#include "base/error.h"
#include "build/code_cache.h"
#include "build/nvrtc.h"
#include "kernels/custom_kernel.h"
#include "select/cuda_problem.h"

namespace aicf {
namespace {

constexpr int kModuleCost = 8;  // a module is full at the cost of so many small kernels

// Matrix units unroll into long code: such a kernel takes as long to compile as many small ones.
int compile_cost(const std::string& source) {
  return source.find("wgmma") != std::string::npos || source.find("mma.cuh") != std::string::npos
             ? kModuleCost
             : 1;
}

// Sources as one translation unit: includes first, then each source in a namespace of its own.
class UnitWriter {
 public:
  void add(const std::string& source, size_t index) {
    std::istringstream in(source);
    std::string line, body;
    while (std::getline(in, line)) {
      if (!line.starts_with("#include")) {
        body += line + "\n";
      } else if (included_.insert(line).second) {
        includes_ += line + "\n";
      }
    }
    bodies_ += "\nnamespace source_" + std::to_string(index) + " {\n" + body + "}\n";
  }
  std::string text() const { return includes_ + bodies_; }

 private:
  std::set<std::string> included_;
  std::string includes_, bodies_;
};

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

}  // namespace

int32_t CudaBuilder::intern_source(const CudaCode& code) {
  const auto [at, fresh] = index_.emplace(code.source, static_cast<int32_t>(sources_.size()));
  if (fresh) sources_.push_back(with_unique_names(code, sources_.size()));
  return at->second;
}

StepLaunches CudaBuilder::add_call(const KernelCall& call, const TileProgram* program,
                                   const std::vector<bool>& constant) {
  const CudaKernel* kernel = find_cuda_kernel(call.kernel);
  AICF_CHECK(call.custom != nullptr || kernel != nullptr,
             "a selected kernel is not in the table: " + call.kernel);
  CudaProblem problem = cuda_problem(call, target_.arch, ranges_);
  for (size_t i = 0; i < call.inputs.size() && !constant.empty(); ++i)
    problem.inputs[i].constant = constant[static_cast<size_t>(call.inputs[i].root)];
  problem.program = program;
  CudaCode code =
      call.custom != nullptr ? custom_cuda_code(*call.custom, target_.arch) : kernel->generate(problem);
  const int32_t source = intern_source(code);
  for (CudaLaunch& launch : code.launches) launch.function += "_" + std::to_string(source);
  return {source, std::move(code.launches), std::move(code.workspace_bytes)};
}

std::vector<StepLaunches> CudaBuilder::add_list(const std::vector<KernelCall>& calls,
                                                const std::vector<TileProgram>& programs,
                                                const std::vector<bool>& constant) {
  std::vector<StepLaunches> result;
  for (const KernelCall& call : calls)
    result.push_back(
        add_call(call, call.region >= 0 ? &programs[static_cast<size_t>(call.region)] : nullptr, constant));
  return result;
}

std::vector<StepLaunches> CudaBuilder::add(const KernelCalls& calls,
                                           const std::vector<TileProgram>& programs) {
  return add_list(calls.calls, programs, calls.constant);
}

std::vector<StepLaunches> CudaBuilder::add_init(const KernelCalls& calls,
                                                const std::vector<TileProgram>& programs) {
  return add_list(calls.init_calls, programs, {});
}

std::vector<Array> CudaBuilder::compile(std::vector<std::vector<StepLaunches>>& launches,
                                        std::vector<std::vector<StepLaunches>>& init_launches) const {
  if (sources_.empty()) return {};
  std::vector<UnitWriter> units;
  std::vector<std::string> images;  // of PTX, which the driver compiles: modules after those of the units
  std::vector<int32_t> unit_of(sources_.size());
  int cost = kModuleCost;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (is_ptx(sources_[i])) {
      images.push_back(sources_[i]);
      unit_of[i] = -static_cast<int32_t>(images.size());
      continue;
    }
    const int added = compile_cost(sources_[i]);
    if (cost + added > kModuleCost) units.emplace_back(), cost = 0;
    cost += added;
    units.back().add(sources_[i], i);
    unit_of[i] = static_cast<int32_t>(units.size()) - 1;
  }
  for (int32_t& unit : unit_of)
    if (unit < 0) unit = static_cast<int32_t>(units.size()) - 1 - unit;
  for (auto* list : {&launches, &init_launches})
    for (std::vector<StepLaunches>& entry : *list)
      for (StepLaunches& step : entry)
        if (step.module >= 0) step.module = unit_of[static_cast<size_t>(step.module)];
  std::vector<std::string> texts;
  for (const UnitWriter& unit : units) texts.push_back(unit.text());
  if (!texts.empty()) {
    std::vector<std::string> compiled = compile_cached(texts, target_.code_target());
    images.insert(images.begin(), std::make_move_iterator(compiled.begin()),
                  std::make_move_iterator(compiled.end()));
  }
  std::vector<Array> modules;
  for (const std::string& image : images) {
    Array bytes(DType::u8, {static_cast<int64_t>(image.size())});
    std::memcpy(bytes.mutable_data(), image.data(), image.size());
    modules.push_back(std::move(bytes));
  }
  return modules;
}

}  // namespace aicf
