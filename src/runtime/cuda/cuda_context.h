// A device's context, memory and modules, by ownership.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/cuda/driver.h"
#include "runtime/device.h"

namespace aicf::cuda {

// Compute capability × 10.
int architecture_of(Device device);

// The primary context of a device, which other libraries of the process share, a stream of our own, and where
// memory comes from.
class DeviceContext {
 public:
  // `memory_limit` in bytes of all that is allocated through this context; 0: none.
  explicit DeviceContext(int ordinal, DeviceAllocator allocator = {}, int64_t memory_limit = 0);
  ~DeviceContext();
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

  // Makes the context current in this thread; needed before any call about it.
  void enter() const { AICF_CUDA(driver().set_current(context_)); }
  // The same for destructors: at the end of the process the driver may be gone, with all of ours on the
  // device.
  void enter_if_alive() const noexcept { driver().set_current(context_); }
  // The caller's stream or our own.
  StreamHandle stream(aicf::Stream s) const {
    return s.handle != nullptr ? static_cast<StreamHandle>(s.handle) : stream_;
  }
  Context handle() const { return context_; }
  int arch() const { return arch_; }
  int ordinal() const { return ordinal_; }
  // What is queued on `after` from now on waits for what is queued on `before`.
  void order(StreamHandle before, StreamHandle after) const;
  // over_limit, out_of_memory.
  Address allocate(int64_t bytes);
  void release(Address address, int64_t bytes) noexcept;

 private:
  aicf::cuda::Device device_ = 0;
  Context context_ = nullptr;
  StreamHandle stream_ = nullptr;
  int ordinal_ = 0, arch_ = 0;
  DeviceAllocator allocator_;
  int64_t memory_limit_ = 0;
  std::atomic<int64_t> allocated_{0};
};

class Memory final : public DeviceMemory {
 public:
  Memory(std::shared_ptr<DeviceContext> context, int64_t bytes);
  ~Memory() override;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() override { return reinterpret_cast<std::byte*>(address_); }
  int64_t bytes() const override { return bytes_; }

 private:
  std::shared_ptr<DeviceContext> context_;
  Address address_ = 0;
  int64_t bytes_;
};

// Host memory that the device maps: where kernels report data errors.
class MappedMemory {
 public:
  MappedMemory(std::shared_ptr<DeviceContext> context, size_t bytes);
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  void* host() const { return host_; }
  Address device() const { return device_; }

 private:
  std::shared_ptr<DeviceContext> context_;
  void* host_ = nullptr;
  Address device_ = 0;
};

// The modules of a variant on one device.
class Modules final : public Code {
 public:
  Modules(std::shared_ptr<DeviceContext> context, const std::vector<Array>& images);
  ~Modules() override;
  Modules(const Modules&) = delete;
  Modules& operator=(const Modules&) = delete;
  // bad_artifact if the module has no such function.
  Function function(int32_t module, const std::string& name) const;
  // Launches of the function may have so many bytes of dynamic shared memory; what was allowed before stays.
  void allow_shared(Function function, int64_t bytes) const;

 private:
  void load(const Array& image);
  void unload() noexcept;
  std::shared_ptr<DeviceContext> context_;
  std::vector<Module> modules_;
  mutable std::mutex mutex_;
  mutable std::map<Function, int64_t> shared_;  // bytes that launches may have
};

}  // namespace aicf::cuda
