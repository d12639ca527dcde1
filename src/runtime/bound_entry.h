// One entry bound to one set of input sizes: the device's sequence of steps, and for each input and output
// how it meets the caller's memory. Kernels use that memory where it is; memory that they cannot use as it
// is, strided, misaligned or on another device, is copied to or from a buffer of ours.
#pragma once

#include <memory>
#include <vector>

#include "runtime/device.h"
#include "runtime/tensor_view.h"

namespace aicf {

// How an input or output of the last run met the caller's memory; docs/binding.md.
enum class Binding : uint8_t { kRebound, kCopied };

class BoundEntry {
 public:
  // The sequence is of `plan`, which runs the entry at these sizes: a bucket, or the entry itself. Device and
  // plans outlive this.
  BoundEntry(Device& device, const EntryPlan& entry, const EntryPlan& plan, const SymbolValues& sizes,
             std::unique_ptr<Sequence> sequence);

  const EntryPlan& entry() const { return entry_; }
  const EntryPlan& plan() const { return plan_; }
  const SymbolValues& sizes() const { return sizes_; }
  const std::vector<std::vector<int64_t>>& output_sizes() const { return output_sizes_; }
  Sequence& sequence() const { return *sequence_; }
  bool matches(const EntryPlan& entry, const std::vector<TensorView>& inputs) const;

  // --- one run: inputs and outputs are bound, the sequence runs, outputs are finished
  void bind_input(size_t i, const TensorView& view, Stream stream);
  void bind_output(size_t i, const TensorView& view);
  void finish_output(size_t i, const TensorView& view, Stream stream);

  const std::vector<Binding>& input_bindings() const { return input_bindings_; }
  // Whether the caller's memory can only be written after the run.
  bool copies_output() const;

 private:
  // What stands in for a caller's memory: row-major, on the device.
  struct Staging {
    Array host;  // where strided data is packed, and what travels to and from a device with its own memory
    std::unique_ptr<DeviceMemory> device;
    std::byte* address(Device& owner, const TensorView& view);
    std::byte* host_address(const TensorView& view);
  };
  bool is_remote(const TensorView& view) const { return view.on_device && !device_.uses_host_memory(); }
  bool usable(const TensorView& view) const;
  void copy_in(std::byte* to, const TensorView& view, Staging& staging, Stream stream);
  void copy_out(const TensorView& view, std::byte* from, Staging& staging, Stream stream);
  // Asks of an address once.
  void check_owner(const TensorView& view, const void*& known, const char* kind, const IoTensor& io) const;
  void check_input_value(size_t i, const TensorView& view, Stream stream);

  Device& device_;
  const EntryPlan &entry_, &plan_;
  SymbolValues sizes_;
  std::unique_ptr<Sequence> sequence_;
  std::vector<std::vector<int64_t>> input_sizes_, output_sizes_;
  std::vector<Binding> input_bindings_, output_bindings_;
  std::vector<const void*> known_inputs_, known_outputs_;  // addresses that are this device's
  std::vector<Staging> input_copies_, output_copies_;      // filled when a caller's memory cannot be used
};

}  // namespace aicf
