#include "runtime/open_device.h"

#include <charconv>

#include "base/error.h"
#include "base/limits.h"
#include "base/option_text.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/variant_fit.h"

namespace aicf {
namespace {

// The ordinal of "cuda" or "cuda:1"; -1 for "cpu".
int cuda_ordinal(const std::string& device) {
  if (device == "cpu") return -1;
  if (device == "cuda") return 0;
  int ordinal = -1;
  const std::string prefix = "cuda:";
  if (device.starts_with(prefix)) {
    const char *first = device.data() + prefix.size(), *last = device.data() + device.size();
    const auto [end, error] = std::from_chars(first, last, ordinal);
    if (error == std::errc() && end == last && ordinal >= 0) return ordinal;
  }
  throw UserError(ErrorCode::kU_bad_option, "no device has this name")
      .with_value(device)
      .with_expected("cpu, cuda or cuda:ORDINAL");
}

bool graphs_wanted() { return number_from_environment("AICF_CUDA_GRAPHS", 0, 1).value_or(1) != 0; }

}  // namespace

void check_device_options(const DeviceOptions& options) {
  const int ordinal = cuda_ordinal(options.device);
  if (options.memory_limit < 0)
    throw UserError(ErrorCode::kU_bad_option, "a memory limit is negative")
        .with_value(std::to_string(options.memory_limit))
        .with_expected("bytes, or 0 for no limit");
  if (ordinal < 0 && (options.memory_limit > 0 || options.allocator.allocate))
    throw UserError(ErrorCode::kU_unsupported_option,
                    "a limit or allocator of a GPU's memory is given for the CPU")
        .with_value(options.device)
        .with_expected("cuda or cuda:ORDINAL")
        .with_remedy("AICF_MAX_MEMORY bounds the memory of the CPU");
  if (ordinal < 0) (void)choose_threads(options.threads), (void)choose_isa(options.isa);
  if (ordinal >= 0 && (options.threads != 0 || !options.isa.empty()))
    throw UserError(ErrorCode::kU_unsupported_option, "an option of the CPU is given for a GPU")
        .with_value(options.threads != 0 ? option_text(Option::kThreads, std::to_string(options.threads))
                                         : option_text(Option::kIsa, options.isa))
        .with_actual(options.device)
        .with_remedy("leave it out, or run on the CPU: " + option_text(Option::kDevice, "cpu"));
}

std::shared_ptr<Device> open_device(const DeviceOptions& options) {
  check_device_options(options);
  const int ordinal = cuda_ordinal(options.device);
  if (ordinal < 0) return make_cpu_device({choose_threads(options.threads), choose_isa(options.isa)});
  return make_cuda_device({ordinal, graphs_wanted(), options.allocator, options.memory_limit});
}

std::string target_of_device(const std::string& device) {
  const int ordinal = cuda_ordinal(device);
  if (ordinal < 0) return "cpu";
  const std::vector<int> devices = cuda_architectures();
  if (ordinal >= static_cast<int>(devices.size()))
    throw EnvironmentError(ErrorCode::kE_device_missing, "there is no CUDA device of this ordinal")
        .with_value(device)
        .with_actual(std::to_string(devices.size()) + " devices")
        .with_remedy("name an architecture to compile for a machine that is not this one: " +
                     option_text(Option::kTarget, "sm_90"));
  const int arch = devices[static_cast<size_t>(ordinal)];
  if (const std::string target = target_for("sm_" + std::to_string(arch)); !target.empty()) return target;
  throw EnvironmentError(ErrorCode::kE_device_missing, "the CUDA device is too old")
      .with_expected("compute capability 8.0 or newer")
      .with_actual(std::to_string(arch / 10) + "." + std::to_string(arch % 10));
}

std::string spelled_out_target(const std::string& target) {
  if (target != "cuda" && !target.starts_with("cuda:")) return target;
  const std::string all = "compute_80,cpu", own = target_of_device(target);
  return all.starts_with(own) ? all : own + "," + all;  // a GPU newer than our code runs PTX anyhow
}

}  // namespace aicf
