#include "build/code_cache.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <xxhash.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "build/nvrtc.h"
#include "kernels/cuda_kernel.h"

namespace aicf {
namespace {

std::string hash_of(const std::string& text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  char name[33];
  std::snprintf(name, sizeof(name), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return name;
}

// A file is its payload after the payload's hash, so that a damaged one is told from a sound one.
std::string read_entry(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};  // a pipe would never end
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  constexpr size_t kHash = 32;
  if (text.size() <= kHash) return {};
  std::string payload = text.substr(kHash);
  return hash_of(payload) == text.substr(0, kHash) ? payload : std::string();
}

// A cache that cannot be written is not an error of the compilation.
void write_entry(const std::string& path, const std::string& payload) {
  try {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    write_file_atomically(path, hash_of(payload) + payload);
  } catch (const EnvironmentError&) {
  } catch (const UserError&) {
  }
}

}  // namespace

std::vector<std::string> compile_cached(const std::vector<CudaUnit>& units,
                                        std::vector<double>* milliseconds) {
  const char* folder = std::getenv("AICF_CACHE_DIR");
  if (folder == nullptr || *folder == '\0') return compile_cuda(units, milliseconds);
  if (units.empty()) return {};
  std::string common = nvrtc_version() + "\n";
  for (const CudaHeader& header : cuda_headers()) common += std::string(header.name) + "\n" + header.text;
  std::vector<std::string> images, paths;
  std::vector<CudaUnit> missing;
  std::vector<size_t> missing_at;
  for (size_t i = 0; i < units.size(); ++i) {
    paths.push_back(std::string(folder) + "/cuda/" +
                    hash_of(units[i].target + "\n" + common + units[i].source));
    images.push_back(read_entry(paths[i]));
    if (!images[i].empty()) continue;
    missing.push_back(units[i]);
    missing_at.push_back(i);
  }
  std::vector<double> taken;
  const std::vector<std::string> compiled = compile_cuda(missing, &taken);
  if (milliseconds != nullptr) milliseconds->assign(units.size(), 0);
  for (size_t i = 0; i < compiled.size(); ++i) {
    images[missing_at[i]] = compiled[i];
    if (milliseconds != nullptr) (*milliseconds)[missing_at[i]] = taken[i];
    write_entry(paths[missing_at[i]], compiled[i]);
  }
  return images;
}

}  // namespace aicf
