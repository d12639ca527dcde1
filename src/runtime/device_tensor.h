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

// What it keeps and what is out hold at most twice the bytes that were out at once at the most: a caller that
// drops what it took and takes the same again gets the same blocks, however many, and what other sizes left
// behind goes, the oldest first.
class DevicePool : public std::enable_shared_from_this<DevicePool> {
 public:
  // At least `bytes`. Frees what it keeps before it gives up for want of memory.
  std::shared_ptr<DeviceMemory> take(Device& device, int64_t bytes, Stream stream);

 private:
  struct Key {
    void* stream;
    int64_t bytes;
    bool operator<(const Key& other) const;
  };
  struct Block {
    std::unique_ptr<DeviceMemory> memory;
    uint64_t kept_at = 0;  // counts up
  };
  using Kept = std::multimap<Key, Block>;

  std::unique_ptr<DeviceMemory> reuse(Key& key);
  std::unique_ptr<DeviceMemory> allocate(Device& device, int64_t bytes);
  void keep(const Key& key, std::unique_ptr<DeviceMemory> memory);
  Kept surplus();

  std::mutex mutex_;
  Kept kept_;
  std::map<uint64_t, Kept::iterator> by_age_;
  uint64_t age_ = 0;
  int64_t out_ = 0, most_out_ = 0, kept_bytes_ = 0;
};

}  // namespace aicf
