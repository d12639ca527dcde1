#include "codegen/code_cache.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "base/jit.h"
#include "base/log.h"
#include "base/packed_error.h"
#include "codegen/nvrtc.h"
#include "ir/hash.h"
#include "kernels/common/cuda_kernel.h"

namespace aicf {
namespace {

namespace fs = std::filesystem;

std::string hash_of(const std::string& text) {
  return to_string(hash_bytes(text.data(), static_cast<int64_t>(text.size())));
}

// A file is its payload after the payload's hash, so that a damaged one is told from a sound one.
std::string read_entry(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return {};  // a pipe would never end
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
    write_file_atomically(path, hash_of(payload) + payload);
  } catch (const Error& error) {
    log_at(LogLevel::kInfo,
           [&] { return "compiled code is not kept: " + error.message + ": " + error.actual; });
  }
}

// The folder AICF_CACHE_DIR; none if it is unset.
std::optional<fs::path> cache_folder() {
  const char* folder = std::getenv("AICF_CACHE_DIR");
  if (folder == nullptr || *folder == '\0') return std::nullopt;
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error))
    throw UserError(ErrorCode::kU_bad_option, "AICF_CACHE_DIR names no folder")
        .with_value(folder)
        .with_remedy("name a folder, or unset it");
  return fs::path(folder) / "cuda";
}

// The hash of all that decides a unit's machine code, but the compiler's version.
std::vector<std::string> names_of(const std::vector<CudaUnit>& units) {
  std::string common;
  for (const char* option : kCudaOptions) common += std::string(option) + "\n";
  for (const CudaHeader& header : cuda_headers()) common += std::string(header.name) + "\n" + header.text;
  std::vector<std::string> names;
  for (const CudaUnit& unit : units) names.push_back(hash_of(unit.target + "\n" + common + unit.source));
  return names;
}

// A byte of the lock file for each entry.
int64_t lock_byte(const std::string& name) {
  return static_cast<int64_t>(std::stoull(name.substr(0, 8), nullptr, 16));
}

// The images of the entries that are in the folder; "" for the others.
std::vector<std::string> read_entries(const fs::path& folder, const std::vector<std::string>& names) {
  std::vector<std::string> images;
  for (const std::string& name : names) images.push_back(read_entry((folder / name).string()));
  return images;
}

size_t count_missing(const std::vector<std::string>& images) {
  return static_cast<size_t>(std::count(images.begin(), images.end(), std::string()));
}

// Of the compiler versions in the cache, the newest that has all units.
std::vector<std::string> read_prebuilt(const std::vector<CudaUnit>& units) {
  const std::optional<fs::path> folder = cache_folder();
  const std::vector<std::string> names = names_of(units);
  std::vector<fs::path> versions;
  std::error_code error;
  if (folder)
    for (const auto& version : fs::directory_iterator(*folder, error)) versions.push_back(version.path());
  const auto number = [](const fs::path& path) { return std::strtod(path.filename().c_str(), nullptr); };
  std::sort(versions.begin(), versions.end(),
            [&](const fs::path& a, const fs::path& b) { return number(a) > number(b); });
  size_t fewest = units.size();
  for (const fs::path& version : versions) {
    std::vector<std::string> images = read_entries(version, names);
    fewest = std::min(fewest, count_missing(images));
    if (fewest == 0) return images;
  }
  throw UserError(ErrorCode::kU_unsupported_option,
                  "machine code is not in the cache, and AICF_JIT=0 forbids to compile it")
      .with_value(folder ? folder->string() : "AICF_CACHE_DIR is not set")
      .with_expected(std::to_string(units.size()) + " modules for " + units[0].target)
      .with_actual(std::to_string(fewest) + " of them missing")
      .with_remedy(
          "fill the cache: compile the same model once with this AICF_CACHE_DIR and without AICF_JIT=0");
}

// The last units that do not compile, in the folder for those who wait for just these meanwhile: a number
// that every failure raises, the units' hash, the error. Whoever comes later tries again.
constexpr char kFailed[] = "failed";
struct Failure {
  uint64_t number = 0;
  std::string units, error;
};

Failure last_failure(const fs::path& folder) {
  Failure failure;
  std::istringstream in(read_entry((folder / kFailed).string()));
  in >> failure.number >> failure.units;
  in.get();
  failure.error.assign(std::istreambuf_iterator<char>(in), {});
  return failure;
}

void write_failure(const fs::path& folder, const Failure& failure) {
  write_entry((folder / kFailed).string(),
              std::to_string(failure.number) + " " + failure.units + " " + failure.error);
}

// compile_cuda by the one that holds the lock. `before`: the last failure when it began to wait for that.
std::vector<std::string> compile_or_fail(const fs::path& folder, const std::vector<CudaUnit>& units,
                                         const std::string& hash, uint64_t before, std::vector<double>& taken,
                                         const WhileForked& here) {
  const Failure last = last_failure(folder);
  if (last.number != before && last.units == hash) throw_packed(last.error);
  try {
    return compile_cuda(units, &taken, here);
  } catch (const InternalError& error) {  // the text's fault; what a process lacks another may have
    write_failure(folder, {last.number + 1, hash, packed(error)});
    throw;
  }
}

// Compiles what `images` lacks, unless another process or thread does so first, and keeps it.
void compile_missing(const fs::path& folder, const std::vector<CudaUnit>& units,
                     const std::vector<std::string>& names, std::vector<std::string>& images,
                     std::vector<double>& milliseconds, const WhileForked& here) {
  constexpr double kMostSeconds = 120;  // longer than any model's code takes
  std::error_code error;
  fs::create_directories(folder, error);
  std::vector<int64_t> bytes;
  for (size_t i = 0; i < units.size(); ++i)
    if (images[i].empty()) bytes.push_back(lock_byte(names[i]));
  const uint64_t failures = last_failure(folder).number;
  const FileLock lock((folder / "lock").string(), bytes, kMostSeconds);
  std::vector<CudaUnit> missing;
  std::vector<size_t> where;
  std::string all_names;
  for (size_t i = 0; i < units.size(); ++i) {
    if (images[i].empty()) images[i] = read_entry((folder / names[i]).string());
    if (!images[i].empty()) continue;
    missing.push_back(units[i]);
    where.push_back(i);
    all_names += names[i];
  }
  std::vector<double> taken;
  const std::vector<std::string> compiled =
      compile_or_fail(folder, missing, hash_of(all_names), failures, taken, here);
  for (size_t i = 0; i < compiled.size(); ++i) {
    images[where[i]] = compiled[i];
    milliseconds[where[i]] = taken[i];
    write_entry((folder / names[where[i]]).string(), compiled[i]);
  }
}

}  // namespace

std::vector<std::string> compile_cached(const std::vector<CudaUnit>& units, std::vector<double>* milliseconds,
                                        const WhileForked& here) {
  std::vector<double> taken(units.size(), 0);
  std::vector<double>& times = milliseconds != nullptr ? *milliseconds : taken;
  times.assign(units.size(), 0);
  if (units.empty()) return {};
  if (!jit_allowed()) return read_prebuilt(units);
  const std::optional<fs::path> all = cache_folder();
  if (!all) return compile_cuda(units, &times, here);
  const fs::path folder = *all / nvrtc_version();
  const std::vector<std::string> names = names_of(units);
  std::vector<std::string> images = read_entries(folder, names);
  if (count_missing(images) > 0) compile_missing(folder, units, names, images, times, here);
  return images;
}

}  // namespace aicf
