#include "runtime/cpu/cpu_device.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/custom_op.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/profiler_range.h"
#include "kernels/common/cost.h"
#include "kernels/common/kernel.h"
#include "kernels/custom/custom_call.h"
#include "runtime/bind_step.h"
#include "runtime/cpu/control_step.h"
#include "runtime/cpu/cpu_memory.h"
#include "runtime/cpu/kept_states.h"
#include "runtime/cpu/thread_pool.h"

namespace aicf {
namespace {

class CpuSequence final : public Sequence, public BoundBody {
 public:
  // `own` are the addresses of the entry, or of the body that this is.
  CpuSequence(const Plan& plan, const EntryPlan& entry, const SymbolValues& sizes,
              const std::vector<std::byte*>& own, const BufferAddresses& addresses,
              const std::shared_ptr<ThreadPool>& pool, IsaLevel isa)
      : entry_(entry),
        pool_(pool),
        addresses_(entry.buffers.size(), nullptr),
        calls_(entry.steps.size()),
        controls_(entry.steps.size()),
        errors_(entry.steps.size()),
        kept_(plan, entry, sizes) {
    std::vector<AddressPatch> patches;
    int64_t scratch = 0;
    for (size_t i = 0; i < entry.steps.size(); ++i) {
      BoundCall& call = calls_[i];
      call.isa = isa;
      call.error = &errors_[i];
      bind_step(plan, entry, static_cast<int32_t>(i), sizes, call, patches);
      if (const Step& step = entry.steps[i]; !step.bodies.empty()) {
        std::vector<std::unique_ptr<BoundBody>> bodies;
        for (int32_t b : step.bodies)
          bodies.push_back(std::make_unique<CpuSequence>(plan, plan.bodies[static_cast<size_t>(b)], sizes,
                                                         addresses.bodies.at(static_cast<size_t>(b)),
                                                         addresses, pool, isa));
        controls_[i] = std::make_unique<ControlStep>(plan, step, call, sizes, std::move(bodies));
        seconds_ += controls_[i]->seconds();
        continue;
      }
      if (is_custom_kernel(entry.steps[i].kernel)) {
        if (!writes_nothing(call)) prepare_custom(entry.steps[i].kernel, call);
        continue;
      }
      const Kernel* kernel = find_kernel(entry.steps[i].kernel);
      if (kernel == nullptr)
        throw UserError(ErrorCode::kU_bad_artifact,
                        "the artifact names a kernel that this build does not have")
            .with_value(entry.steps[i].kernel)
            .with_remedy("compile the model again with this version");
      if (writes_nothing(call)) continue;  // no tiles: the strides of empty tensors mean nothing
      call.workers = pool->threads();
      kernel->prepare(call);
      scratch = std::max(scratch, call.scratch_bytes);
      seconds_ += estimate_seconds(*kernel, call);
    }
    require_seconds(seconds_, "entry " + entry.name);
    link_following();
    std::stable_sort(patches.begin(), patches.end(),
                     [](const AddressPatch& a, const AddressPatch& b) { return a.buffer < b.buffer; });
    patches_ = std::move(patches);
    for (size_t b = 0; b < own.size(); ++b)
      if (own[b] != nullptr) set_address(static_cast<int32_t>(b), own[b]);
    allocate_scratch(scratch);
  }

  void set_address(int32_t buffer, std::byte* address) override {
    if (addresses_[static_cast<size_t>(buffer)] == address) return;
    auto at = std::lower_bound(patches_.begin(), patches_.end(), buffer,
                               [](const AddressPatch& p, int32_t b) { return p.buffer < b; });
    for (; at != patches_.end() && at->buffer == buffer; ++at) {
      BoundCall& call = calls_[static_cast<size_t>(at->step)];
      TensorArg& arg = (at->output ? call.outputs : call.inputs)[static_cast<size_t>(at->operand)];
      // A plan from a file may view bytes as a wider type than the caller aligned them for.
      if (reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(dtype_bytes(arg.dtype)) != 0)
        throw UserError(ErrorCode::kU_bad_artifact,
                        "a step views a buffer as a dtype wider than its alignment")
            .with_op(entry_.buffers[static_cast<size_t>(buffer)].name)
            .with_value(entry_.steps[static_cast<size_t>(at->step)].kernel);
      arg.data = address == nullptr ? nullptr : address + at->byte_offset;
    }
    addresses_[static_cast<size_t>(buffer)] = address;
  }

  void run(Stream) override {
    const std::unique_lock<std::mutex> pool_lock = acquire_pool();
    whole_or_undone([&](size_t step) {
      const ProfilerRange range(entry_.steps[step].kernel.c_str());
      run_step(step, pool_lock.owns_lock());
    });
  }

  void run_steps(bool have_pool) override {
    for (size_t step = 0; step < calls_.size(); ++step) run_step(step, have_pool);
  }
  double seconds() const override { return seconds_; }

  std::vector<double> profile(int repeats) override {
    using Clock = std::chrono::steady_clock;
    const std::unique_lock<std::mutex> pool_lock = acquire_pool();
    std::vector<std::vector<double>> samples(calls_.size());
    for (int i = 0; i < repeats + 1; ++i) {  // the first is a warm-up
      whole_or_undone([&](size_t step) {
        const Clock::time_point start = Clock::now();
        run_step(step, pool_lock.owns_lock());
        const std::chrono::duration<double, std::micro> took = Clock::now() - start;
        if (i > 0) samples[step].push_back(took.count());
      });
      finish({});
    }
    return medians(samples);
  }

  void finish(Stream) override {
    if (const std::optional<UserError> error = take_error()) throw *error;
  }
  bool may_have_written() const override { return wrote_; }
  bool has_error() const override {
    for (size_t step = 0; step < calls_.size(); ++step)
      if (has_error(step)) return true;
    return false;
  }

  std::optional<UserError> take_error() override {
    std::optional<UserError> first;
    for (size_t i = 0; i < errors_.size(); ++i) {
      std::optional<UserError> found;
      if (controls_[i] != nullptr) {
        found = controls_[i]->take_error();
      } else if (CallError& error = errors_[i]; error.raised.load(std::memory_order_relaxed) != 0) {
        error.raised.store(0);
        found = UserError(ErrorCode::kU_index_out_of_range, "an index in the data is out of range")
                    .with_op(entry_.steps[i].origin)
                    .with_expected("-" + std::to_string(error.bound) + " <= index < " +
                                   std::to_string(error.bound))
                    .with_actual(std::to_string(error.value))
                    .with_remedy("check the values of the inputs");
      }
      if (!first) first = std::move(found);
    }
    return first;
  }

 private:
  void link_following() {
    const BoundCall* following = nullptr;
    for (auto call = calls_.rbegin(); call != calls_.rend(); ++call) {
      call->following = following;
      if (call->first_weights != nullptr) following = &*call;
    }
  }

  // Without threads to share, or while another run has them, a run works alone.
  std::unique_lock<std::mutex> acquire_pool() {
    return pool_->threads() > 1 ? pool_->try_acquire() : std::unique_lock<std::mutex>();
  }
  bool has_error(size_t step) const {
    return controls_[step] != nullptr ? controls_[step]->has_error()
                                      : errors_[step].raised.load(std::memory_order_relaxed) != 0;
  }
  // All steps in order. A run stops where the data asked for an error, which finish then throws, or where a
  // step throws, which custom ops and loops may; that leaves no error of the data to a later run. The states
  // that were written before a custom op are put back.
  template <typename RunStep>
  void whole_or_undone(const RunStep& run_one) {
    kept_.keep(addresses_);
    size_t step = 0;
    const auto undo = [&] {
      kept_.put_back(addresses_);
      wrote_ = step >= first_written_;
    };
    try {
      for (; step < calls_.size(); ++step) {
        run_one(step);
        if (has_error(step)) return undo();
      }
    } catch (...) {
      undo();
      take_error();
      throw;
    }
  }
  // The first step that writes a variable of which no copy is kept.
  size_t find_first_written() const {
    for (size_t step = 0; step < entry_.steps.size(); ++step)
      for (const TensorRef& output : entry_.steps[step].outputs)
        if (const auto buffer = static_cast<size_t>(output.buffer);
            entry_.buffers[buffer].kind == BufferKind::kVariable && !kept_.keeps(buffer))
          return step;
    return entry_.steps.size();
  }
  void run_step(size_t step, bool have_pool) {
    try {
      run_call(step, have_pool);
    } catch (UserError& error) {
      if (error.code == ErrorCode::kU_custom_op_failed && error.op.empty()) {
        error.op = entry_.steps[step].origin;
        error.refresh();
      }
      throw;
    }
  }
  void run_call(size_t step, bool have_pool) {
    const BoundCall& call = calls_[step];
    if (controls_[step] != nullptr) return controls_[step]->run(call, have_pool);
    if (have_pool && call.tiles > 1) return pool_->run(call, scratch_.data());
    for (int64_t tile = 0; tile < call.tiles; ++tile) call.run(call, tile, scratch_[0]);
  }

  // An axis of size 0 with stride 0 is one that a reduction runs along: its output has an element there.
  static bool is_empty(const TensorArg& out) {
    for (int axis = 0; axis < out.rank; ++axis)
      if (out.sizes[axis] == 0 && out.strides[axis] != 0) return true;
    return false;
  }
  static bool writes_nothing(const BoundCall& call) {
    return std::all_of(call.outputs.begin(), call.outputs.end(), is_empty);
  }

  void allocate_scratch(int64_t bytes) {
    const int64_t padded = checked_add(checked_add(bytes, 4095) / 4096 * 4096,
                                       64);  // the extra line keeps workers off each other's cache sets
    require_memory(checked_mul(padded, pool_->threads()), "scratch of entry " + entry_.name);
    memory_ = std::make_unique<CpuMemory>(padded * pool_->threads());
    for (int worker = 0; worker < pool_->threads(); ++worker)
      scratch_.push_back(memory_->data() + worker * padded);
  }

  const EntryPlan& entry_;
  std::shared_ptr<ThreadPool> pool_;
  std::vector<std::byte*> addresses_;
  std::vector<BoundCall> calls_;
  std::vector<std::unique_ptr<ControlStep>> controls_;  // null for steps that are kernel calls
  std::vector<CallError> errors_;
  KeptStates kept_;
  size_t first_written_ = find_first_written();
  bool wrote_ = false;                 // by the run that failed
  double seconds_ = 0;                 // of one run, estimated
  std::vector<AddressPatch> patches_;  // sorted by buffer
  std::unique_ptr<CpuMemory> memory_;
  std::vector<std::byte*> scratch_;  // one per worker
};

class CpuDevice final : public HostDevice {
 public:
  explicit CpuDevice(const CpuOptions& options)
      : pool_(ThreadPool::shared(choose_threads(options.threads))), isa_(options.isa) {}
  std::string_view name() const override { return "cpu"; }
  int fitness(std::string_view target) const override { return target == "cpu" ? 1 : 0; }
  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override {
    return std::make_unique<CpuMemory>(bytes);
  }
  // The CPU's code is in this build, but for ops of the model's author.
  std::shared_ptr<const Code> load_code(const Variant& variant) override {
    for (const auto* list : {&variant.plan.entries, &variant.plan.buckets, &variant.plan.bodies})
      for (const EntryPlan& entry : *list)
        for (const Step& step : entry.steps)
          if (is_custom_kernel(step.kernel)) require_custom_op(custom_op_of(step.kernel));
    return nullptr;
  }
  std::unique_ptr<Sequence> bind(const Plan& plan, const EntryPlan& entry, const Code*,
                                 const SymbolValues& sizes, const BufferAddresses& addresses) override {
    return std::make_unique<CpuSequence>(plan, entry, sizes, addresses.entry, addresses, pool_, isa_);
  }

 private:
  std::shared_ptr<ThreadPool> pool_;
  IsaLevel isa_;
};

}  // namespace

std::shared_ptr<Device> make_cpu_device(const CpuOptions& options) {
  if (options.isa > detect_isa())
    throw EnvironmentError(ErrorCode::kE_isa_missing, "this machine does not have the instruction set")
        .with_expected(std::string(isa_name(options.isa)))
        .with_actual(std::string(isa_name(detect_isa())));
  return std::make_shared<CpuDevice>(options);
}

IsaLevel choose_isa(const std::string& name) {
  if (name.empty()) return detect_isa();
  for (IsaLevel level : {IsaLevel::kPortable, IsaLevel::kAvx2, IsaLevel::kAvx512})
    if (isa_name(level) == name) return level;
  throw UserError(ErrorCode::kU_bad_option, "unknown instruction set")
      .with_value(name)
      .with_expected("portable, avx2 or avx512");
}

int choose_threads(int requested) {
  constexpr int kMaxThreads = 1024;
  if (requested == 0) {
    const auto given = number_from_environment("AICF_NUM_THREADS", 1, kMaxThreads);
    return given ? *given : default_thread_count();
  }
  if (requested < 1 || requested > kMaxThreads)
    throw UserError(ErrorCode::kU_bad_option, "a thread count is out of range")
        .with_expected("1.." + std::to_string(kMaxThreads) + ", or 0 for the default")
        .with_actual(std::to_string(requested));
  return requested;
}

}  // namespace aicf
