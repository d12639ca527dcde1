// A library in place of libnvrtc.so.13 that passes every call on to the installed one, but has it optimise
// little. For test programs that ask of machine code that it is there and whole, not that it is fast
// (cmake/AicfFolder.cmake); its folder is the first of their AICF_CUDA_PATH. With AICF_SOAK=1, and where the
// code runs on a GPU, it changes nothing.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dynamic_library.h"
#include "base/error.h"
#include "base/testing/random_seeds.h"

#define AICF_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

namespace fs = std::filesystem;

constexpr int kFailed = 7;  // NVRTC_ERROR_BUILTIN_OPERATION_FAILURE
constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

// The library that would be found without this one, with what it needs beside it.
std::optional<aicf::DynamicLibrary> open_installed() {
  Dl_info own;
  if (dladdr(reinterpret_cast<void*>(&open_installed), &own) == 0) return std::nullopt;
  std::error_code error;
  for (const std::string& folder : aicf::cuda_library_folders())
    for (const char* name : kNames) {
      const fs::path path = fs::path(folder) / name;
      if (!fs::exists(path, error) || fs::equivalent(path, own.dli_fname, error)) continue;
      try {
        aicf::DynamicLibrary library = aicf::DynamicLibrary::open({path.string()}, "");
        library.open_beside("libnvrtc-builtins.so");
        return library;
      } catch (const aicf::Error&) {
        continue;  // as the search without this one goes on
      }
    }
  return std::nullopt;
}

// Open before the processes part that compile.
const std::optional<aicf::DynamicLibrary> library = open_installed();

// Null where none is installed.
template <class F>
F* installed(const char* name) {
  return library ? reinterpret_cast<F*>(library->find(name)) : nullptr;
}

bool optimises_fully() {
  const char* device = std::getenv("AICF_TEST_DEVICE");
  return aicf::testing::soaks() || (device != nullptr && std::string_view(device).starts_with("cuda"));
}

}  // namespace

// A function that passes its arguments on.
#define AICF_PASS_ON(name, parameters, arguments)              \
  AICF_EXPORT int name parameters {                            \
    const auto function = installed<int parameters>(#name);    \
    return function != nullptr ? function arguments : kFailed; \
  }

AICF_EXPORT const char* nvrtcGetErrorString(int result) {
  const auto function = installed<const char*(int)>("nvrtcGetErrorString");
  return function != nullptr ? function(result) : "no NVRTC is installed that the tests' one could call";
}

AICF_PASS_ON(nvrtcVersion, (int* major, int* minor), (major, minor))
AICF_PASS_ON(nvrtcCreateProgram,
             (void** program, const char* source, const char* name, int headers, const char* const* texts,
              const char* const* names),
             (program, source, name, headers, texts, names))
AICF_PASS_ON(nvrtcDestroyProgram, (void** program), (program))
AICF_PASS_ON(nvrtcGetProgramLogSize, (void* program, size_t* size), (program, size))
AICF_PASS_ON(nvrtcGetProgramLog, (void* program, char* log), (program, log))
AICF_PASS_ON(nvrtcGetCUBINSize, (void* program, size_t* size), (program, size))
AICF_PASS_ON(nvrtcGetCUBIN, (void* program, char* image), (program, image))
AICF_PASS_ON(nvrtcGetPTXSize, (void* program, size_t* size), (program, size))
AICF_PASS_ON(nvrtcGetPTX, (void* program, char* image), (program, image))

AICF_EXPORT int nvrtcCompileProgram(void* program, int count, const char* const* list) {
  const auto function = installed<int(void*, int, const char* const*)>("nvrtcCompileProgram");
  if (function == nullptr) return kFailed;
  std::vector<const char*> options(list, list + count);
  constexpr int kKnown = 13;  // the first version known to take the option, as in codegen/nvrtc.cc
  int major = 0, minor = 0;
  if (nvrtcVersion(&major, &minor) == 0 && major >= kKnown && !optimises_fully() &&
      std::none_of(options.begin(), options.end(),
                   [](std::string_view option) { return option.starts_with("--Ofast-compile"); }))
    options.push_back("--Ofast-compile=mid");
  return function(program, static_cast<int>(options.size()), options.data());
}
