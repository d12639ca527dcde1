// The device interface: what the runtime asks of a driver. A driver turns an entry of a plan, at bound sizes,
// into a Sequence that can be run again and again; it owns memory of its kind. Drivers: cpu/, cuda/, null/
// (records calls, computes nothing; binding logic is tested on it).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "artifact/artifact.h"

namespace aicf {

// Where work is ordered on a device that has queues: the caller's stream (a CUstream), or null for the
// driver's own.
struct Stream {
  void* handle = nullptr;
  bool operator==(const Stream&) const = default;
};

// Whose memory a device uses: the host's, or that of the CUDA device of this ordinal.
struct DeviceId {
  bool cuda = false;
  int ordinal = 0;
  bool operator==(const DeviceId&) const = default;
};
// "cpu", "cuda:0"
std::string device_name(const DeviceId& id);
// unsupported_option if an array is in another device's memory than the executable's.
void check_same_device(const DeviceId& array, const DeviceId& executable, const std::string& what);

// Where a device with memory of its own takes it from in place of its own allocation. Both functions may be
// called from any thread that loads, runs or destroys.
struct DeviceAllocator {
  std::function<void*(int64_t bytes)> allocate;  // a multiple of 256; null if there is no memory left
  std::function<void(void* address, int64_t bytes)> release;
};

// Device memory, 64-byte aligned. Host memory is zero, its pages are committed when first touched.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual std::byte* data() = 0;
  virtual int64_t bytes() const = 0;
  // These bytes are about to be written, all of them: a hint for the kind of pages. Not for two threads at
  // once.
  virtual void will_fill(int64_t first, int64_t bytes) { (void)first, (void)bytes; }
};

// Where the buffers of an entry live, and those of every body of the plan: null for inputs and outputs, which
// set_address gives later, and for the arena of a body, which lies in its step's workspace.
struct BufferAddresses {
  std::vector<std::byte*> entry;
  std::vector<std::vector<std::byte*>> bodies = {};
};

// An entry bound to sizes. Addresses of inputs and outputs may be changed between runs; everything else is
// fixed.
class Sequence {
 public:
  virtual ~Sequence() = default;
  // Sets the address of a buffer (by its index in the entry plan). Cheap if it is the address already set.
  virtual void set_address(int32_t buffer, std::byte* address) = 0;
  // Runs all steps in order; may return before they are done on a device that has queues. Allocates nothing.
  virtual void run(Stream stream) = 0;
  // Waits for the last run. UserError index_out_of_range if its data asked for it.
  virtual void finish(Stream stream) = 0;
  // After run or finish has thrown: whether the run may have written variables. Drivers that cannot tell say
  // so.
  virtual bool may_have_written() const { return true; }
  // For people: "63/63 kernels in 1 graph"; empty where nothing is captured.
  virtual std::string coverage() const { return {}; }
  // Microseconds of every step of the entry, medians over `repeats` runs with a time stamp after each kernel;
  // the stamps lengthen the whole. Empty on devices that cannot tell.
  virtual std::vector<double> profile(int repeats) {
    (void)repeats;
    return {};
  }
};

// The middle one of each list; the upper of two.
std::vector<double> medians(std::vector<std::vector<double>> samples);

// Machine code of a variant, loaded.
class Code {
 public:
  virtual ~Code() = default;
};

// Bytes of the host to go to a device's memory.
struct Transfer {
  std::byte* to;
  const void* from;
  int64_t bytes;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;
  virtual DeviceId id() const = 0;
  // How well this device runs variants of a target; 0 not at all, the largest wins.
  virtual int fitness(std::string_view target) const = 0;
  // Bytes that the address of a caller's memory must be a multiple of, for elements of this size.
  virtual int64_t alignment(int64_t element_bytes) const = 0;

  // Whether kernels use the host's memory. If not, contents travel by the copies below, which are ordered
  // with runs on the same stream.
  virtual bool uses_host_memory() const = 0;
  // `from` may be reused when this returns.
  virtual void upload(std::byte* to, const void* from, int64_t bytes, Stream stream) = 0;
  // Each as upload, on the device's own stream; everything is there when this returns.
  virtual void upload_all(const std::vector<Transfer>& transfers);
  // The bytes are there when this returns.
  virtual void download(void* to, const std::byte* from, int64_t bytes, Stream stream) = 0;
  virtual void copy(std::byte* to, const std::byte* from, int64_t bytes, Stream stream) = 0;
  virtual void zero(std::byte* to, int64_t bytes, Stream stream) = 0;
  // Until everything queued on the stream is done.
  virtual void wait(Stream stream) = 0;
  // What is queued on `after` from now on begins when everything that is on `before` by now is done.
  virtual void order(Stream before, Stream after) = 0;
  // What other libraries call this stream: the driver's own if it is null.
  virtual void* handle_of(Stream stream) const = 0;
  // The device whose memory this is, by what a caller says of this device's kind: another of the kind if the
  // address is known to be there.
  virtual DeviceId owner_of(const void* address) const {
    (void)address;
    return id();
  }

  virtual std::unique_ptr<DeviceMemory> allocate(int64_t bytes) = 0;
  // Null where plans carry all the code there is.
  virtual std::shared_ptr<const Code> load_code(const Variant& variant) = 0;
  // Checks every window against its buffer's bytes at these sizes (bad_artifact) and prepares every
  // kernel.
  virtual std::unique_ptr<Sequence> bind(const Plan& plan, const EntryPlan& entry, const Code* code,
                                         const SymbolValues& sizes, const BufferAddresses& addresses) = 0;
};

// The part of a driver for devices that work in the host's memory, in the order of the calls.
class HostDevice : public Device {
 public:
  DeviceId id() const override { return {}; }
  int64_t alignment(int64_t element_bytes) const override;
  bool uses_host_memory() const override { return true; }
  void upload(std::byte* to, const void* from, int64_t bytes, Stream stream) override;
  void download(void* to, const std::byte* from, int64_t bytes, Stream stream) override;
  void copy(std::byte* to, const std::byte* from, int64_t bytes, Stream stream) override;
  void zero(std::byte* to, int64_t bytes, Stream stream) override;
  void wait(Stream) override {}
  void order(Stream, Stream) override {}
  void* handle_of(Stream stream) const override { return stream.handle; }
  std::shared_ptr<const Code> load_code(const Variant& variant) override;
};

}  // namespace aicf
