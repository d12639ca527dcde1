#include "tune/trial_run.h"

#include <algorithm>

#include "plan/arena.h"
#include "plan/plan.h"
#include "select/region_codegen.h"

namespace aicf {
namespace {

constexpr int64_t kSampledRows = 256;
// Of the steps; one for all copies, which run one after the other.
constexpr ValueId kWorkspaceRoot = -2, kLibraryRoot = -3;

std::map<ValueId, int64_t> root_bytes(const Trial& trial, const SymbolValues& sizes) {
  std::map<ValueId, int64_t> bytes;
  const auto add = [&](const Window& w) {
    int64_t& most = bytes[w.root];
    most = std::max(most, reach_bytes(plain(w, sizes)));
  };
  for (const auto* list : {&trial.init, &trial.calls})
    for (const KernelCall& call : *list) {
      for (const Window& w : call.inputs) add(w);
      for (const Window& w : call.outputs) add(w);
    }
  return bytes;
}

}  // namespace

std::vector<TileProgram> programs_of(const Trial& trial) {
  std::vector<TileProgram> programs(trial.regions.size());
  for (const KernelCall& call : trial.calls)
    if (const RowCall* row = own_row(call))
      for (const ProgramUse& use : row->programs) {
        const auto index = static_cast<size_t>(use.index);
        programs[index] = generate_tile_program(trial.regions[index], row->schedule.value_or(Schedule()));
      }
  return programs;
}

int64_t trial_bytes(const Trial& trial, const SymbolValues& sizes) {
  int64_t sum = 0;
  for (const auto& [root, bytes] : root_bytes(trial, sizes)) sum += bytes;
  return sum;
}

TrialRun::TrialRun(Device& device, const Code* code, const Trial& trial, const CodedGraph& trial_code,
                   const std::vector<DType>& rounded, OperandValues& values, const SymbolRanges& ranges,
                   const SymbolValues& sizes, int64_t copies)
    : device_(device), sizes_(sizes), copies_(copies) {
  plan_.sizes = ranges;
  plan_.programs = programs_of(trial);
  add_buffers(trial, trial_code);
  add_steps(trial.calls, trial_code.calls, entry_);
  add_steps(trial.init, trial_code.init, init_entry_);
  std::vector<std::byte*> addresses;
  for (int64_t copy = 0; copy < copies_; ++copy)
    for (const auto& [root, bytes] : bytes_) addresses.push_back(address(root, copy));
  if (!trial.init.empty()) init_ = device_.bind(plan_, init_entry_, code, sizes_, {addresses});
  main_ = device_.bind(plan_, entry_, code, sizes_, {addresses});
  for (size_t i = 0; i < trial.operands.size(); ++i) {
    const std::vector<std::byte>& bytes = values.of(plain(trial.operands[i], sizes_), rounded[i], i);
    const auto count = static_cast<int64_t>(bytes.size());
    std::byte* first = address(trial.operands[i].root, 0);
    device_.upload(first, bytes.data(), count, {});
    for (int64_t copy = 1; copy < copies_; ++copy)
      device_.copy(address(trial.operands[i].root, copy), first, count, {});
  }
  for (const Window& w : trial.outputs) {
    outputs_.push_back(plain(w, sizes_));
    output_roots_.push_back(w.root);
  }
  if (init_ != nullptr) init_->run({});
  device_.wait({});
}

void TrialRun::add_buffers(const Trial& trial, const CodedGraph& code) {
  bytes_ = root_bytes(trial, sizes_);
  int64_t workspace = 0;
  for (const auto* list : {&code.calls, &code.init})
    for (const StepLaunches& launches : *list)
      workspace = std::max(workspace, evaluate(launches.workspace_bytes, sizes_));
  bytes_[kWorkspaceRoot] = std::max<int64_t>(workspace, 1);
  bytes_[kLibraryRoot] = 1;
  for (const KernelCall& call : trial.calls)
    if (const auto* library = std::get_if<LibraryRun>(&call.what))
      bytes_[kLibraryRoot] = std::max(bytes_[kLibraryRoot], library->workspace_bytes);
  for (const auto& [root, bytes] : bytes_) {
    offset_[root] = copy_bytes_;
    copy_bytes_ += align_up(bytes);
  }
  for (int64_t copy = 0; copy < copies_; ++copy)
    for (const auto& [root, bytes] : bytes_) {
      Buffer buffer;
      buffer.name = "root " + std::to_string(root);
      buffer.bytes = Dim(bytes);
      buffer.max_bytes = bytes;
      entry_.buffers.push_back(buffer);
    }
  entry_.name = "trial";
  init_entry_ = entry_;
  memory_ = device_.allocate(copy_bytes_ * copies_);
  device_.zero(memory_->data(), memory_->bytes(), {});
}

void TrialRun::add_steps(const std::vector<KernelCall>& calls, const std::vector<StepLaunches>& launches,
                         EntryPlan& entry) {
  const auto index_of = [&](ValueId root, int64_t copy) {
    return static_cast<int32_t>(copy * static_cast<int64_t>(bytes_.size()) +
                                std::distance(bytes_.begin(), bytes_.find(root)));
  };
  for (int64_t copy = 0; copy < copies_; ++copy)
    for (size_t i = 0; i < calls.size(); ++i) {
      const KernelCall& call = calls[i];
      const RowCall& row = *own_row(call);
      Step step;
      step.kernel = row.row;
      step.variant = to_string(row.way);
      for (const Window& w : call.inputs) step.inputs.push_back({{w}, index_of(w.root, copy)});
      for (const Window& w : call.outputs) step.outputs.push_back({{w}, index_of(w.root, copy)});
      if (const auto* library = std::get_if<LibraryRun>(&call.what))
        step.library = {library->text, index_of(kLibraryRoot, 0)};
      step.params = plan_params(row);
      step.fparams = row.fparams;
      step.origin = origin_text(call);
      if (launches.empty()) {
        if (!row.programs.empty()) step.program = row.programs[0].index;
      } else {
        step.module = launches[i].module;
        step.launches = launches[i].launches;
        if (!(launches[i].workspace_bytes == Dim(0)))
          step.outputs.push_back(
              {DType::u8, Dim(0), {launches[i].workspace_bytes}, {Dim(1)}, index_of(kWorkspaceRoot, 0)});
      }
      entry.steps.push_back(std::move(step));
    }
}

std::byte* TrialRun::address(ValueId root, int64_t copy) const {
  return memory_->data() + copy * copy_bytes_ + offset_.at(root);
}

void TrialRun::poison() {
  const std::vector<std::byte> pattern(int64_t{1} << 16, std::byte{0xff});
  for (const ValueId root : output_roots_) {
    const int64_t bytes = bytes_.at(root);
    std::byte* to = address(root, 0);
    int64_t done = std::min<int64_t>(bytes, static_cast<int64_t>(pattern.size()));
    device_.upload(to, pattern.data(), done, {});
    for (; done < bytes; done *= 2) device_.copy(to + done, to, std::min(done, bytes - done), {});
  }
}

std::vector<std::byte> TrialRun::read(size_t output) const {
  const PlainWindow& window = outputs_[output];
  const int64_t element = dtype_bytes(window.dtype);
  std::vector<std::byte> bytes, row_bytes;
  for (const WindowRow& row : spaced_rows(window, kSampledRows)) {
    const int64_t reach = (row.count - 1) * std::abs(row.step) + 1;
    const int64_t first = row.step < 0 ? row.first + (row.count - 1) * row.step : row.first;
    row_bytes.resize(static_cast<size_t>(reach * element));
    device_.download(row_bytes.data(), address(output_roots_[output], 0) + first * element, reach * element,
                     {});
    if (row.step == 1) {
      bytes.insert(bytes.end(), row_bytes.begin(), row_bytes.end());
      continue;
    }
    for (int64_t i = 0; i < row.count; ++i) {
      const auto at = row_bytes.begin() + (row.first + i * row.step - first) * element;
      bytes.insert(bytes.end(), at, at + element);
    }
  }
  return bytes;
}

}  // namespace aicf
