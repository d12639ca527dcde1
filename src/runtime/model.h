// A loaded model: the plan of one target, weights, and packed weights. Immutable and shared by any number of
// Executables, from any thread.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "artifact/artifact.h"
#include "runtime/device.h"

namespace aicf {

// Of which every executable has its own: states, and params that its entries write.
std::set<std::string> owned_variables(const Plan& plan);

class Model {
 public:
  // Picks the variant for the device (no_variant lists what the artifact holds) and runs the init entry,
  // which packs weights. What init reads and no run does, passes through the device's memory in parts and
  // does not stay there.
  static std::shared_ptr<const Model> load(Artifact artifact, std::shared_ptr<Device> device);

  const Variant& variant() const { return artifact_.variants[variant_]; }
  const Plan& plan() const { return variant().plan; }
  const Code* code() const { return code_.get(); }
  const std::map<std::string, std::string>& metadata() const { return artifact_.metadata; }
  const Artifact& artifact() const { return artifact_; }
  Device& device() const { return *device_; }
  const std::shared_ptr<Device>& shared_device() const { return device_; }
  const std::map<std::string, Array>& weights() const { return artifact_.weights; }
  // Addresses of an entry's buffers that the model owns: params, constants, packed weights. Others are null,
  // as are owned variables where the device has memory of its own.
  std::vector<std::byte*> addresses(const EntryPlan& entry) const;
  std::vector<std::vector<std::byte*>> body_addresses() const;
  // A model with some weights replaced (same names, dtypes and shapes: unknown_param, input_dtype,
  // input_shape) and packed again.
  std::shared_ptr<const Model> with_weights(const std::map<std::string, Array>& weights) const;
  // file_changed if a mapped file that weights view was written to. Allocates nothing.
  void require_unchanged_files() const;

 private:
  // Weights and constants in memory of the device, if that is not the host's.
  struct Uploaded {
    std::unique_ptr<DeviceMemory> memory;
    std::map<const Array*, int64_t> offsets;
    std::byte* find(const Array* array) const;  // null: not among them
  };
  Model() = default;
  const Array* array_of(const Buffer& buffer) const;
  Uploaded upload(const std::set<const Array*>& arrays) const;
  void prepare_weights();
  void place_weights();
  void run_init();
  void run_init_steps(const EntryPlan& init, size_t first, size_t end, const Uploaded& passing) const;
  std::vector<std::byte*> addresses(const EntryPlan& entry, const Uploaded& passing) const;
  Artifact artifact_;
  size_t variant_ = 0;
  std::shared_ptr<Device> device_;
  std::shared_ptr<const Code> code_;
  std::unique_ptr<DeviceMemory> packed_;
  std::vector<std::shared_ptr<const MappedFile>> mapped_;  // that weights and constants view
  // What runs read, but what executables own is brought there by them, from the host.
  Uploaded resident_;
};

}  // namespace aicf
