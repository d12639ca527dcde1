#include "kernels/kernel.h"
#include "runtime/cpu/cpu_device.h"
#include "verbs.h"

namespace aicf::cli {

VerbRun setup_doctor(CLI::App&) {
  return [](const Console& console) {
    const std::string isa(isa_name(detect_isa()));
    const int threads = choose_threads(0);
    console.result("aicf " AICF_VERSION "\ntargets: cpu\nisa: " + isa + "\nthreads: " +
                       std::to_string(threads) + "\nkernels: " + std::to_string(kernel_table().size()) + "\n",
                   {{"version", AICF_VERSION},
                    {"targets", {"cpu"}},
                    {"isa", isa},
                    {"threads", threads},
                    {"kernels", kernel_table().size()}});
    return static_cast<int>(kOk);
  };
}

}  // namespace aicf::cli
