#include "runtime/cuda/cuda_context.h"

#include <cstring>

#include "base/error.h"
#include "runtime/code_image.h"
#include "runtime/cuda/library_handles.h"

namespace aicf::cuda {

int architecture_of(Device device) {
  int major = 0, minor = 0;
  AICF_CUDA(driver().device_attribute(&major, kComputeMajor, device));
  AICF_CUDA(driver().device_attribute(&minor, kComputeMinor, device));
  return 10 * major + minor;
}

DeviceContext::DeviceContext(int ordinal, DeviceAllocator allocator, int64_t memory_limit)
    : ordinal_(ordinal), allocator_(std::move(allocator)), memory_limit_(memory_limit) {
  const Driver& d = driver();
  int count = 0;
  AICF_CUDA(d.device_count(&count));
  if (ordinal < 0 || ordinal >= count)
    throw EnvironmentError(ErrorCode::kE_device_missing, "there is no CUDA device of this ordinal")
        .with_value(std::to_string(ordinal))
        .with_expected("0.." + std::to_string(count - 1))
        .with_remedy("choose another device, or check CUDA_VISIBLE_DEVICES");
  AICF_CUDA(d.device_get(&device_, ordinal));
  arch_ = architecture_of(device_);
  AICF_CUDA(d.primary_retain(&context_, device_));
  enter_if_alive();
  const int made = d.stream_create(&stream_, kStreamNonBlocking);
  if (made != 0) d.primary_release(device_);
  check(made, "stream_create");
  retain_library_handles(context_);
}

DeviceContext::~DeviceContext() {
  // Where the driver is gone, so are the libraries' handles.
  if (driver().set_current(context_) == 0) release_library_handles(context_);
  driver().stream_destroy(stream_);
  driver().primary_release(device_);
}

void DeviceContext::order(StreamHandle before, StreamHandle after) const {
  Event event = nullptr;
  AICF_CUDA(driver().event_create(&event, kEventDisableTiming));
  const int recorded = driver().event_record(event, before);
  const int waited = recorded == 0 ? driver().stream_wait_event(after, event, 0) : 0;
  driver().event_destroy(event);  // it lives until the wait is done
  check(recorded, "event_record");
  check(waited, "stream_wait_event");
}

Address DeviceContext::allocate(int64_t bytes) {
  enter();
  if (const int64_t sum = allocated_ += bytes; memory_limit_ > 0 && sum > memory_limit_) {
    allocated_ -= bytes;
    throw UserError(ErrorCode::kU_over_limit, "the device memory limit given when loading is reached")
        .with_expected("at most " + std::to_string(memory_limit_) + " bytes")
        .with_actual(std::to_string(sum) + " bytes")
        .with_remedy("raise the limit, or compile with a smaller range of sizes");
  }
  try {
    Address address = 0;
    if (!allocator_.allocate) {
      AICF_CUDA(driver().allocate(&address, static_cast<size_t>(bytes)));
      return address;
    }
    address = reinterpret_cast<Address>(allocator_.allocate(bytes));
    constexpr Address kAllocationAlignment = 256;
    if (address == 0)
      throw EnvironmentError(ErrorCode::kE_out_of_memory, "the given allocator has no memory left")
          .with_value(std::to_string(bytes) + " bytes");
    if (address % kAllocationAlignment != 0)
      throw UserError(ErrorCode::kU_misuse, "the given allocator's memory is not aligned to 256 bytes")
          .with_actual(std::to_string(address));
    return address;
  } catch (...) {
    allocated_ -= bytes;
    throw;
  }
}

void DeviceContext::release(Address address, int64_t bytes) noexcept {
  enter_if_alive();
  if (allocator_.release) {
    driver().context_synchronize();  // as the driver's own release does: work on it may still be queued
    allocator_.release(reinterpret_cast<void*>(address), bytes);
  } else {
    driver().release(address);
  }
  allocated_ -= bytes;
}

Memory::Memory(std::shared_ptr<DeviceContext> context, int64_t bytes)
    : context_(std::move(context)), bytes_(bytes) {
  if (bytes > 0) address_ = context_->allocate(bytes);
}

Memory::~Memory() {
  if (address_ != 0) context_->release(address_, bytes_);
}

MappedMemory::MappedMemory(std::shared_ptr<DeviceContext> context, size_t bytes)
    : context_(std::move(context)) {
  context_->enter();
  AICF_CUDA(driver().host_allocate(&host_, bytes, kHostAllocDeviceMap));
  std::memset(host_, 0, bytes);
  const int mapped = driver().host_address(&device_, host_, 0);
  if (mapped != 0) driver().host_release(host_);
  check(mapped, "host_address");
}

MappedMemory::~MappedMemory() {
  context_->enter_if_alive();
  driver().host_release(host_);
}

Modules::Modules(std::shared_ptr<DeviceContext> context, const std::vector<Array>& images)
    : context_(std::move(context)) {
  context_->enter();
  try {
    for (const Array& image : images) {
      const std::string module = "module " + std::to_string(modules_.size()) + " of the machine code";
      const CallsFor scope(module);
      load(image);
    }
  } catch (...) {
    unload();
    throw;
  }
}

void Modules::load(const Array& image) {
  check_code_image(image);
  // PTX is text and must end in a zero, which the section need not have.
  std::string bytes(image.data_as<char>(), static_cast<size_t>(image.bytes()));
  Module module = nullptr;
  AICF_CUDA(driver().module_load(&module, bytes.c_str()));
  modules_.push_back(module);
}

void Modules::unload() noexcept {
  context_->enter_if_alive();
  for (Module module : modules_) driver().module_unload(module);
}

Modules::~Modules() { unload(); }

Function Modules::function(int32_t module, const std::string& name) const {
  Function function = nullptr;
  if (driver().module_function(&function, modules_[static_cast<size_t>(module)], name.c_str()) != 0)
    throw UserError(ErrorCode::kU_bad_artifact, "a module lacks a function that the plan launches")
        .with_value(name)
        .with_remedy("compile the model again");
  return function;
}

void Modules::allow_shared(Function function, int64_t bytes) const {
  const std::lock_guard lock(mutex_);
  int64_t& allowed = shared_[function];
  if (bytes <= allowed) return;
  AICF_CUDA(driver().function_set_attribute(function, kMaxDynamicShared, static_cast<int>(bytes)));
  allowed = bytes;
}

}  // namespace aicf::cuda
