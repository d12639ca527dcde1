// Arrays in a device's memory that own it. Their memory comes from a pool and goes back to it when the last
// copy of the tensor goes; the pool gives it out again to the same stream only, so that work which is still
// queued on that stream is done before the memory is written again. Who reads a tensor on another stream has
// that stream ordered (Device::order) and keeps the tensor until the reads are done.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/array.h"
#include "runtime/device.h"

namespace aicf {

struct DeviceTensor {
  DType dtype = DType::f32;
  std::vector<int64_t> sizes;
  std::shared_ptr<DeviceMemory> memory;
  std::shared_ptr<Device> device;
  Stream stream;  // where what writes it is queued

  std::byte* data() const { return memory->data(); }
  int64_t bytes() const { return element_count(sizes) * dtype_bytes(dtype); }
  // Waits for the stream.
  Array to_host() const;
};

class DevicePool : public std::enable_shared_from_this<DevicePool> {
 public:
  // At least `bytes`. Frees what it keeps before it gives up for want of memory.
  std::shared_ptr<DeviceMemory> take(Device& device, int64_t bytes, Stream stream);

 private:
  using Key = std::pair<int64_t, void*>;  // bytes, stream
  using Kept = std::multimap<Key, std::unique_ptr<DeviceMemory>>;
  std::unique_ptr<DeviceMemory> allocate(Device& device, int64_t bytes);
  void keep(const Key& key, std::unique_ptr<DeviceMemory> memory);

  std::mutex mutex_;
  Kept kept_;
};

}  // namespace aicf
