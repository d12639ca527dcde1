// Loading, describing and running an executable from C.
#include "api/c_bridge.h"

#include "aicf/custom_op.h"

#include <algorithm>
#include <cstddef>

#include "base/custom_op.h"
#include "runtime/run_guard.h"

using namespace aicf::c;

#define AICF_DTYPE(name, ...) \
  static_assert(static_cast<int>(AICF_DTYPE_##name) == static_cast<int>(core::DType::name), #name);
#include "base/dtypes.def"
#undef AICF_DTYPE

static_assert(sizeof(aicf_custom_tensor) == sizeof(core::CustomTensor) &&
              offsetof(aicf_custom_tensor, dtype) == offsetof(core::CustomTensor, dtype) &&
              offsetof(aicf_custom_tensor, sizes) == offsetof(core::CustomTensor, sizes));

namespace {

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

void assign_outputs(std::vector<TensorView>& views, const aicf_tensor* tensors, int32_t count,
                    const char* name) {
  if (count < 0) throw core::UserError(core::ErrorCode::kU_misuse, "a count is negative").with_value(name);
  if (count > 0) need(tensors, name);
  views.resize(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) assign(views[static_cast<size_t>(i)], tensors[i]);
}

void fill(aicf_tensor_info& info, const SpecInfo& spec) {
  info = {spec.name.c_str(),
          spec.dtype,
          static_cast<int32_t>(spec.texts.size()),
          spec.min_sizes.data(),
          spec.max_sizes.data(),
          spec.text_pointers.data()};
}

}  // namespace

extern "C" {

int32_t aicf_abi_version(void) { return AICF_ABI_VERSION; }
const char* aicf_version(void) { return aicf::v1::version(); }

aicf_status aicf_register_op(const char* name, aicf_custom_function function, void* user) {
  return guarded([&] {
    need(name, "name");
    core::register_custom_op(name, core::custom_op(reinterpret_cast<core::CustomFunction>(function), user));
  });
}

aicf_status aicf_register_checked_op(const char* name, aicf_checked_function function, void* user) {
  return guarded([&] {
    need(name, "name");
    core::register_custom_op(name, core::custom_op(reinterpret_cast<core::CheckedFunction>(function), user));
  });
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
    assign_outputs(views, inputs, input_count, "inputs");
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
    const core::RunGuard guard(executable->running, "use one aicf_clone() per thread");
    assign_outputs(executable->inputs, inputs, input_count, "inputs");
    assign_outputs(executable->outputs, outputs, output_count, "outputs");
    executable->executable.run_into(info.name, executable->inputs, executable->outputs, {stream, wait != 0});
  });
}

aicf_status aicf_finish(aicf_executable* executable) {
  return guarded([&] { need(executable, "executable").executable.finish(); });
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
