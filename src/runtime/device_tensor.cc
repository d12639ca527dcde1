#include "runtime/device_tensor.h"

#include <algorithm>

#include "base/error.h"

namespace aicf {
namespace {

constexpr int64_t kBlockBytes = 512;  // sizes are rounded up, so that near ones share
constexpr size_t kMaxKept = 64;       // blocks that wait for another use

}  // namespace

Array DeviceTensor::to_host() const {
  Array array = Array::uninitialized(dtype, sizes);
  device->download(array.mutable_data(), data(), bytes(), stream);
  return array;
}

std::shared_ptr<DeviceMemory> DevicePool::take(Device& device, int64_t bytes, Stream stream) {
  const Key key{(std::max<int64_t>(bytes, 1) + kBlockBytes - 1) / kBlockBytes * kBlockBytes, stream.handle};
  std::unique_ptr<DeviceMemory> memory;
  {
    const std::lock_guard lock(mutex_);
    if (auto at = kept_.find(key); at != kept_.end()) memory = std::move(kept_.extract(at).mapped());
  }
  if (memory == nullptr) memory = allocate(device, key.first);
  auto give_back = [pool = shared_from_this(), key](DeviceMemory* block) {
    pool->keep(key, std::unique_ptr<DeviceMemory>(block));
  };
  return {memory.release(), std::move(give_back)};
}

std::unique_ptr<DeviceMemory> DevicePool::allocate(Device& device, int64_t bytes) {
  try {
    return device.allocate(bytes);
  } catch (const Error& error) {
    if (error.code != ErrorCode::kE_out_of_memory && error.code != ErrorCode::kU_over_limit) throw;
  }
  Kept freed;
  {
    const std::lock_guard lock(mutex_);
    freed.swap(kept_);
  }
  freed.clear();
  return device.allocate(bytes);
}

void DevicePool::keep(const Key& key, std::unique_ptr<DeviceMemory> memory) {
  const std::lock_guard lock(mutex_);
  if (kept_.size() < kMaxKept) kept_.emplace(key, std::move(memory));
}

}  // namespace aicf
