// The Bench of a real device: compiles the candidates of all tasks at once, runs them over buffers that
// rotate past the caches, and compares samples of what they write.
#pragma once

#include <memory>

#include "runtime/device.h"
#include "tune/bench.h"

namespace aicf {

struct DeviceBenchOptions {
  int64_t rotate_bytes = 0;  // operands of one sample together; 0: twice the last-level cache, as guessed
  double sample_seconds = 0.002;  // that one sample takes at least
};

// `program` is optimised for the target and must outlive the bench, as must the problems.
std::unique_ptr<Bench> make_device_bench(std::shared_ptr<Device> device, const Program& program,
                                         const Target& target, const DeviceBenchOptions& options = {});

// Compiles what the tasks need into AICF_CACHE_DIR; needs no device.
void prebuild(const Program& program, const Target& target, const std::vector<TuneTask>& tasks);

}  // namespace aicf
