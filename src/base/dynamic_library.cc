#include "base/dynamic_library.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/limits.h"
#include "base/out_of_memory.h"

namespace aicf {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> split_path(const char* list) {
  std::vector<std::string> parts;
  std::string part;
  for (const char* c = list; c != nullptr && *c != '\0'; ++c) {
    if (*c != ':') {
      part += *c;
    } else if (!part.empty()) {
      parts.push_back(std::exchange(part, {}));
    }
  }
  if (!part.empty()) parts.push_back(part);
  return parts;
}

void add_if_folder(std::vector<std::string>& folders, const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) folders.push_back(path.string());
}

// <site>/nvidia/<package>/lib
void add_packages(std::vector<std::string>& folders, const fs::path& site) {
  std::error_code error;
  for (const auto& package : fs::directory_iterator(site / "nvidia", error))
    add_if_folder(folders, package.path() / "lib");
}

// <environment>/lib/python3.X/site-packages
void add_environment(std::vector<std::string>& folders, const fs::path& environment) {
  std::error_code error;
  for (const auto& python : fs::directory_iterator(environment / "lib", error))
    if (python.path().filename().string().starts_with("python3"))
      add_packages(folders, python.path() / "site-packages");
}

// The environment that the setup of our source tree makes in it, for what is built there.
void add_tree(std::vector<std::string>& folders, const fs::path& tree) {
  std::error_code error;
  if (fs::exists(tree / "include/aicf/aicf.h", error)) add_environment(folders, tree / ".venv");
}

// The folder of the file that holds this code: <environment>/bin or lib, or a package in <site>,
// or build/bin, build/lib or python/aicf of a source tree.
fs::path own_folder() {
  Dl_info info;
  std::error_code error;
  fs::path file;
  if (dladdr(reinterpret_cast<void*>(&own_folder), &info) != 0 && info.dli_fname != nullptr)
    file = info.dli_fname;
  // A program's is the name by which it was called.
  if (!file.is_absolute()) file = fs::read_symlink("/proc/self/exe", error);
  return file.parent_path();
}

// A library's constructors, and what the loader sets up for its threads, end the process where they find no
// memory: there must be room for the file and for them.
void require_room_to_load(const std::string& path) {
  constexpr uint64_t kOfConstructors = 16 << 20;
  std::error_code error;  // of a bare name, which the loader looks up
  const uint64_t bytes = fs::file_size(path, error);
  require_room(kOfConstructors + (error ? 0 : bytes), path);
}

// Null, and dlerror() says why.
void* load_library(const std::string& path) {
  void* loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (loaded != nullptr) return loaded;
  std::error_code error;
  if (path.find('/') == std::string::npos || fs::exists(path, error)) require_room_to_load(path);
  return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

// What dlopen says of a file that is not there; anything else is about one that is, or about what that needs.
bool says_absent(const std::string& error, const std::string& path) {
  return error.starts_with(path + ": cannot open shared object file: No such file or directory");
}

std::string remedy_of(const std::string& error) {
  const auto says = [&](const char* text) { return error.find(text) != std::string::npos; };
  if (says("cannot allocate") || says("Cannot allocate") || says("failed to map"))
    return "free memory, or raise the limit on the process's address space (ulimit -v)";
  if (says("ELF") || says("file too short") || says("invalid"))
    return "install it again, for this machine's architecture, or name another folder in AICF_CUDA_PATH";
  if (says("cannot open shared object file"))
    return "install the library that is named there, or add its folder to LD_LIBRARY_PATH";
  return "install it again, or name another folder in AICF_CUDA_PATH";
}

}  // namespace

bool vendor_libraries_allowed() {
  return number_from_environment("AICF_VENDOR_LIBRARIES", 0, 1).value_or(1) != 0;
}

bool library_fallback_wanted() {
  return number_from_environment("AICF_LIBRARY_FALLBACK", 0, 1).value_or(0) != 0;
}

std::vector<std::string> cuda_library_folders() {
  std::vector<std::string> folders = split_path(std::getenv("AICF_CUDA_PATH"));
  if (const char* environment = std::getenv("VIRTUAL_ENV")) add_environment(folders, environment);
  add_environment(folders, own_folder().parent_path());
  add_packages(folders, own_folder().parent_path());
  add_tree(folders, own_folder().parent_path().parent_path());
  if (const char* home = std::getenv("CUDA_HOME")) add_if_folder(folders, fs::path(home) / "lib64");
  add_if_folder(folders, "/usr/local/cuda/lib64");
  return folders;
}

DynamicLibrary DynamicLibrary::open(const std::vector<std::string>& names, const std::string& remedy) {
  DynamicLibrary library;
  std::vector<std::string> paths;
  for (const std::string& folder : cuda_library_folders())
    for (const std::string& name : names) paths.push_back(folder + "/" + name);
  paths.insert(paths.end(), names.begin(), names.end());
  std::string unusable, why;
  for (const std::string& path : paths) {
    library.handle_ = load_library(path);
    library.path_ = path;
    if (library.handle_ != nullptr) return library;
    const char* said = dlerror();
    if (unusable.empty() && said != nullptr && !says_absent(said, path)) unusable = path, why = said;
  }
  if (!unusable.empty())
    throw EnvironmentError(ErrorCode::kE_library_unusable, "a library is there, but it cannot be loaded")
        .with_value(unusable)
        .with_actual(why)
        .with_remedy(remedy_of(why));
  std::string looked;
  for (const std::string& folder : cuda_library_folders()) looked += folder + ", ";
  throw EnvironmentError(ErrorCode::kE_device_missing, "a library that CUDA targets need is not there")
      .with_value(names.front())
      .with_actual("looked in " + looked + "and where the system's loader looks")
      .with_remedy(remedy);
}

void DynamicLibrary::open_beside(const std::string& prefix) const {
  const fs::path folder = fs::path(path_).parent_path();
  if (folder.empty()) return;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(folder, error))
    if (file.path().filename().string().starts_with(prefix)) load_library(file.path().string());
}

void* DynamicLibrary::find(const char* symbol) const { return dlsym(handle_, symbol); }

void* DynamicLibrary::require(const char* symbol) const {
  void* address = find(symbol);
  if (address == nullptr)
    throw EnvironmentError(path_.find("libcuda.so") != std::string::npos ? ErrorCode::kE_driver_too_old
                                                                         : ErrorCode::kE_library_unusable,
                           "a library is too old: it lacks a function")
        .with_value(symbol)
        .with_actual(path_)
        .with_remedy("install a newer version of it");
  return address;
}

}  // namespace aicf
