// The null driver: memory and binding are real, running only records. Tests of binding, capture and bucket
// logic use it; a new driver starts as a copy of it.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device.h"

namespace aicf {

// One recorded run of a step: its kernel and the addresses it would have used, inputs first; or, with an
// empty kernel, one stream made to wait for another.
struct NullRecord {
  std::string kernel;
  std::vector<const void*> addresses;
  Stream stream, before = {};
};

class NullDevice : public HostDevice {
 public:
  virtual const std::vector<NullRecord>& records() const = 0;
  virtual int64_t allocated_bytes() const = 0;
  DeviceId owner_of(const void* address) const override {
    const bool far = std::find(elsewhere.begin(), elsewhere.end(), address) != elsewhere.end();
    return far ? DeviceId{true, 1} : id();
  }

  std::vector<const void*> elsewhere;  // what counts as a GPU's memory
};

// With `own_memory` the host's memory counts as another's, as on a GPU: arrays travel by copies.
std::shared_ptr<NullDevice> make_null_device(bool own_memory = false);

}  // namespace aicf
