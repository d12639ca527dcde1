// Libraries that need not be on the machine, opened at run time: the CUDA driver, NVRTC, cuBLASLt, cuDNN.
#pragma once

#include <string>
#include <vector>

namespace aicf {

// An open library; it stays open until the process ends, because code and handles of it may live as long.
class DynamicLibrary {
 public:
  // Tries every name in each of cuda_library_folders(), then where the system's loader looks.
  // EnvironmentError device_missing with `remedy` if there is none, and a list of where was looked;
  // library_unusable with the loader's words if one is there that cannot be loaded; out_of_memory before it
  // is tried where there is no room for it.
  static DynamicLibrary open(const std::vector<std::string>& names, const std::string& remedy);

  // Opens every library of the same folder whose name begins so, for a library that will ask the loader for
  // it by its bare name. Nothing happens if the folder is not known.
  void open_beside(const std::string& prefix) const;

  // The path or name that opened.
  const std::string& path() const { return path_; }
  // Null if the library has no such symbol.
  void* find(const char* symbol) const;
  // As find, but EnvironmentError library_unusable (of libcuda driver_too_old) names the symbol.
  template <class Function>
  void load(Function*& function, const char* symbol) const {
    function = reinterpret_cast<Function*>(require(symbol));
  }

 private:
  void* require(const char* symbol) const;
  void* handle_ = nullptr;
  std::string path_;
};

// Whether cuBLASLt and cuDNN may be used: not with AICF_VENDOR_LIBRARIES=0.
bool vendor_libraries_allowed();

// Whether own kernels may run in place of a library of another version than the one recorded: only with
// AICF_LIBRARY_FALLBACK=1, because bits differ.
bool library_fallback_wanted();

// Folders that may hold NVIDIA's libraries: those of AICF_CUDA_PATH (colon-separated), of the nvidia packages
// in the active Python environment, in the one that holds this code and in that of the source tree that it
// was built in, of CUDA_HOME and the toolkit's usual place.
std::vector<std::string> cuda_library_folders();

}  // namespace aicf
