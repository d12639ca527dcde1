// The device interface: what the runtime asks of a driver. A driver turns an entry of a plan, at bound sizes,
// into a Sequence that can be run again and again; it owns memory of its kind. Drivers: cpu/, null/ (records
// calls, computes nothing; binding logic is tested on it).
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace aicf {

// Device memory, 64-byte aligned; pages are committed when first touched.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual std::byte* data() = 0;
  virtual int64_t bytes() const = 0;
};

// An entry bound to sizes. Addresses of inputs and outputs may be changed between runs; everything else is
// fixed.
class Sequence {
 public:
  virtual ~Sequence() = default;
  // Sets the address of a buffer (by its index in the entry plan). Cheap if it is the address already set.
  virtual void set_address(int32_t buffer, std::byte* address) = 0;
  // Runs all steps in order. Allocates nothing. UserError index_out_of_range if the data asks for it.
  virtual void run() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;
  virtual std::unique_ptr<DeviceMemory> allocate(int64_t bytes) = 0;
  // `addresses[i]` is where buffer i of the entry lives; null for inputs and outputs, which set_address gives
  // later. Checks every window against its buffer's bytes at these sizes (bad_artifact) and prepares every
  // kernel.
  virtual std::unique_ptr<Sequence> bind(const Plan& plan, const EntryPlan& entry, const SymbolValues& sizes,
                                         const std::vector<std::byte*>& addresses) = 0;
};

}  // namespace aicf
