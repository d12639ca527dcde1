#include "runtime/executable.h"

#include <algorithm>

#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/profiler_range.h"
#include "runtime/bind_step.h"
#include "runtime/check_io.h"

namespace aicf {
namespace {

constexpr size_t kMaxBoundShapes = 16;  // bound sequences kept, the least recently used goes first

int warmup_runs() { return number_from_environment("AICF_WARMUP", 0, 1000).value_or(0); }

// A program fits every size of its ranges but nothing (ir/range_fit.h): what binding refuses of such a size
// is no fault of the file. In a catch of `error`.
[[noreturn]] void refuse_nothing(const UserError& error, const SymbolValues& sizes) {
  std::string nothing;
  for (const auto& [name, value] : sizes)
    if (value == 0) nothing += (nothing.empty() ? "" : ", ") + name + "=0";
  if (error.code != ErrorCode::kU_bad_artifact || nothing.empty()) throw;
  throw UserError(ErrorCode::kU_size_out_of_range, "the model does not fit a size of nothing")
      .with_op(error.op)
      .with_value(nothing)
      .with_expected("at least 1")
      .with_actual(error.message)
      .with_remedy("run it on data, or compile it for sizes from 1 on");
}

}  // namespace

Executable::Executable(std::shared_ptr<const Model> model) : model_(std::move(model)), states_(*model_) {
  int64_t arena = 0;
  for (const auto* list : {&model_->plan().entries, &model_->plan().buckets})
    for (const EntryPlan& entry : *list) arena = std::max(arena, entry.arena_bytes);
  arena_ = model_->device().allocate(arena);
}

Executable::~Executable() {
  try {
    wait_for_runs();
  } catch (...) {
    // The stream or the driver is gone already, and with it what was queued.
  }
}

void Executable::wait_for_runs() const {
  if (under_way_) model_->device().wait(last_stream_);
}

// Runs share the arena and the states, so one on another stream comes after the last.
void Executable::continue_on(Stream stream) {
  if (under_way_ && !(stream == last_stream_)) model_->device().order(last_stream_, stream);
  last_stream_ = stream;
}

const EntryPlan& Executable::entry(const std::string& name) const {
  std::string names;
  for (const EntryPlan& e : model_->plan().entries) {
    if (e.name == kInitEntry) continue;
    if (name.empty() || e.name == name) return e;
    names += (names.empty() ? "" : ", ") + e.name;
  }
  throw UserError(ErrorCode::kU_bad_option, "the model has no entry of this name")
      .with_value(name)
      .with_expected(names);
}

SymbolValues Executable::bind_sizes(const EntryPlan& entry, const std::vector<TensorView>& inputs) const {
  return sizes_of_inputs(model_->plan(), entry, inputs);
}

std::vector<int64_t> Executable::output_sizes(const EntryPlan& entry, size_t output,
                                              const SymbolValues& sizes) const {
  return evaluate(entry.outputs[output].sizes, sizes);
}

void Executable::prepare_arena(const EntryPlan& entry, const SymbolValues& sizes) {
  if (!model_->device().uses_host_memory()) return;
  const ByteRanges touched = touched_arena(entry, sizes);
  int64_t total = model_->plan().packed_bytes;
  for (const auto& [first, bytes] : touched) total = checked_add(total, bytes);
  require_memory(total, "entry " + entry.name);
  for (const auto& [first, bytes] : touched) arena_->will_fill(first, bytes);
}

std::vector<std::byte*> Executable::buffer_addresses(const EntryPlan& entry) const {
  std::vector<std::byte*> addresses = model_->addresses(entry);
  for (size_t i = 0; i < entry.buffers.size(); ++i) {
    const Buffer& buffer = entry.buffers[i];
    if (buffer.kind == BufferKind::kArena && arena_->data() != nullptr)
      addresses[i] = arena_->data() + buffer.offset;
    if (buffer.kind != BufferKind::kVariable) continue;
    if (std::byte* state = states_.address_of(buffer)) addresses[i] = state;
    if (addresses[i] == nullptr && buffer.max_bytes > 0)
      throw UserError(ErrorCode::kU_bad_artifact, "the plan uses a variable that the file does not hold")
          .with_op(buffer.name);
  }
  return addresses;
}

BoundEntry& Executable::bind(const EntryPlan& entry, const SymbolValues& sizes) {
  const ProfilerRange range("bind");
  const EntryPlan& plan = model_->plan().at_sizes(entry, sizes);
  check_bucket(entry, plan, sizes);
  check_io_bytes(plan, sizes);
  prepare_arena(plan, sizes);
  std::unique_ptr<Sequence> sequence;
  try {
    sequence = model_->device().bind(model_->plan(), plan, model_->code(), sizes,
                                     {buffer_addresses(plan), model_->body_addresses()});
  } catch (const UserError& error) {
    refuse_nothing(error, sizes);
  }
  auto bound = std::make_unique<BoundEntry>(model_->device(), entry, plan, sizes, std::move(sequence));
  if (bound_.size() >= kMaxBoundShapes) {
    wait_for_runs();
    bound_.pop_back();
  }
  bound_.insert(bound_.begin(), std::move(bound));
  log_at(LogLevel::kInfo, [&] {
    std::string text = "bound entry " + entry.name + ": " + std::to_string(plan.steps.size()) + " steps";
    for (const auto& [name, value] : sizes) text += ", " + name + "=" + std::to_string(value);
    return text;
  });
  return *bound_.front();
}

const BoundEntry* Executable::last_bound(const EntryPlan& entry) const {
  for (const auto& bound : bound_)
    if (&bound->entry() == &entry) return bound.get();
  return nullptr;
}

Executable::Bound::iterator Executable::find_bound(const EntryPlan& entry,
                                                   const std::vector<TensorView>& inputs) {
  return std::find_if(bound_.begin(), bound_.end(),
                      [&](const auto& bound) { return bound->matches(entry, inputs); });
}

// Runs before the first one that counts: they touch memory and wake threads, and leave the states as they
// were.
void Executable::warm_up(BoundEntry& bound, Stream stream) {
  const int runs = warmup_runs();
  if (runs == 0) return;
  std::map<std::string, Array> before;
  for (const std::string& name : states_.names()) before.emplace(name, states_.get(name));
  const auto restore = [&] {
    for (const auto& [name, value] : before) states_.set(name, value);
  };
  try {
    for (int i = 0; i < runs; ++i) bound.sequence().run(stream);
    bound.sequence().finish(stream);
  } catch (...) {
    restore();
    throw;
  }
  restore();
}

template <typename Run>
void Executable::run_or_lose(const BoundEntry& bound, const Run& run) {
  try {
    run();
  } catch (...) {
    const EntryPlan& plan = bound.plan();
    for (const Step& step : plan.steps)
      for (const TensorRef& output : step.outputs)
        if (const Buffer& buffer = plan.buffers[static_cast<size_t>(output.buffer)];
            buffer.kind == BufferKind::kVariable && bound.sequence().may_have_written())
          states_.lose(buffer.name);
    throw;
  }
}

void Executable::run_into(const std::string& name, const std::vector<TensorView>& inputs,
                          const std::vector<TensorView>& outputs, const RunOptions& options) {
  const RunGuard guard(running_);
  run_bound(entry(name), inputs, outputs, options);
}

void Executable::run_bound(const EntryPlan& plan, const std::vector<TensorView>& inputs,
                           const std::vector<TensorView>& outputs, const RunOptions& options) {
  const ProfilerRange range(plan.name.c_str());
  const StateTurns::Turn turn = states_in_use_.take();
  const bool reads_files = model_->device().uses_host_memory();
  if (reads_files) model_->require_unchanged_files();
  states_.require_known();
  const auto at = find_bound(plan, inputs);
  const bool known = at != bound_.end();
  if (known) std::rotate(bound_.begin(), at, at + 1);
  BoundEntry& bound = known ? *bound_.front() : bind(plan, bind_sizes(plan, inputs));
  check_outputs(plan, bound.output_sizes(), outputs);
  check_apart(plan, inputs, outputs);
  continue_on(options.stream);
  for (size_t i = 0; i < inputs.size(); ++i) bound.bind_input(i, inputs[i], options.stream);
  for (size_t i = 0; i < outputs.size(); ++i) bound.bind_output(i, outputs[i]);
  if (!known) warm_up(bound, options.stream);
  under_way_ = true;
  const bool wait = options.wait || bound.copies_output() || model_->device().uses_host_memory();
  run_or_lose(bound, [&] {
    bound.sequence().run(options.stream);
    if (wait) bound.sequence().finish(options.stream);
  });
  for (size_t i = 0; i < outputs.size(); ++i) bound.finish_output(i, outputs[i], options.stream);
  // A copied output is downloaded, which waits, or copied on the device, which does not.
  under_way_ = !wait || bound.copies_output();
  if (reads_files) model_->require_unchanged_files();
}

void Executable::finish() {
  const RunGuard guard(running_);
  const StateTurns::Turn turn = between_runs();
  under_way_ = false;
  for (const auto& bound : bound_) run_or_lose(*bound, [&] { bound->sequence().finish(last_stream_); });
}

DeviceTensor Executable::device_tensor(DType dtype, std::vector<int64_t> sizes, Stream stream) {
  Device& device = model_->device();
  const int64_t bytes = checked_mul(element_count(sizes), dtype_bytes(dtype));
  return {dtype, std::move(sizes), pool_->take(device, bytes, stream), model_->shared_device(), stream};
}

std::vector<DeviceTensor> Executable::run_on_device(const std::string& name,
                                                    const std::vector<TensorView>& inputs,
                                                    const RunOptions& options) {
  const RunGuard guard(running_);
  const EntryPlan& plan = entry(name);
  std::vector<DeviceTensor> outputs;
  std::vector<TensorView> views;
  const auto take = [&](size_t i, std::vector<int64_t> sizes) {
    outputs.push_back(device_tensor(plan.outputs[i].dtype, std::move(sizes), options.stream));
    views.push_back(view_of(outputs.back()));
  };
  if (const auto known = find_bound(plan, inputs); known != bound_.end()) {
    for (size_t i = 0; i < plan.outputs.size(); ++i) take(i, (*known)->output_sizes()[i]);
  } else {
    const SymbolValues sizes = bind_sizes(plan, inputs);
    for (size_t i = 0; i < plan.outputs.size(); ++i) take(i, output_sizes(plan, i, sizes));
  }
  run_bound(plan, inputs, views, options);
  return outputs;
}

std::vector<Array> Executable::run(const std::string& name, const std::vector<TensorView>& inputs,
                                   const RunOptions& options) {
  const EntryPlan& plan = entry(name);
  const SymbolValues sizes = bind_sizes(plan, inputs);
  std::vector<Array> outputs;
  std::vector<TensorView> views;
  for (size_t i = 0; i < plan.outputs.size(); ++i)
    outputs.push_back(Array::uninitialized(plan.outputs[i].dtype, output_sizes(plan, i, sizes)));
  for (const Array& array : outputs) views.push_back(view_of(array));
  run_into(name, inputs, views, {options.stream, true});
  return outputs;
}

std::map<std::string, Array> Executable::run(const std::string& name,
                                             const std::map<std::string, Array>& inputs) {
  const EntryPlan& plan = entry(name);
  const std::vector<Array> ordered = inputs_in_order(plan, inputs);
  std::vector<TensorView> views;
  for (const Array& array : ordered) views.push_back(view_of(array));
  std::vector<Array> outputs = run(name, views);
  std::map<std::string, Array> result;
  for (size_t i = 0; i < outputs.size(); ++i) result.emplace(plan.outputs[i].name, outputs[i]);
  return result;
}

std::vector<Binding> Executable::input_bindings(const EntryPlan& entry) const {
  const BoundEntry* bound = last_bound(entry);
  return bound != nullptr ? bound->input_bindings() : std::vector<Binding>{};
}

const EntryPlan& Executable::bound_plan(const EntryPlan& entry) const {
  const BoundEntry* bound = last_bound(entry);
  return bound != nullptr ? bound->plan() : entry;
}

std::string Executable::coverage(const EntryPlan& entry) const {
  const BoundEntry* bound = last_bound(entry);
  return bound != nullptr ? bound->sequence().coverage() : "";
}

std::vector<StepCost> Executable::profile(const EntryPlan& entry, int repeats) {
  const RunGuard guard(running_);
  const StateTurns::Turn turn = states_in_use_.take();
  const BoundEntry* bound = last_bound(entry);
  if (bound == nullptr) return {};
  states_.require_known();
  std::vector<double> times;
  run_or_lose(*bound, [&] { times = bound->sequence().profile(repeats); });
  std::vector<StepCost> costs;
  for (size_t i = 0; i < times.size(); ++i) {
    costs.push_back(step_cost(bound->plan().steps[i], bound->sizes()));
    costs.back().microseconds = times[i];
  }
  return costs;
}

StateTurns::Turn Executable::between_runs() const {
  StateTurns::Turn turn = states_in_use_.take();
  wait_for_runs();
  return turn;
}

Array Executable::state(const std::string& name) const {
  const StateTurns::Turn turn = between_runs();
  return states_.get(name);
}

std::map<std::string, Array> Executable::states() const {
  const StateTurns::Turn turn = between_runs();
  std::map<std::string, Array> all;
  for (const std::string& name : states_.names()) all.emplace(name, states_.get(name));
  return all;
}

void Executable::set_state(const std::string& name, const Array& value) { set_states({{name, value}}); }

void Executable::set_states(const std::map<std::string, Array>& values) {
  const StateTurns::Turn turn = between_runs();
  for (const auto& [name, value] : values) states_.check(name, value);
  for (const auto& [name, value] : values) states_.set(name, value);
}

std::vector<std::string> Executable::state_names() const { return states_.names(); }

void Executable::reset() {
  const StateTurns::Turn turn = between_runs();
  model_->require_unchanged_files();
  states_.reset();
}

std::unique_ptr<Executable> Executable::clone() const {
  model_->require_unchanged_files();
  auto copy = std::make_unique<Executable>(model_);
  const StateTurns::Turn turn = between_runs();
  copy->states_.copy_from(states_);
  return copy;
}

}  // namespace aicf
