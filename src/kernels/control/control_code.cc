#include "kernels/control/control_code.h"

namespace aicf {
namespace {

struct ControlKernel {
  const char *name, *arguments;
  int threads;
};

// In the order of ControlLaunch.
constexpr ControlKernel kKernels[kControlLaunches] = {
    {"choose_branch", "Branches", 1}, {"next_trip", "Trips", 1}, {"move_rows", "Moves", kMoveThreads}};

}  // namespace

CudaCode control_code() {
  CudaCode code;
  code.source = "#include \"control/control.cuh\"\n";
  for (const ControlKernel& kernel : kKernels) {
    CudaLaunch launch;
    launch.function = std::string("control_") + kernel.name;
    launch.block = kernel.threads;
    code.source += "extern \"C\" __global__ void __launch_bounds__(" + std::to_string(kernel.threads) +
                   ")\n" + launch.function + "(const __grid_constant__ aicf::" + kernel.arguments +
                   " arguments) {\n  aicf::" + kernel.name + "(arguments);\n}\n";
    code.launches.push_back(std::move(launch));
  }
  return code;
}

}  // namespace aicf
