#include "runtime/cuda/cudnn_api.h"

#include <string>

#include "base/dynamic_library.h"
#include "base/error.h"
#include "runtime/cuda/library_handles.h"

namespace aicf::cuda::cudnn {

namespace {

// cuDNN asks the loader for these by their bare names, and ends the process where one is not there.
void open_needed(const DynamicLibrary& cudnn) {
  size_t (*runtime_version)() = nullptr;
  cudnn.load(runtime_version, "cudnnGetCudartVersion");
  constexpr size_t kMajor = 1000;
  const std::string suffix = ".so." + std::to_string(runtime_version() / kMajor);
  const std::string remedy =
      "cuDNN needs it: install the CUDA toolkit of that version, or compile again with "
      "AICF_VENDOR_LIBRARIES=0";
  DynamicLibrary::open({"libcublasLt" + suffix}, remedy);
  DynamicLibrary::open({"libnvrtc" + suffix}, remedy).open_beside("libnvrtc-builtins.so");
}

}  // namespace

const Api& api() {
  static const Api table = [] {
    const DynamicLibrary file =
        DynamicLibrary::open({"libcudnn.so.9", "libcudnn.so"},
                             "install cuDNN 9 or 'pip install nvidia-cudnn-cu13', or compile again with "
                             "AICF_VENDOR_LIBRARIES=0");
    Api a;
    file.load(a.version, "cudnnGetVersion");
    file.load(a.create, "cudnnCreate");
    file.load(a.destroy, "cudnnDestroy");
    file.load(a.set_stream, "cudnnSetStream");
    file.load(a.create_descriptor, "cudnnBackendCreateDescriptor");
    file.load(a.destroy_descriptor, "cudnnBackendDestroyDescriptor");
    file.load(a.finalize, "cudnnBackendFinalize");
    file.load(a.set_attribute, "cudnnBackendSetAttribute");
    file.load(a.get_attribute, "cudnnBackendGetAttribute");
    file.load(a.execute, "cudnnBackendExecute");
    open_needed(file);
    return a;
  }();
  return table;
}

void check_status(int status, const char* call) { check_library_status(status, "cuDNN", call); }

Handle handle() {
  static LibraryHandles handles("cuDNN", "cudnnCreate", api().create, api().destroy);
  return handles.current();
}

int data_type(DType dtype) {
  constexpr int kHalf = 2, kBfloat16 = 9;
  return dtype == DType::f16 ? kHalf : dtype == DType::bf16 ? kBfloat16 : kFloat;
}

Descriptor::Descriptor(DescriptorType type) {
  check_status(api().create_descriptor(type, &raw_), "cudnnBackendCreateDescriptor");
}

Descriptor::~Descriptor() {
  if (raw_ != nullptr) api().destroy_descriptor(raw_);
}

void Descriptor::set(Attribute attribute, ValueType type, int64_t count, const void* values) {
  const int status = api().set_attribute(raw_, attribute, type, count, values);
  if (status != 0) check_status(status, ("cudnnBackendSetAttribute of " + std::to_string(attribute)).c_str());
}

void Descriptor::set(Attribute attribute, const std::vector<int64_t>& values) {
  set(attribute, kInt64Type, static_cast<int64_t>(values.size()), values.data());
}

void Descriptor::set(Attribute attribute, const std::vector<Descriptor>& values) {
  std::vector<RawDescriptor> raw;
  for (const Descriptor& value : values) raw.push_back(value.raw_);
  set(attribute, kDescriptorType, static_cast<int64_t>(raw.size()), raw.data());
}

void Descriptor::set_flag(Attribute attribute) {
  const bool yes = true;
  set(attribute, kBooleanType, 1, &yes);
}

void Descriptor::finalize() { check_status(api().finalize(raw_), "cudnnBackendFinalize"); }

bool Descriptor::try_finalize() { return api().finalize(raw_) == 0; }

int64_t Descriptor::get(Attribute attribute, ValueType type) const {
  int64_t count = 0, value = 0;  // enums fill the lower half
  check_status(api().get_attribute(raw_, attribute, type, 1, &count, &value), "cudnnBackendGetAttribute");
  return value;
}

std::vector<int> Descriptor::get_enums(Attribute attribute, ValueType type, int64_t most) const {
  std::vector<int> values(static_cast<size_t>(most));
  int64_t count = 0;
  check_status(api().get_attribute(raw_, attribute, type, most, &count, values.data()),
               "cudnnBackendGetAttribute");
  values.resize(static_cast<size_t>(std::min(count, most)));
  return values;
}

std::vector<Descriptor> Descriptor::get(Attribute attribute, DescriptorType type, int64_t most) const {
  std::vector<Descriptor> made;
  std::vector<RawDescriptor> raw;
  for (int64_t i = 0; i < most; ++i) {
    made.emplace_back(type);
    raw.push_back(made.back().raw_);
  }
  int64_t count = 0;
  check_status(api().get_attribute(raw_, attribute, kDescriptorType, most, &count, raw.data()),
               "cudnnBackendGetAttribute");
  made.erase(made.begin() + static_cast<std::ptrdiff_t>(std::min(count, most)), made.end());
  return made;
}

}  // namespace aicf::cuda::cudnn
