#include "runtime/device_tensor.h"

#include <algorithm>
#include <functional>

#include "base/error.h"

namespace aicf {
namespace {

constexpr int64_t kBlockBytes = 512;  // sizes are rounded up, so that near ones share
constexpr int64_t kLargestFit = 2;    // times the bytes that are asked for, of a block that serves
constexpr int64_t kMostHeld = 2;      // times the most that was out at once

}  // namespace

Array DeviceTensor::to_host() const {
  Array array = Array::uninitialized(dtype, sizes);
  device->download(array.mutable_data(), data(), bytes(), stream);
  return array;
}

bool DevicePool::Key::operator<(const Key& other) const {
  return stream != other.stream ? std::less<>()(stream, other.stream) : bytes < other.bytes;
}

std::shared_ptr<DeviceMemory> DevicePool::take(Device& device, int64_t bytes, Stream stream) {
  Key key{stream.handle, (std::max<int64_t>(bytes, 1) + kBlockBytes - 1) / kBlockBytes * kBlockBytes};
  std::unique_ptr<DeviceMemory> memory = reuse(key);
  if (memory == nullptr) memory = allocate(device, key.bytes);
  {
    const std::lock_guard lock(mutex_);
    out_ += key.bytes;
    most_out_ = std::max(most_out_, out_);
  }
  auto give_back = [pool = shared_from_this(), key](DeviceMemory* block) {
    pool->keep(key, std::unique_ptr<DeviceMemory>(block));
  };
  return {memory.release(), std::move(give_back)};
}

// The smallest that fits, whose size goes into `key`.
std::unique_ptr<DeviceMemory> DevicePool::reuse(Key& key) {
  const std::lock_guard lock(mutex_);
  const auto at = kept_.lower_bound(key);
  if (at == kept_.end() || at->first.stream != key.stream || at->first.bytes > kLargestFit * key.bytes)
    return nullptr;
  key = at->first;
  kept_bytes_ -= key.bytes;
  by_age_.erase(at->second.kept_at);
  return std::move(kept_.extract(at).mapped().memory);
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
    by_age_.clear();
    kept_bytes_ = 0;
  }
  freed.clear();
  return device.allocate(bytes);
}

void DevicePool::keep(const Key& key, std::unique_ptr<DeviceMemory> memory) {
  Kept freed;  // behind the lock: to free memory may wait for the device
  const std::lock_guard lock(mutex_);
  out_ -= key.bytes;
  kept_bytes_ += key.bytes;
  const auto at = kept_.emplace(key, Block{std::move(memory), ++age_});
  by_age_.emplace(age_, at);
  freed = surplus();
}

DevicePool::Kept DevicePool::surplus() {
  Kept freed;
  while (!by_age_.empty() && out_ + kept_bytes_ > kMostHeld * most_out_) {
    const auto oldest = by_age_.begin()->second;
    kept_bytes_ -= oldest->first.bytes;
    by_age_.erase(by_age_.begin());
    freed.insert(kept_.extract(oldest));
  }
  return freed;
}

}  // namespace aicf
