#include "base/error.h"
#include "kernels/cuda_kernel.h"
#include "kernels/kernel.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/cuda/cuda_device.h"
#include "verbs.h"

namespace aicf::cli {
namespace {

// The GPUs, or why there are none.
std::pair<std::string, Json> describe_cuda() {
  std::string text;
  Json list = Json::array();
  try {
    int ordinal = 0;
    for (const CudaFacts& gpu : cuda_devices()) {
      text += "cuda:" + std::to_string(ordinal++) + ": " + gpu.name + ", sm_" + std::to_string(gpu.arch) +
              ", " + std::to_string(gpu.multiprocessors) + " multiprocessors, " +
              std::to_string(gpu.memory_bytes >> 20) + " MiB, driver for CUDA " +
              std::to_string(gpu.driver_version / 1000) + "." +
              std::to_string(gpu.driver_version % 1000 / 10) + "\n";
      list.push_back({{"name", gpu.name},
                      {"arch", gpu.arch},
                      {"multiprocessors", gpu.multiprocessors},
                      {"memory_bytes", gpu.memory_bytes},
                      {"driver_version", gpu.driver_version}});
    }
  } catch (const EnvironmentError& error) {
    text = "cuda: " + error.message + (error.actual.empty() ? "" : " (" + error.actual + ")") + "; " +
           error.remedy + "\n";
  }
  return {text, list};
}

}  // namespace

VerbRun setup_doctor(VerbOptions&) {
  return [](const Console& console) {
    const std::string isa(isa_name(detect_isa()));
    const int threads = choose_threads(0);
    const auto [cuda_text, cuda] = describe_cuda();
    console.result("aicf " AICF_VERSION "\nisa: " + isa + "\nthreads: " + std::to_string(threads) +
                       "\nkernels: " + std::to_string(kernel_table().size()) + " cpu, " +
                       std::to_string(cuda_kernel_table().size()) + " cuda\n" + cuda_text,
                   {{"version", AICF_VERSION},
                    {"targets", {"cpu", "sm_80", "sm_86", "sm_89", "sm_90", "compute_80"}},
                    {"isa", isa},
                    {"threads", threads},
                    {"kernels", kernel_table().size()},
                    {"cuda_kernels", cuda_kernel_table().size()},
                    {"cuda", cuda}});
    return static_cast<int>(kOk);
  };
}

}  // namespace aicf::cli
