#include "base/dynamic_library.h"
#include "base/error.h"
#include "kernels/common/cuda_kernel.h"
#include "kernels/common/kernel.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/open_device.h"
#include "target/target.h"
#include "verbs.h"

namespace aicf::cli {
namespace {

// A library that is opened at run time: what asks for it, and how it tells its version.
struct Library {
  const char* name;
  std::vector<std::string> files;
  const char* use;
  const char* remedy;
  std::string (*version)(const DynamicLibrary&);
};

// "13.1.2" of 130102, with `unit` for a major version.
std::string dotted(int64_t number, int64_t unit) {
  return std::to_string(number / unit) + "." + std::to_string(number % unit / 100) + "." +
         std::to_string(number % 100);
}

std::string version_of_nvrtc(const DynamicLibrary& library) {
  int (*version)(int*, int*) = nullptr;
  int major = 0, minor = 0;
  library.load(version, "nvrtcVersion");
  return version(&major, &minor) == 0 ? std::to_string(major) + "." + std::to_string(minor) : "?";
}
std::string version_of_cublaslt(const DynamicLibrary& library) {
  size_t (*version)() = nullptr;
  library.load(version, "cublasLtGetVersion");
  return dotted(static_cast<int64_t>(version()), 10000);
}
std::string version_of_cudnn(const DynamicLibrary& library) {
  size_t (*version)() = nullptr;
  library.load(version, "cudnnGetVersion");
  return dotted(static_cast<int64_t>(version()), 10000);
}
const Library kLibraries[] = {
    {"nvrtc",
     {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"},
     "compiling for a GPU",
     "the CUDA toolkit, or pip install nvidia-cuda-nvrtc",
     version_of_nvrtc},
    {"cublasLt",
     {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
     "library contractions",
     "the CUDA toolkit, or pip install nvidia-cublas",
     version_of_cublaslt},
    {"cudnn",
     {"libcudnn.so.9", "libcudnn.so"},
     "library convolutions and attention",
     "cuDNN 9, or pip install nvidia-cudnn-cu13",
     version_of_cudnn},
};

struct Report {
  std::string text;
  Json json;
};

Report describe_libraries() {
  Report report{"", Json::array()};
  for (const Library& library : kLibraries) {
    Json row = {{"name", library.name}, {"use", library.use}, {"found", false}};
    try {
      const DynamicLibrary opened = DynamicLibrary::open(library.files, library.remedy);
      const std::string version = library.version(opened);
      report.text += std::string(library.name) + ": " + version + ", " + opened.path() + "\n";
      row["found"] = true;
      row["version"] = version;
      row["path"] = opened.path();
    } catch (const EnvironmentError& error) {
      const bool there = error.code != ErrorCode::kE_device_missing;
      const std::string remedy =
          there ? error.remedy : std::string(library.remedy) + ", or set AICF_CUDA_PATH";
      report.text += std::string(library.name) +
                     (there ? ": cannot be loaded (" + error.actual + ")" : std::string(": missing")) +
                     "; needed for " + library.use + ": " + remedy + "\n";
      row["remedy"] = remedy;
      if (there) row["error"] = error.actual;
    }
    report.json.push_back(std::move(row));
  }
  return report;
}

// The GPUs, or why there are none.
struct Gpus : Report {
  Json missing;  // null where the driver answers
};

Gpus describe_gpus() {
  Gpus report{{"", Json::array()}, {}};
  try {
    int ordinal = 0;
    for (const CudaFacts& gpu : cuda_devices()) {
      const std::string name = "cuda:" + std::to_string(ordinal++), arch = std::to_string(gpu.arch);
      const bool old = gpu.arch < 80;
      report.text +=
          name + ": " + gpu.name + ", sm_" + arch + ", " + std::to_string(gpu.multiprocessors) +
          " multiprocessors, " + std::to_string(gpu.memory_bytes >> 20) + " MiB, driver for CUDA " +
          std::to_string(gpu.driver_version / 1000) + "." + std::to_string(gpu.driver_version % 1000 / 10) +
          "; " + (old ? "too old: compute capability 8.0 is the least" : "target " + target_of_device(name)) +
          "\n";
      report.json.push_back({{"name", gpu.name},
                             {"arch", gpu.arch},
                             {"target", old ? Json() : Json(target_of_device(name))},
                             {"multiprocessors", gpu.multiprocessors},
                             {"memory_bytes", gpu.memory_bytes},
                             {"driver_version", gpu.driver_version}});
    }
  } catch (const EnvironmentError& error) {
    report.text = "cuda: " + error.message + (error.actual.empty() ? "" : " (" + error.actual + ")") + "; " +
                  error.remedy + "\n";
    report.missing = {{"message", error.message}, {"remedy", error.remedy}};
  }
  return report;
}

}  // namespace

VerbRun setup_doctor(VerbOptions&) {
  return [](const Console& console) {
    const std::string isa(isa_name(detect_isa()));
    const int threads = choose_threads(0);
    const Gpus gpus = describe_gpus();
    const Report libraries = describe_libraries();
    console.result("aicf " AICF_VERSION "\nisa: " + isa + "\nthreads: " + std::to_string(threads) +
                       "\nkernels: " + std::to_string(kernel_table().size()) + " cpu, " +
                       std::to_string(cuda_kernel_table().size()) + " cuda\n" + gpus.text + libraries.text,
                   {{"version", AICF_VERSION},
                    {"targets", Target::names()},
                    {"isa", isa},
                    {"threads", threads},
                    {"kernels", kernel_table().size()},
                    {"cuda_kernels", cuda_kernel_table().size()},
                    {"cuda", gpus.json},
                    {"cuda_missing", gpus.missing},
                    {"libraries", libraries.json}});
    return static_cast<int>(kOk);
  };
}

}  // namespace aicf::cli
