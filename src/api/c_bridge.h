// What the C functions share: the executable behind the opaque pointer, and errors as status codes. Nothing
// that a C function calls may throw through it: guarded() is the body of each.
#pragma once

#include "api/bridge.h"

#include "aicf/aicf_c.h"

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace core = ::aicf;

namespace aicf::c {

using v1::Access;
using v1::Executable;
using v1::Tensor;
using v1::TensorSpec;
using v1::TensorView;

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

// Keeps the error for aicf_last_error() of this thread and gives the status.
aicf_status keep_error(const v1::Error& error, aicf_status status) noexcept;
// The same where there is no memory even for the error.
aicf_status keep_out_of_memory() noexcept;

// Runs a function and turns what it throws into a status and the thread's last error.
template <typename F>
aicf_status guarded(F&& function) noexcept {
  try {
    v1::translated(function);
    return AICF_OK;
  } catch (const v1::UserError& error) {
    return keep_error(error, AICF_USER_ERROR);
  } catch (const v1::EnvironmentError& error) {
    return keep_error(error, AICF_ENVIRONMENT_ERROR);
  } catch (const v1::Error& error) {
    return keep_error(error, AICF_INTERNAL_ERROR);
  } catch (...) {  // building the error itself ran out of memory
    return keep_out_of_memory();
  }
}

template <typename T>
T& need(T* pointer, const char* name) {
  if (pointer != nullptr) return *pointer;
  throw core::UserError(core::ErrorCode::kU_misuse, "a pointer that is needed is NULL").with_value(name);
}

template <typename T>
const T& at(const std::vector<T>& items, int32_t index, const char* what) {
  if (index >= 0 && static_cast<size_t>(index) < items.size()) return items[static_cast<size_t>(index)];
  throw core::UserError(core::ErrorCode::kU_misuse, std::string("no ") + what + " has this index")
      .with_expected("0.." + std::to_string(static_cast<int64_t>(items.size()) - 1))
      .with_actual(std::to_string(index));
}

}  // namespace aicf::c

struct aicf_executable {
  explicit aicf_executable(aicf::v1::Executable e)
      : executable(std::move(e)), states(executable.state_names()) {
    const aicf::v1::Model& model = executable.model();
    for (const std::string& name : model.entries()) {
      aicf::c::EntryInfo entry{name, {}, {}};
      for (const aicf::v1::TensorSpec& spec : model.inputs(name)) entry.inputs.emplace_back(spec);
      for (const aicf::v1::TensorSpec& spec : model.outputs(name)) entry.outputs.emplace_back(spec);
      entries.push_back(std::move(entry));
    }
  }
  aicf::v1::Executable executable;
  std::vector<aicf::c::EntryInfo> entries;
  std::vector<std::string> states;
  // Views handed inwards, kept so that a run allocates nothing; guarded by `running`.
  std::vector<aicf::v1::TensorView> inputs, outputs;
  std::mutex device_memory_mutex;
  std::map<void*, core::DeviceTensor> device_memory;  // handed out by aicf_device_allocate
  std::string bad_tensor;                             // what aicf_bad_tensor pointed to
  std::atomic_flag running = ATOMIC_FLAG_INIT;
};
