// The CUDA driver of the runtime: an entry at bound sizes becomes one CUDA graph whose kernels stand in a
// chain; running is a launch of it. Several devices of a machine are told apart by their ordinal.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/work.h"
#include "runtime/device.h"

namespace aicf {

struct CudaOptions {
  int ordinal = 0;
  // false: kernels are launched one by one on the stream, for finding faults; the results are the same.
  bool graphs = true;
  DeviceAllocator allocator = {};  // empty: the driver's
  int64_t memory_limit = 0;        // bytes; 0: none
};

// EnvironmentError device_missing without a driver or a device of this ordinal.
std::shared_ptr<Device> make_cuda_device(const CudaOptions& options = {});

// What a device cannot exceed, of its clocks and widths as the driver tells them; nothing in it is measured.
struct CudaLimits {
  double memory_bytes = 0;  // a microsecond
  double cache_bytes = 0;   // a microsecond, from the cache that all multiprocessors share
  double cache_size = 0;    // bytes
  double half_flops = 0;    // a microsecond: operands of 2 bytes on matrix units; 1 byte: twice, tf32: half
  double float_flops = 0;   // a microsecond, of f32 beside them

  // Of work whose first operand is of dtype x, on these units.
  double least_microseconds(const Work& work, Units units, DType x) const;
};
// None where the driver does not tell, or the architecture is not known.
std::optional<CudaLimits> cuda_limits(int ordinal);

// What a machine has, for `doctor`; makes a context on each device.
struct CudaFacts {
  std::string name;
  int arch = 0;  // compute capability × 10
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int driver_version = 0;  // 13000: CUDA 13.0
};
std::vector<CudaFacts> cuda_devices();
// Compute capability × 10 of each device, for target "cuda"; makes no context.
std::vector<int> cuda_architectures();

}  // namespace aicf
