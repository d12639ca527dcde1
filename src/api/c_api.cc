#include "api/bridge.h"

#include "aicf/aicf_c.h"
#include "aicf/custom_op.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <mutex>

#include "base/custom_op.h"
#include "runtime/trainer.h"

namespace core = ::aicf;
using aicf::v1::Access;
using aicf::v1::Executable;
using aicf::v1::Tensor;
using aicf::v1::TensorSpec;
using aicf::v1::TensorView;

#define AICF_DTYPE(name, ...) \
  static_assert(static_cast<int>(AICF_DTYPE_##name) == static_cast<int>(core::DType::name), #name);
#include "base/dtypes.def"
#undef AICF_DTYPE

namespace {

// What an aicf_tensor_info points to.
struct SpecInfo {
  std::string name;
  int32_t dtype = 0;
  std::vector<int64_t> min_sizes, max_sizes;
  std::vector<std::string> texts;
  std::vector<const char*> text_pointers;

  explicit SpecInfo(const TensorSpec& spec) : name(spec.name), dtype(static_cast<int32_t>(spec.dtype)) {
    for (size_t i = 0; i < spec.sizes.size(); ++i) {
      texts.push_back(spec.sizes[i].text());
      min_sizes.push_back(spec.ranges[i].lo);
      max_sizes.push_back(spec.ranges[i].hi);
    }
    for (const std::string& text : texts) text_pointers.push_back(text.c_str());
  }
  SpecInfo(SpecInfo&&) = default;  // moves the vectors' memory, so the pointers stay right
};

struct EntryInfo {
  std::string name;
  std::vector<SpecInfo> inputs, outputs;
};

struct LastError {
  std::string text, code;
  bool out_of_memory = false;
};
thread_local LastError last_error;

}  // namespace

struct aicf_executable {
  explicit aicf_executable(Executable e) : executable(std::move(e)), states(executable.state_names()) {
    const aicf::v1::Model& model = executable.model();
    for (const std::string& name : model.entries()) {
      EntryInfo entry{name, {}, {}};
      for (const TensorSpec& spec : model.inputs(name)) entry.inputs.emplace_back(spec);
      for (const TensorSpec& spec : model.outputs(name)) entry.outputs.emplace_back(spec);
      entries.push_back(std::move(entry));
    }
  }
  Executable executable;
  std::vector<EntryInfo> entries;
  std::vector<std::string> states;
  // Views handed inwards, kept so that a run allocates nothing; guarded by `running`.
  std::vector<TensorView> inputs, outputs;
  std::mutex device_memory_mutex;
  std::map<void*, core::DeviceTensor> device_memory;  // handed out by aicf_device_allocate
  std::string bad_tensor;                             // what aicf_bad_tensor pointed to
  std::atomic_flag running = ATOMIC_FLAG_INIT;
};

namespace {

aicf_status keep_error(const aicf::v1::Error& error, aicf_status status) noexcept {
  try {
    last_error.out_of_memory = false;
    last_error.text = error.what();
    last_error.code = error.code();
  } catch (...) {
    last_error.out_of_memory = true;
  }
  return status;
}

// Runs a function and turns what it throws into a status and the thread's last error.
template <typename F>
aicf_status guarded(F&& function) noexcept {
  try {
    aicf::v1::translated(function);
    return AICF_OK;
  } catch (const aicf::v1::UserError& error) {
    return keep_error(error, AICF_USER_ERROR);
  } catch (const aicf::v1::EnvironmentError& error) {
    return keep_error(error, AICF_ENVIRONMENT_ERROR);
  } catch (const aicf::v1::Error& error) {
    return keep_error(error, AICF_INTERNAL_ERROR);
  } catch (...) {  // building the error itself ran out of memory
    last_error.out_of_memory = true;
    return AICF_ENVIRONMENT_ERROR;
  }
}

template <typename T>
T& need(T* pointer, const char* name) {
  if (pointer != nullptr) return *pointer;
  throw core::UserError(core::ErrorCode::kU_misuse, "a pointer that is needed is NULL").with_value(name);
}

// What a training run can do besides running its entries; it keeps nothing between calls.
core::Trainer trainer_of(aicf_executable* executable) {
  return core::Trainer(Access::executable(need(executable, "executable").executable));
}

template <typename T>
const T& at(const std::vector<T>& items, int32_t index, const char* what) {
  if (index >= 0 && static_cast<size_t>(index) < items.size()) return items[static_cast<size_t>(index)];
  throw core::UserError(core::ErrorCode::kU_misuse, std::string("no ") + what + " has this index")
      .with_expected("0.." + std::to_string(static_cast<int64_t>(items.size()) - 1))
      .with_actual(std::to_string(index));
}

const EntryInfo& entry_of(const aicf_executable* executable, int32_t entry) {
  return at(need(executable, "executable").entries, entry, "entry");
}

// Reuses the memory of `view`.
void assign(TensorView& view, const aicf_tensor& tensor) {
  if (tensor.rank < 0 || (tensor.rank > 0 && tensor.sizes == nullptr))
    throw core::UserError(core::ErrorCode::kU_misuse, "a tensor has a negative rank or no sizes")
        .with_actual("rank " + std::to_string(tensor.rank));
  if (tensor.dtype < 0 || tensor.dtype >= core::kDTypeCount)
    throw core::UserError(core::ErrorCode::kU_bad_dtype, "no dtype has this number")
        .with_value(std::to_string(tensor.dtype));
  view.data = tensor.data;
  view.dtype = static_cast<aicf::v1::DType>(tensor.dtype);
  view.sizes.assign(tensor.sizes, tensor.sizes + tensor.rank);
  if (tensor.place != AICF_HOST && tensor.place != AICF_DEVICE)
    throw core::UserError(core::ErrorCode::kU_misuse, "a tensor is in no place that exists")
        .with_value(std::to_string(tensor.place));
  view.place = tensor.place == AICF_DEVICE ? aicf::v1::Place::device : aicf::v1::Place::host;
  view.strides.clear();
  if (tensor.strides != nullptr) view.strides.assign(tensor.strides, tensor.strides + tensor.rank);
}

void assign_all(std::vector<TensorView>& views, const aicf_tensor* tensors, int32_t count, const char* name) {
  if (count < 0) throw core::UserError(core::ErrorCode::kU_misuse, "a count is negative").with_value(name);
  if (count > 0) need(tensors, name);
  views.resize(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) assign(views[static_cast<size_t>(i)], tensors[i]);
}

class Running {
 public:
  explicit Running(std::atomic_flag& flag) : flag_(flag) {
    if (flag_.test_and_set(std::memory_order_acquire))
      throw core::UserError(core::ErrorCode::kU_busy, "the executable already has a run in flight")
          .with_remedy("use one aicf_clone() per thread");
  }
  ~Running() { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag& flag_;
};

void fill(aicf_tensor_info& info, const SpecInfo& spec) {
  info = {spec.name.c_str(),
          spec.dtype,
          static_cast<int32_t>(spec.texts.size()),
          spec.min_sizes.data(),
          spec.max_sizes.data(),
          spec.text_pointers.data()};
}

void check_bytes(int64_t expected, size_t given, const char* name) {
  if (static_cast<uint64_t>(expected) == given) return;
  throw core::UserError(core::ErrorCode::kU_input_shape, "a state has another number of bytes")
      .with_value(name)
      .with_expected(std::to_string(expected))
      .with_actual(std::to_string(given));
}

}  // namespace

static_assert(sizeof(aicf_custom_tensor) == sizeof(core::CustomTensor) &&
              offsetof(aicf_custom_tensor, dtype) == offsetof(core::CustomTensor, dtype) &&
              offsetof(aicf_custom_tensor, sizes) == offsetof(core::CustomTensor, sizes));

extern "C" {

aicf_status aicf_register_op(const char* name, aicf_custom_function function, void* user) {
  return guarded([&] {
    need(name, "name");
    core::register_custom_op(name, {reinterpret_cast<core::CustomFunction>(function), user});
  });
}

int32_t aicf_abi_version(void) { return AICF_ABI_VERSION; }
const char* aicf_version(void) { return aicf::v1::version(); }
const char* aicf_last_error(void) {
  return last_error.out_of_memory ? "memory is exhausted" : last_error.text.c_str();
}
const char* aicf_last_error_code(void) {
  return last_error.out_of_memory ? "AICF-E0002" : last_error.code.c_str();
}

aicf_status aicf_load(const char* path, int32_t threads, aicf_executable** result) {
  return aicf_load_on(path, "cpu", threads, 0, result);
}

aicf_status aicf_load_on(const char* path, const char* device, int32_t threads, int64_t memory_limit,
                         aicf_executable** result) {
  return guarded([&] {
    need(result, "result") = nullptr;
    need(path, "path");
    aicf::v1::LoadOptions options;
    options.threads = threads;
    options.device = &need(device, "device");
    options.device_memory_limit = memory_limit;
    *result = new aicf_executable(Executable::load(path, options));
  });
}

aicf_status aicf_clone(const aicf_executable* executable, aicf_executable** result) {
  return guarded([&] {
    need(result, "result") = nullptr;
    *result = new aicf_executable(need(executable, "executable").executable.clone());
  });
}

aicf_status aicf_free(aicf_executable* executable) {
  return guarded([&] { delete executable; });
}

aicf_status aicf_entry_count(const aicf_executable* executable, int32_t* count) {
  return guarded(
      [&] { need(count, "count") = static_cast<int32_t>(need(executable, "executable").entries.size()); });
}

aicf_status aicf_entry_name(const aicf_executable* executable, int32_t entry, const char** name) {
  return guarded([&] { need(name, "name") = entry_of(executable, entry).name.c_str(); });
}

aicf_status aicf_input_count(const aicf_executable* executable, int32_t entry, int32_t* count) {
  return guarded(
      [&] { need(count, "count") = static_cast<int32_t>(entry_of(executable, entry).inputs.size()); });
}

aicf_status aicf_output_count(const aicf_executable* executable, int32_t entry, int32_t* count) {
  return guarded(
      [&] { need(count, "count") = static_cast<int32_t>(entry_of(executable, entry).outputs.size()); });
}

aicf_status aicf_input_info(const aicf_executable* executable, int32_t entry, int32_t index,
                            aicf_tensor_info* info) {
  return guarded([&] { fill(need(info, "info"), at(entry_of(executable, entry).inputs, index, "input")); });
}

aicf_status aicf_output_info(const aicf_executable* executable, int32_t entry, int32_t index,
                             aicf_tensor_info* info) {
  return guarded([&] { fill(need(info, "info"), at(entry_of(executable, entry).outputs, index, "output")); });
}

aicf_status aicf_output_sizes(const aicf_executable* executable, int32_t entry, const aicf_tensor* inputs,
                              int32_t input_count, int32_t index, int64_t* sizes) {
  return guarded([&] {
    const EntryInfo& info = entry_of(executable, entry);
    if (!at(info.outputs, index, "output").texts.empty()) need(sizes, "sizes");
    std::vector<TensorView> views;
    assign_all(views, inputs, input_count, "inputs");
    const std::vector<int64_t> result =
        executable->executable.output_sizes(views, info.name)[static_cast<size_t>(index)];
    std::copy(result.begin(), result.end(), sizes);
  });
}

aicf_status aicf_run(aicf_executable* executable, int32_t entry, const aicf_tensor* inputs,
                     int32_t input_count, const aicf_tensor* outputs, int32_t output_count) {
  return aicf_run_on(executable, entry, inputs, input_count, outputs, output_count, nullptr, 1);
}

aicf_status aicf_run_on(aicf_executable* executable, int32_t entry, const aicf_tensor* inputs,
                        int32_t input_count, const aicf_tensor* outputs, int32_t output_count, void* stream,
                        int32_t wait) {
  return guarded([&] {
    const EntryInfo& info = entry_of(executable, entry);
    const Running running(executable->running);
    assign_all(executable->inputs, inputs, input_count, "inputs");
    assign_all(executable->outputs, outputs, output_count, "outputs");
    executable->executable.run_into(info.name, executable->inputs, executable->outputs, {stream, wait != 0});
  });
}

aicf_status aicf_finish(aicf_executable* executable) {
  return guarded([&] { need(executable, "executable").executable.finish(); });
}

aicf_status aicf_device_allocate(aicf_executable* executable, size_t bytes, void** data) {
  return guarded([&] {
    need(data, "data") = nullptr;
    core::Executable& core = Access::executable(need(executable, "executable").executable);
    core::DeviceTensor memory = core.device_tensor(core::DType::u8, {static_cast<int64_t>(bytes)});
    const std::lock_guard lock(executable->device_memory_mutex);
    *data = memory.data();
    executable->device_memory.emplace(*data, std::move(memory));
  });
}

aicf_status aicf_device_free(aicf_executable* executable, void* data) {
  return guarded([&] {
    need(executable, "executable");
    const std::lock_guard lock(executable->device_memory_mutex);
    if (data != nullptr && executable->device_memory.erase(data) == 0)
      throw core::UserError(core::ErrorCode::kU_misuse, "aicf_device_allocate did not give this address");
  });
}

aicf_status aicf_copy_to_device(aicf_executable* executable, void* to, const void* from, size_t bytes) {
  return guarded([&] {
    core::Device& device = Access::executable(need(executable, "executable").executable).model().device();
    if (bytes == 0) return;
    device.upload(&need(static_cast<std::byte*>(to), "to"),
                  &need(static_cast<const std::byte*>(from), "from"), static_cast<int64_t>(bytes), {});
    device.wait({});
  });
}

aicf_status aicf_copy_to_host(aicf_executable* executable, void* to, const void* from, size_t bytes) {
  return guarded([&] {
    core::Device& device = Access::executable(need(executable, "executable").executable).model().device();
    if (bytes == 0) return;
    device.download(&need(static_cast<std::byte*>(to), "to"),
                    &need(static_cast<const std::byte*>(from), "from"), static_cast<int64_t>(bytes), {});
  });
}

aicf_status aicf_state_count(const aicf_executable* executable, int32_t* count) {
  return guarded(
      [&] { need(count, "count") = static_cast<int32_t>(need(executable, "executable").states.size()); });
}

aicf_status aicf_state_name(const aicf_executable* executable, int32_t index, const char** name) {
  return guarded(
      [&] { need(name, "name") = at(need(executable, "executable").states, index, "state").c_str(); });
}

aicf_status aicf_state_get(const aicf_executable* executable, const char* name, void* data, size_t bytes) {
  return guarded([&] {
    need(name, "name");
    const Tensor state = need(executable, "executable").executable.state(name);
    check_bytes(state.bytes(), bytes, name);
    if (bytes > 0) std::memcpy(&need(static_cast<char*>(data), "data"), state.data(), bytes);
  });
}

aicf_status aicf_state_set(aicf_executable* executable, const char* name, const void* data, size_t bytes) {
  return guarded([&] {
    need(name, "name");
    Tensor state = need(executable, "executable").executable.state(name);
    check_bytes(state.bytes(), bytes, name);
    if (bytes > 0) std::memcpy(state.data(), &need(static_cast<const char*>(data), "data"), bytes);
    executable->executable.set_state(name, state);
  });
}

aicf_status aicf_reset(aicf_executable* executable) {
  return guarded([&] { need(executable, "executable").executable.reset(); });
}

aicf_status aicf_save_checkpoint(aicf_executable* executable, const char* path) {
  return guarded([&] {
    need(path, "path");
    trainer_of(executable).save_checkpoint(path);
  });
}

aicf_status aicf_load_checkpoint(aicf_executable* executable, const char* path) {
  return guarded([&] {
    need(path, "path");
    trainer_of(executable).load_checkpoint(path);
  });
}

aicf_status aicf_save(aicf_executable* executable, const char* path) {
  return guarded([&] {
    need(path, "path");
    core::write_artifact(path, trainer_of(executable).artifact());
  });
}

aicf_status aicf_bad_tensor(aicf_executable* executable, const char** name) {
  return guarded([&] {
    const char*& result = need(name, "name");
    executable->bad_tensor = trainer_of(executable).bad_tensor();
    result = executable->bad_tensor.c_str();
  });
}

aicf_status aicf_metadata(const aicf_executable* executable, const char* key, const char** value,
                          size_t* bytes) {
  return guarded([&] {
    need(key, "key");
    const char*& result = need(value, "value");
    const auto& metadata = need(executable, "executable").executable.model().metadata();
    const auto found = metadata.find(key);
    result = found != metadata.end() ? found->second.c_str() : nullptr;
    if (bytes != nullptr) *bytes = found != metadata.end() ? found->second.size() : 0;
  });
}

}  // extern "C"
