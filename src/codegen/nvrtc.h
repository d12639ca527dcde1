// CUDA text to machine code through NVRTC, which is loaded at run time. Takes text that includes only
// cuda_headers(); gives a cubin for a concrete architecture ("sm_90a") or PTX for a virtual one
// ("compute_80"). Needs no GPU.
#pragma once

#include <string>
#include <vector>

#include "codegen/forked.h"

namespace aicf {

// Of every unit, beside its architecture. No contraction of a·b + c by the compiler's choice: fused
// multiply-adds are written out where they are meant.
inline constexpr const char* kCudaOptions[] = {
    "--std=c++17", "--fmad=false", "--device-as-default-execution-space", "--no-source-include", "--minimal"};

// How much there is to compile.
struct CompileWork {
  int kernels = 1;
  int cost = 1;  // CudaCode::compile_cost
};

// A translation unit and what it is compiled for.
struct CudaUnit {
  std::string source, target;
  CompileWork work = {};
};

// Machine code (an ELF cubin or PTX text) of each unit, in order. EnvironmentError device_missing without
// NVRTC, library_unusable if it cannot be loaded; InternalError check_failed with the compiler's log and the
// numbered text if one does not compile, because all text is ours. NVRTC compiles one unit at a time in a
// process, so the units are shared out to forked processes, one per core; none is compiled in this one, whose
// forks would inherit locks of NVRTC's threads. `milliseconds` gets how long each took; `here`: see
// run_forked.
std::vector<std::string> compile_cuda(const std::vector<CudaUnit>& units,
                                      std::vector<double>* milliseconds = nullptr,
                                      const WhileForked& here = {});

// Whether each unit compiles, in less time: NVRTC optimises little and assembles all of it. Throws as
// compile_cuda does.
void check_cuda(const std::vector<CudaUnit>& units);

// "13.0", part of what fixes the bits of a build.
std::string nvrtc_version();

}  // namespace aicf
