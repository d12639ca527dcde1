// Devices by name, for the command line and the APIs.
#pragma once

#include <memory>
#include <string>

#include "runtime/device.h"

namespace aicf {

struct DeviceOptions {
  std::string device = "cpu";      // "cpu", "cuda", "cuda:1"
  int threads = 0;                 // CPU: 0: AICF_NUM_THREADS, else the physical cores
  std::string isa = {};            // CPU: "", or "avx2", "avx512", "portable"
  DeviceAllocator allocator = {};  // CUDA: where memory comes from; empty: the driver
  int64_t memory_limit = 0;        // CUDA: bytes that all of one Model's users may take together; 0: none
};

// bad_option for another name, unsupported_option for an option that the named device has no use for; opens
// nothing.
void check_device_options(const DeviceOptions& options);

// The same errors; device_missing, isa_missing.
std::shared_ptr<Device> open_device(const DeviceOptions& options);

// The compile target of a device: "cpu", or the known architecture nearest to that of the CUDA device.
std::string target_of_device(const std::string& device);

// "cuda" or "cuda:1" as what to compile for stands for that GPU of this machine, PTX for later ones, and the
// CPU; other targets stand for themselves.
std::string spelled_out_target(const std::string& target);

}  // namespace aicf
