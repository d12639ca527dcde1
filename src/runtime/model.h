// A loaded model: the plan of one target, weights, and packed weights. Immutable and shared by any number of
// Executables, from any thread.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "artifact/artifact.h"
#include "runtime/device.h"

namespace aicf {

class Model {
 public:
  // Picks the variant for the device (no_variant lists what the artifact holds) and runs the init entry,
  // which packs weights.
  static std::shared_ptr<const Model> load(Artifact artifact, std::shared_ptr<Device> device);

  const Plan& plan() const { return plan_; }
  const std::map<std::string, std::string>& metadata() const { return artifact_.metadata; }
  const Artifact& artifact() const { return artifact_; }
  Device& device() const { return *device_; }
  const std::map<std::string, Array>& weights() const { return artifact_.weights; }
  // Addresses of an entry's buffers that the model owns: params, constants, packed weights. Others are null.
  std::vector<std::byte*> addresses(const EntryPlan& entry) const;
  // A model with some weights replaced (same names, dtypes and shapes: unknown_param, input_dtype,
  // input_shape) and packed again.
  std::shared_ptr<const Model> with_weights(const std::map<std::string, Array>& weights) const;

 private:
  Model() = default;
  void run_init();
  Artifact artifact_;
  Plan plan_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<DeviceMemory> packed_;
};

}  // namespace aicf
