#include "tune/bench_device.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "codegen/code_cache.h"
#include "codegen/cuda_build.h"
#include "codegen/nvrtc.h"
#include "kernels/common/kernel.h"
#include "tune/trial_run.h"

namespace aicf {
namespace {

constexpr int64_t kMaxCopies = 256;
constexpr int64_t kCpuRotation = int64_t{64} << 20, kGpuRotation = int64_t{120} << 20;

SymbolValues largest_sizes(const SymbolRanges& ranges) {
  SymbolValues values;
  for (const auto& [name, range] : ranges) values[name] = range.hi;
  return values;
}

CallGraph calls_of(const Trial& trial, const SymbolRanges& ranges) {
  CallGraph calls;
  calls.calls = trial.calls;
  calls.init_calls = trial.init;
  calls.regions = trial.regions;
  calls.programs = programs_of(trial);
  calls.ranges = ranges;
  return calls;
}

// Half a unit in the last place of the lowest dtype on the way.
double rounding(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 0x1p-11;
    case DType::bf16:
      return 0x1p-8;
    case DType::f32:
      return 0x1p-24;
    case DType::f64:
      return 0x1p-53;
    default:
      return 0;
  }
}

// Values round at a few places of an epilogue; sums of f32 and f64 round at every step, with errors that
// mostly cancel.
double allowed_error(const TuneProblem& problem) {
  double unit = 0, length = 1;
  for (const Window& w : problem.call.outputs) unit = std::max(unit, rounding(w.dtype));
  const Window& x = problem.call.inputs[0];
  unit = std::max(unit, rounding(x.dtype));
  // Its weights are rounded on their way to a product, whatever q, k and v hold.
  if (problem.key.op.starts_with("attention") && multiplies_in_tf32(problem)) unit = std::max(unit, 0x1p-11);
  const int64_t elements = element_count(x.sizes).constant().value_or(int64_t{1} << 20);
  if (unit <= 0x1p-24) length = std::sqrt(static_cast<double>(std::min<int64_t>(elements, 1 << 20)));
  return unit * std::max(8.0, 2 * length);
}

std::vector<double> numbers(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<double> list(bytes.size() / static_cast<size_t>(dtype_bytes(dtype)));
  const auto count = static_cast<int64_t>(list.size());
  const Array array = Array::view(dtype, {count}, bytes.data(), nullptr);
  for (int64_t i = 0; i < count; ++i) list[static_cast<size_t>(i)] = array.get_f64(i);
  return list;
}

double error_of(const std::vector<double>& got, const std::vector<double>& expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double x = got[i], y = expected[i];
    difference += (x - y) * (x - y);
    norm += y * y;
  }
  return std::sqrt(difference) / std::max(std::sqrt(norm), std::numeric_limits<double>::min());
}

class DeviceBench final : public Bench {
 public:
  DeviceBench(std::shared_ptr<Device> device, const Program& program, const Target& target,
              const DeviceBenchOptions& options)
      : device_(std::move(device)),
        program_(program),
        target_(target),
        maker_(program_, target_),
        options_(options),
        sizes_(largest_sizes(program.sizes)) {
    if (options_.rotate_bytes == 0)
      options_.rotate_bytes = device_ != nullptr && device_->uses_host_memory() ? kCpuRotation : kGpuRotation;
  }

  void build(const std::vector<TuneTask>& tasks) override {
    runs_.clear();
    made_.clear();
    modules_.clear();
    // A builder for each task: its texts, by which the cache finds them, do not depend on the other tasks.
    std::vector<CudaBuilder> builders(tasks.size(), CudaBuilder(target_));
    std::vector<CudaUnit> units;
    std::vector<size_t> ends;
    for (size_t i = 0; i < tasks.size(); ++i) {
      for (CudaUnit& unit : units_of(tasks[i], builders[i])) units.push_back(std::move(unit));
      ends.push_back(units.size());
    }
    const std::vector<std::string> images = compile_cached(units);
    auto first = images.begin();
    for (size_t i = 0; i < tasks.size(); ++i) {
      const auto end = images.begin() + static_cast<std::ptrdiff_t>(ends[i]);
      modules_[tasks[i].problem] = builders[i].modules({first, end});
      first = end;
    }
  }

  void open(const TuneTask& task) override {
    runs_.clear();
    task_ = task;
    reference_.clear();
    values_.clear();
    code_ = device_->load_code({target_.name, {}, modules_.at(task.problem)});
    const auto at = made_.find({task.problem, kReference});
    if (at == made_.end()) return;
    const std::unique_ptr<TrialRun> run = start(at->second, 1);
    run->run();
    run->finish();
    for (size_t i = 0; i < run->output_count(); ++i)
      reference_.push_back(numbers(run->read(i), run->output(i).dtype));
  }

  CheckResult check(size_t candidate) override {
    // What a library advises it may yet refuse, given the windows.
    try {
      run_of(candidate);
    } catch (const UserError& error) {
      if (!task_.problem->candidates[candidate].library) throw;
      return {false, 0, error.message + ": " + error.actual};
    }
    TrialRun& run = run_of(candidate);
    run.poison();
    run.run();
    run.finish();
    CheckResult result;
    std::vector<std::vector<std::byte>> first;
    for (size_t i = 0; i < run.output_count(); ++i) first.push_back(run.read(i));
    std::vector<std::vector<double>> outputs;
    for (size_t i = 0; i < first.size(); ++i) outputs.push_back(numbers(first[i], run.output(i).dtype));
    if (reference_.empty()) reference_ = outputs;  // none in higher precision: candidates judge each other
    for (size_t i = 0; i < outputs.size(); ++i) {
      const double error = error_of(outputs[i], reference_[i]);
      result.error = std::isnan(error) ? error : std::max(result.error, error);
      if (!(error <= allowed_error(*task_.problem))) result.ok = false;
    }
    if (!result.ok) {
      result.why = "error " + std::to_string(result.error) + " beyond " +
                   std::to_string(allowed_error(*task_.problem));
      return result;
    }
    for (int repeat = 0; repeat < 2; ++repeat) {
      run.poison();
      run.run();
      run.finish();
      for (size_t i = 0; i < first.size(); ++i)
        if (run.read(i) != first[i]) return {false, result.error, "other bits in another run"};
    }
    return result;
  }

  double time(size_t candidate) override {
    TrialRun& run = run_of(candidate);
    int64_t& repeats = repeats_[candidate];
    if (repeats == 0) {
      repeats = 1;
      const double once = sample(run, 1) * 1e-6 * static_cast<double>(run.copies());
      repeats = std::clamp<int64_t>(static_cast<int64_t>(options_.sample_seconds / std::max(once, 1e-7)) + 1,
                                    1, 10000);
    }
    return sample(run, repeats);
  }

  std::string versions() const override {
    return target_.is_cuda() ? "nvrtc " + nvrtc_version() : "isa " + std::string(isa_name(detect_isa()));
  }

 private:
  static constexpr size_t kReference = static_cast<size_t>(-1);
  struct Made {
    Trial trial;
    CodedGraph code;
  };

  // Makes the trials of a task and gives what their code is compiled from.
  std::vector<CudaUnit> units_of(const TuneTask& task, CudaBuilder& builder) {
    std::vector<CodedGraph*> codes;
    const auto add = [&](size_t candidate, Trial trial) {
      Made& made = made_[{task.problem, candidate}];
      made.trial = std::move(trial);
      if (!target_.is_cuda()) return;
      // In a model the launch before makes some of them: a trial waits for all that it reads.
      std::set<ValueId> made_before;
      for (const KernelCall& call : made.trial.calls)
        for (const Window& w : call.inputs) made_before.insert(w.root);
      made.code = builder.add(calls_of(made.trial, program_.sizes), made_before);
      codes.push_back(&made.code);
    };
    for (const size_t i : task.candidates)
      add(i, maker_.candidate(*task.problem, task.problem->candidates[i]));
    if (auto trial = maker_.reference(*task.problem)) add(kReference, std::move(*trial));
    return builder.units(codes);
  }

  // Microseconds of a call.
  static double sample(TrialRun& run, int64_t repeats) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < repeats; ++i) run.run();
    run.finish();
    const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
    return taken.count() / static_cast<double>(repeats * run.copies());
  }

  std::unique_ptr<TrialRun> start(const Made& made, int64_t copies) {
    return std::make_unique<TrialRun>(*device_, code_.get(), made.trial, made.code,
                                      held_dtypes(*task_.problem), values_, program_.sizes, sizes_, copies);
  }

  TrialRun& run_of(size_t candidate) {
    auto& run = runs_[candidate];
    if (run != nullptr) return *run;
    repeats_[candidate] = 0;
    const Made& made = made_.at({task_.problem, candidate});
    const int64_t bytes = std::max<int64_t>(trial_bytes(made.trial, sizes_), 1);
    const int64_t copies = std::clamp<int64_t>((options_.rotate_bytes + bytes - 1) / bytes, 1, kMaxCopies);
    return *(run = start(made, copies));
  }

  std::shared_ptr<Device> device_;
  const Program& program_;
  Target target_;
  TrialMaker maker_;
  DeviceBenchOptions options_;
  SymbolValues sizes_;
  std::map<std::pair<const TuneProblem*, size_t>, Made> made_;
  std::map<const TuneProblem*, std::vector<Array>> modules_;  // machine code
  std::shared_ptr<const Code> code_;
  TuneTask task_{};
  std::map<size_t, std::unique_ptr<TrialRun>> runs_;
  std::map<size_t, int64_t> repeats_;
  OperandValues values_;
  std::vector<std::vector<double>> reference_;  // of each output
};

}  // namespace

std::unique_ptr<Bench> make_device_bench(std::shared_ptr<Device> device, const Program& program,
                                         const Target& target, const DeviceBenchOptions& options) {
  return std::make_unique<DeviceBench>(std::move(device), program, target, options);
}

void prebuild(const Program& program, const Target& target, const std::vector<TuneTask>& tasks) {
  DeviceBench(nullptr, program, target, {}).build(tasks);
}

}  // namespace aicf
