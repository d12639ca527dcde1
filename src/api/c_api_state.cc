// States, checkpoints and device memory of an executable from C.
#include "api/c_bridge.h"

#include <cstring>

#include "runtime/trainer.h"

using namespace aicf::c;

namespace {

// What a training run can do besides running its entries; it keeps nothing between calls.
core::Trainer trainer_of(aicf_executable* executable) {
  return core::Trainer(Access::executable(need(executable, "executable").executable));
}

void check_bytes(int64_t expected, size_t given, const char* name) {
  if (static_cast<uint64_t>(expected) == given) return;
  throw core::UserError(core::ErrorCode::kU_input_shape, "a state has another number of bytes")
      .with_value(name)
      .with_expected(std::to_string(expected))
      .with_actual(std::to_string(given));
}

}  // namespace

extern "C" {

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

}  // extern "C"
