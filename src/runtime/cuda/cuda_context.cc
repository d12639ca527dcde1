#include "runtime/cuda/cuda_context.h"

#include <cstring>

#include "base/error.h"

namespace aicf::cuda {

DeviceContext::DeviceContext(int ordinal) {
  const Driver& d = driver();
  int count = 0;
  AICF_CUDA(d.device_count(&count));
  if (ordinal < 0 || ordinal >= count)
    throw EnvironmentError(ErrorCode::kE_device_missing, "there is no CUDA device of this ordinal")
        .with_value(std::to_string(ordinal))
        .with_expected("0.." + std::to_string(count - 1))
        .with_remedy("choose another device, or check CUDA_VISIBLE_DEVICES");
  int major = 0, minor = 0;
  AICF_CUDA(d.device_get(&device_, ordinal));
  AICF_CUDA(d.device_attribute(&major, kComputeMajor, device_));
  AICF_CUDA(d.device_attribute(&minor, kComputeMinor, device_));
  arch_ = 10 * major + minor;
  AICF_CUDA(d.primary_retain(&context_, device_));
  enter();
  AICF_CUDA(d.stream_create(&stream_, kStreamNonBlocking));
}

// Destructors ignore results: at the end of the process the driver may be gone already.
DeviceContext::~DeviceContext() {
  driver().set_current(context_);
  driver().stream_destroy(stream_);
  driver().primary_release(device_);
}

Memory::Memory(std::shared_ptr<DeviceContext> context, int64_t bytes)
    : context_(std::move(context)), bytes_(bytes) {
  if (bytes == 0) return;
  context_->enter();
  AICF_CUDA(driver().allocate(&address_, static_cast<size_t>(bytes)));
}

Memory::~Memory() {
  if (address_ == 0) return;
  context_->enter();
  driver().release(address_);
}

MappedMemory::MappedMemory(std::shared_ptr<DeviceContext> context, size_t bytes)
    : context_(std::move(context)) {
  context_->enter();
  AICF_CUDA(driver().host_allocate(&host_, bytes, kHostAllocDeviceMap));
  std::memset(host_, 0, bytes);
  AICF_CUDA(driver().host_address(&device_, host_, 0));
}

MappedMemory::~MappedMemory() {
  context_->enter();
  driver().host_release(host_);
}

Modules::Modules(std::shared_ptr<DeviceContext> context, const std::vector<Array>& images)
    : context_(std::move(context)) {
  context_->enter();
  for (const Array& image : images) {
    // PTX is text and must end in a zero, which the section need not have.
    std::string bytes(image.data_as<char>(), static_cast<size_t>(image.bytes()));
    Module module = nullptr;
    AICF_CUDA(driver().module_load(&module, bytes.c_str()));
    modules_.push_back(module);
  }
}

Modules::~Modules() {
  context_->enter();
  for (Module module : modules_) driver().module_unload(module);
}

Function Modules::function(int32_t module, const std::string& name) const {
  Function function = nullptr;
  if (driver().module_function(&function, modules_[static_cast<size_t>(module)], name.c_str()) != 0)
    throw UserError(ErrorCode::kU_bad_artifact, "a module lacks a function that the plan launches")
        .with_value(name)
        .with_remedy("compile the model again");
  return function;
}

}  // namespace aicf::cuda
