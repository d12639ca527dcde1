#include "runtime/executable.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/profiler_range.h"
#include "runtime/bind_step.h"

namespace aicf {
namespace {

constexpr size_t kMaxBoundShapes = 16;  // bound sequences kept, the least recently used goes first

int warmup_runs() { return number_from_environment("AICF_WARMUP", 0, 1000).value_or(0); }

std::string describe(const std::string& name, bool output) {
  return std::string(output ? "output '" : "input '") + name + "'";
}

// Copies between a strided view and row-major bytes, element by element along the last axis.
void copy_strided(const TensorView& view, std::byte* dense, bool to_dense) {
  const int64_t bytes = dtype_bytes(view.dtype);
  const int64_t count = element_count(view.sizes);
  auto* base = static_cast<std::byte*>(view.data);
  std::vector<int64_t> index(view.sizes.size(), 0);
  int64_t offset = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::byte* at = base + offset * bytes;
    std::memcpy(to_dense ? dense + i * bytes : at, to_dense ? at : dense + i * bytes,
                static_cast<size_t>(bytes));
    for (size_t axis = view.sizes.size(); axis-- > 0;) {
      offset += view.strides[axis];
      if (++index[axis] < view.sizes[axis]) break;
      offset -= view.strides[axis] * view.sizes[axis];
      index[axis] = 0;
    }
  }
}

class RunGuard {
 public:
  explicit RunGuard(std::atomic_flag& flag) : flag_(flag) {
    if (flag_.test_and_set())
      throw UserError(ErrorCode::kU_busy, "the executable already has a run in flight")
          .with_remedy("use one clone() per thread");
  }
  ~RunGuard() { flag_.clear(); }

 private:
  std::atomic_flag& flag_;
};

}  // namespace

bool TensorView::row_major() const {
  if (strides.empty()) return true;
  int64_t expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 0) return true;
    if (sizes[i] != 1 && strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

TensorView view_of(const Array& array) {
  return {array.dtype(), array.sizes(), {}, const_cast<void*>(array.data())};
}

TensorView view_of(const DeviceTensor& tensor) {
  return {tensor.dtype, tensor.sizes, {}, tensor.data(), true};
}

// Memory that stands in for a caller's memory which kernels cannot use as it is: row-major, on the device.
struct Staging {
  Array host;  // where strided data is packed, and what travels to and from a device with memory of its own
  std::unique_ptr<DeviceMemory> device;

  std::byte* address(Device& owner, const TensorView& view) {
    const int64_t bytes = view_bytes(view);
    if (owner.uses_host_memory()) return host_address(view);
    if (device == nullptr) device = owner.allocate(bytes);
    return device->data();
  }
  std::byte* host_address(const TensorView& view) {
    if (host.data() == nullptr) host = Array(view.dtype, view.sizes);
    return static_cast<std::byte*>(host.mutable_data());
  }
  static int64_t view_bytes(const TensorView& view) {
    return element_count(view.sizes) * dtype_bytes(view.dtype);
  }
};

// One entry bound to one set of input sizes.
struct Executable::Bound {
  explicit Bound(Device& d) : device(d) {}
  Device& device;
  const EntryPlan* entry = nullptr;
  SymbolValues sizes;
  std::vector<std::vector<int64_t>> input_sizes, output_sizes;
  std::vector<Binding> input_bindings, output_bindings;
  std::vector<Staging> input_copies, output_copies;  // filled when a caller's memory cannot be used
  std::unique_ptr<Sequence> sequence;

  bool matches(const EntryPlan& e, const std::vector<TensorView>& inputs) const {
    if (entry != &e || inputs.size() != input_sizes.size()) return false;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].sizes != input_sizes[i] || inputs[i].dtype != e.inputs[i].dtype) return false;
    return true;
  }

  void bind_input(size_t i, const TensorView& view, Stream stream) {
    check_only_value(entry->inputs[i], view, input_copies[i], stream);
    auto* address = static_cast<std::byte*>(view.data);
    input_bindings[i] = usable(view) ? Binding::kRebound : Binding::kCopied;
    if (input_bindings[i] == Binding::kCopied) {
      address = input_copies[i].address(device, view);
      copy_in(address, view, input_copies[i], stream);
    }
    sequence->set_address(entry->inputs[i].buffer, address);
  }

  void bind_output(size_t i, const TensorView& view) {
    output_bindings[i] = usable(view) ? Binding::kRebound : Binding::kCopied;
    sequence->set_address(entry->outputs[i].buffer, output_bindings[i] == Binding::kRebound
                                                        ? static_cast<std::byte*>(view.data)
                                                        : output_copies[i].address(device, view));
  }

  void finish_output(size_t i, const TensorView& view, Stream stream) {
    if (output_bindings[i] == Binding::kCopied)
      copy_out(view, output_copies[i].address(device, view), output_copies[i], stream);
  }

  // Whether the caller's memory can only be written after the run.
  bool copies_output() const {
    return std::any_of(output_bindings.begin(), output_bindings.end(),
                       [](Binding b) { return b == Binding::kCopied; });
  }

 private:
  bool in_place(const TensorView& view) const { return view.on_device || device.uses_host_memory(); }

  bool usable(const TensorView& view) const {
    const auto alignment = static_cast<uintptr_t>(device.alignment(dtype_bytes(view.dtype)));
    return in_place(view) && view.row_major() && reinterpret_cast<uintptr_t>(view.data) % alignment == 0;
  }

  static void require_row_major(const TensorView& view) {
    if (view.row_major()) return;
    throw UserError(ErrorCode::kU_input_shape, "a strided tensor in device memory cannot be bound")
        .with_actual("sizes " + to_string(view.sizes) + ", strides " + to_string(view.strides))
        .with_remedy("make it contiguous before the call");
  }

  void copy_in(std::byte* to, const TensorView& view, Staging& staging, Stream stream) {
    const int64_t bytes = Staging::view_bytes(view);
    if (!device.uses_host_memory() && view.on_device) {
      require_row_major(view);
      return device.copy(to, static_cast<const std::byte*>(view.data), bytes, stream);
    }
    const void* from = view.data;
    if (!view.row_major()) {
      copy_strided(view, staging.host_address(view), true);
      from = staging.host_address(view);
    }
    if (from != to) device.upload(to, from, bytes, stream);
  }

  void copy_out(const TensorView& view, std::byte* from, Staging& staging, Stream stream) {
    const int64_t bytes = Staging::view_bytes(view);
    if (!device.uses_host_memory() && view.on_device) {
      require_row_major(view);
      return device.copy(static_cast<std::byte*>(view.data), from, bytes, stream);
    }
    if (view.row_major()) return device.download(view.data, from, bytes, stream);
    std::byte* dense = staging.host_address(view);
    if (dense != from) device.download(dense, from, bytes, stream);
    copy_strided(view, dense, false);
  }

  void check_only_value(const IoTensor& io, const TensorView& view, Staging& staging, Stream stream) {
    const Array& only = io.only_value;
    if (only.data() == nullptr || only.bytes() == 0) return;
    const auto* given = static_cast<const std::byte*>(view.data);
    if (view.on_device && !device.uses_host_memory()) {
      require_row_major(view);
      device.download(staging.host_address(view), given, only.bytes(), stream);
      given = staging.host_address(view);
    } else if (!view.row_major()) {
      copy_strided(view, staging.host_address(view), true);
      given = staging.host_address(view);
    }
    if (std::memcmp(only.data(), given, static_cast<size_t>(only.bytes())) == 0) return;
    throw UserError(ErrorCode::kU_input_value,
                    describe(io.name, false) + " accepts only the value it had when compiling")
        .with_remedy("compile again with the new value");
  }
};

Executable::Executable(std::shared_ptr<const Model> model) : model_(std::move(model)) {
  int64_t arena = 0;
  for (const EntryPlan& entry : model_->plan().entries) arena = std::max(arena, entry.arena_bytes);
  arena_ = model_->device().allocate(arena);
  place_states();
}

Executable::~Executable() {
  try {
    wait_for_runs();
  } catch (const Error&) {
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

// States, and params that some entry writes, are the Executable's own.
void Executable::place_states() {
  std::set<std::string> owned;
  for (const PlanVariable& v : model_->plan().variables)
    if (v.is_state) owned.insert(v.name);
  for (const EntryPlan& entry : model_->plan().entries)
    for (const Step& step : entry.steps)
      for (const TensorRef& ref : step.outputs)
        if (const Buffer& b = entry.buffers[static_cast<size_t>(ref.buffer)]; b.kind == BufferKind::kVariable)
          owned.insert(b.name);
  int64_t bytes = 0;
  for (const PlanVariable& v : model_->plan().variables) {
    if (!owned.contains(v.name)) continue;
    State state{v.dtype, evaluate(v.sizes, {}), 0, bytes};
    if (std::any_of(state.sizes.begin(), state.sizes.end(), [](int64_t size) { return size < 0; }))
      throw UserError(ErrorCode::kU_bad_artifact, "a state has a negative size").with_op(v.name);
    state.bytes = checked_mul(element_count(state.sizes), dtype_bytes(v.dtype));
    bytes = checked_add(bytes, (state.bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment);
    states_.emplace(v.name, std::move(state));
  }
  if (model_->device().uses_host_memory()) require_memory(bytes, "states");
  state_memory_ = model_->device().allocate(bytes);
  state_memory_->will_fill(0, bytes);
  reset();
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
  if (inputs.size() != entry.inputs.size())
    throw UserError(ErrorCode::kU_missing_input, "wrong number of inputs")
        .with_expected(std::to_string(entry.inputs.size()))
        .with_actual(std::to_string(inputs.size()));
  SymbolValues values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const IoTensor& io = entry.inputs[i];
    if (inputs[i].dtype != io.dtype)
      throw UserError(ErrorCode::kU_input_dtype, describe(io.name, false) + " has the wrong dtype")
          .with_expected(std::string(dtype_name(io.dtype)))
          .with_actual(std::string(dtype_name(inputs[i].dtype)))
          .with_remedy("convert it before the call");
    if (inputs[i].sizes.size() != io.sizes.size())
      throw UserError(ErrorCode::kU_input_shape, describe(io.name, false) + " has the wrong rank")
          .with_expected(to_string(io.sizes))
          .with_actual(to_string(inputs[i].sizes));
    for (size_t axis = 0; axis < io.sizes.size(); ++axis) {
      const auto symbol = io.sizes[axis].as_symbol();
      if (!symbol) continue;
      const auto [at, fresh] = values.emplace(*symbol, inputs[i].sizes[axis]);
      if (!fresh && at->second != inputs[i].sizes[axis])
        throw UserError(ErrorCode::kU_size_conflict,
                        "two inputs give different values to size '" + *symbol + "'")
            .with_op(describe(io.name, false))
            .with_expected(std::to_string(at->second))
            .with_actual(std::to_string(inputs[i].sizes[axis]));
    }
  }
  for (const auto& [name, range] : model_->plan().sizes) {
    auto at = values.find(name);
    if (at == values.end()) {
      if (range.lo == range.hi) values[name] = range.lo;
      continue;
    }
    if (at->second < range.lo || at->second > range.hi)
      throw UserError(ErrorCode::kU_size_out_of_range,
                      "size '" + name + "' is outside the range the model was compiled for")
          .with_expected(std::to_string(range.lo) + ".." + std::to_string(range.hi))
          .with_actual(std::to_string(at->second))
          .with_remedy("compile with --dim " + name + "=LO..HI that includes it");
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<int64_t> expected = evaluate(entry.inputs[i].sizes, values);
    if (expected == inputs[i].sizes) continue;
    const std::string declared = to_string(entry.inputs[i].sizes), wanted = to_string(expected);
    throw UserError(ErrorCode::kU_input_shape, describe(entry.inputs[i].name, false) + " has the wrong shape")
        .with_expected(declared == wanted ? wanted : declared + " = " + wanted)
        .with_actual(to_string(inputs[i].sizes));
  }
  return values;
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

Executable::Bound& Executable::bind(const EntryPlan& entry, const SymbolValues& sizes) {
  const ProfilerRange range("bind");
  auto bound = std::make_unique<Bound>(model_->device());
  bound->entry = &entry;
  bound->sizes = sizes;
  for (const IoTensor& io : entry.inputs) bound->input_sizes.push_back(evaluate(io.sizes, sizes));
  for (size_t i = 0; i < entry.outputs.size(); ++i)
    bound->output_sizes.push_back(output_sizes(entry, i, sizes));
  bound->input_bindings.resize(entry.inputs.size());
  bound->output_bindings.resize(entry.outputs.size());
  bound->input_copies.resize(entry.inputs.size());
  bound->output_copies.resize(entry.outputs.size());
  check_io_bytes(entry, sizes);
  prepare_arena(entry, sizes);
  std::vector<std::byte*> addresses = model_->addresses(entry);
  for (size_t i = 0; i < entry.buffers.size(); ++i) {
    const Buffer& buffer = entry.buffers[i];
    if (buffer.kind == BufferKind::kArena && arena_->data() != nullptr)
      addresses[i] = arena_->data() + buffer.offset;
    if (buffer.kind != BufferKind::kVariable) continue;
    if (auto at = states_.find(buffer.name); at != states_.end()) {
      if (at->second.bytes < buffer.max_bytes)
        throw UserError(ErrorCode::kU_bad_artifact, "the plan uses more of a variable than it has")
            .with_op(buffer.name);
      addresses[i] = address_of(at->second);
    }
    if (addresses[i] == nullptr && buffer.max_bytes > 0)
      throw UserError(ErrorCode::kU_bad_artifact, "the plan uses a variable that the file does not hold")
          .with_op(buffer.name);
  }
  bound->sequence = model_->device().bind(model_->plan(), entry, model_->code(), sizes,
                                          {std::move(addresses), model_->body_addresses()});
  if (bound_.size() >= kMaxBoundShapes) {
    wait_for_runs();
    bound_.pop_back();
  }
  bound_.insert(bound_.begin(), std::move(bound));
  log_at(LogLevel::kInfo, [&] {
    std::string text = "bound entry " + entry.name + ": " + std::to_string(entry.steps.size()) + " steps";
    for (const auto& [name, value] : sizes) text += ", " + name + "=" + std::to_string(value);
    return text;
  });
  return *bound_.front();
}

// Runs before the first one that counts: they touch memory and wake threads, and leave the states as they
// were.
void Executable::warm_up(Bound& bound, Stream stream) {
  const int runs = warmup_runs();
  if (runs == 0) return;
  std::map<std::string, Array> before;
  for (const std::string& name : state_names()) before.emplace(name, state(name));
  for (int i = 0; i < runs; ++i) bound.sequence->run(stream);
  bound.sequence->finish(stream);
  for (const auto& [name, value] : before) set_state(name, value);
}

void Executable::run_into(const std::string& name, const std::vector<TensorView>& inputs,
                          const std::vector<TensorView>& outputs, const RunOptions& options) {
  const RunGuard guard(running_);
  run_bound(entry(name), inputs, outputs, options);
}

void Executable::run_bound(const EntryPlan& plan, const std::vector<TensorView>& inputs,
                           const std::vector<TensorView>& outputs, const RunOptions& options) {
  const ProfilerRange range(plan.name.c_str());
  auto at =
      std::find_if(bound_.begin(), bound_.end(), [&](const auto& b) { return b->matches(plan, inputs); });
  const bool known = at != bound_.end();
  if (known) std::rotate(bound_.begin(), at, at + 1);
  Bound& bound = known ? *bound_.front() : bind(plan, bind_sizes(plan, inputs));
  if (outputs.size() != plan.outputs.size())
    throw UserError(ErrorCode::kU_input_shape, "wrong number of outputs")
        .with_expected(std::to_string(plan.outputs.size()))
        .with_actual(std::to_string(outputs.size()));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].dtype == plan.outputs[i].dtype && outputs[i].sizes == bound.output_sizes[i]) continue;
    throw UserError(
        outputs[i].dtype != plan.outputs[i].dtype ? ErrorCode::kU_input_dtype : ErrorCode::kU_input_shape,
        describe(plan.outputs[i].name, true) + " does not fit")
        .with_expected(std::string(dtype_name(plan.outputs[i].dtype)) + to_string(bound.output_sizes[i]))
        .with_actual(std::string(dtype_name(outputs[i].dtype)) + to_string(outputs[i].sizes));
  }
  continue_on(options.stream);
  for (size_t i = 0; i < inputs.size(); ++i) bound.bind_input(i, inputs[i], options.stream);
  for (size_t i = 0; i < outputs.size(); ++i) bound.bind_output(i, outputs[i]);
  if (!known) warm_up(bound, options.stream);
  under_way_ = true;
  bound.sequence->run(options.stream);
  const bool wait = options.wait || bound.copies_output() || model_->device().uses_host_memory();
  if (wait) bound.sequence->finish(options.stream);
  for (size_t i = 0; i < outputs.size(); ++i) bound.finish_output(i, outputs[i], options.stream);
  // A copied output is downloaded, which waits, or copied on the device, which does not.
  under_way_ = !wait || bound.copies_output();
}

void Executable::finish() {
  const RunGuard guard(running_);
  wait_for_runs();
  under_way_ = false;
  for (const auto& bound : bound_) bound->sequence->finish(last_stream_);
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
  const auto known =
      std::find_if(bound_.begin(), bound_.end(), [&](const auto& b) { return b->matches(plan, inputs); });
  if (known != bound_.end()) {
    for (size_t i = 0; i < plan.outputs.size(); ++i) take(i, (*known)->output_sizes[i]);
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
  std::vector<TensorView> views;
  std::string names;
  for (const IoTensor& io : plan.inputs) names += (names.empty() ? "" : ", ") + io.name;
  for (const auto& [given, array] : inputs)
    if (std::none_of(plan.inputs.begin(), plan.inputs.end(),
                     [&](const IoTensor& io) { return io.name == given; }))
      throw UserError(ErrorCode::kU_unknown_input, "the model has no input of this name")
          .with_value(given)
          .with_expected(names);
  for (const IoTensor& io : plan.inputs) {
    auto at = inputs.find(io.name);
    if (at == inputs.end())
      throw UserError(ErrorCode::kU_missing_input, "a required input was not given")
          .with_value(io.name)
          .with_expected(names);
    views.push_back(view_of(at->second));
  }
  std::vector<Array> outputs = run(name, views);
  std::map<std::string, Array> result;
  for (size_t i = 0; i < outputs.size(); ++i) result.emplace(plan.outputs[i].name, outputs[i]);
  return result;
}

std::vector<Binding> Executable::input_bindings(const EntryPlan& entry) const {
  for (const auto& bound : bound_)
    if (bound->entry == &entry) return bound->input_bindings;
  return {};
}

std::string Executable::coverage(const EntryPlan& entry) const {
  for (const auto& bound : bound_)
    if (bound->entry == &entry) return bound->sequence->coverage();
  return {};
}

std::vector<StepCost> Executable::profile(const EntryPlan& entry, int repeats) {
  const RunGuard guard(running_);
  for (const auto& bound : bound_) {
    if (bound->entry != &entry) continue;
    const std::vector<double> times = bound->sequence->profile(repeats);
    std::vector<StepCost> costs;
    for (size_t i = 0; i < times.size(); ++i) {
      costs.push_back(step_cost(entry.steps[i], bound->sizes));
      costs.back().microseconds = times[i];
    }
    return costs;
  }
  return {};
}

const Executable::State& Executable::find_state(const std::string& name) const {
  auto at = states_.find(name);
  if (at == states_.end())
    throw UserError(ErrorCode::kU_unknown_param, "the model has no state of this name").with_value(name);
  return at->second;
}

Array Executable::state(const std::string& name) const {
  const State& state = find_state(name);
  Array copy(state.dtype, state.sizes);
  wait_for_runs();
  model_->device().download(copy.mutable_data(), address_of(state), state.bytes, {});
  model_->device().wait({});
  return copy;
}

void Executable::set_state(const std::string& name, const Array& value) {
  const State& state = find_state(name);
  if (state.dtype != value.dtype() || state.sizes != value.sizes())
    throw UserError(ErrorCode::kU_input_shape, "a state has the wrong dtype or shape")
        .with_value(name)
        .with_expected(std::string(dtype_name(state.dtype)) + to_string(state.sizes))
        .with_actual(std::string(dtype_name(value.dtype())) + to_string(value.sizes()));
  wait_for_runs();
  model_->device().upload(address_of(state), value.data(), state.bytes, {});
  model_->device().wait({});
}

std::vector<std::string> Executable::state_names() const {
  std::vector<std::string> names;
  for (const auto& [name, state] : states_) names.push_back(name);
  return names;
}

void Executable::reset() {
  if (states_.empty()) return;
  wait_for_runs();
  for (const auto& [name, state] : states_) {
    auto at = model_->weights().find(name);
    if (at != model_->weights().end()) {
      model_->device().upload(address_of(state), at->second.data(), state.bytes, {});
    } else {
      model_->device().zero(address_of(state), state.bytes, {});
    }
  }
  model_->device().wait({});
}

std::unique_ptr<Executable> Executable::clone() const {
  auto copy = std::make_unique<Executable>(model_);
  wait_for_runs();
  for (const auto& [name, state] : states_)
    model_->device().copy(copy->address_of(copy->states_.at(name)), address_of(state), state.bytes, {});
  model_->device().wait({});
  return copy;
}

}  // namespace aicf
