// The CPU driver: kernels from the kernel table, run on the shared thread pool.
#pragma once

#include <memory>

#include "kernels/common/abi.h"
#include "runtime/device.h"

namespace aicf {

struct CpuOptions {
  int threads = 0;  // 0: AICF_NUM_THREADS, else the physical cores
  IsaLevel isa = IsaLevel::kPortable;
};

// isa_missing if this machine lacks the instruction set.
std::shared_ptr<Device> make_cpu_device(const CpuOptions& options);
// The best level, or the one named ("avx2", "avx512", "portable"); bad_option, isa_missing.
IsaLevel choose_isa(const std::string& name);
int choose_threads(int requested);

}  // namespace aicf
