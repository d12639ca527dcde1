// What the fuzz targets have in common: libFuzzer's entry points, an input as a file, the rule that only
// coded errors about the input may come back, the run of whatever loads, and mutations of JSON documents. A
// target given AICF_FUZZ_SEEDS=FOLDER writes its seeds there and exits.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "artifact/artifact.h"
#include "base/error.h"
#include "compile/compile.h"
#include "kernels/common/kernel.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/executable.h"
#include "runtime/random_inputs.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);
extern "C" const char* __asan_default_options();
// An allocation that cannot be met is a coded error of ours, not a finding.
extern "C" inline const char* __asan_default_options() {
  return "allocator_may_return_null=1:detect_leaks=0";
}

namespace aicf::fuzz {

using Json = nlohmann::json;
using Random = std::mt19937_64;

// An input as a file without a name in any folder.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("aicf_fuzz", MFD_CLOEXEC)) {}
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  void write(std::string_view bytes) {
    if (::ftruncate(fd_, 0) != 0) std::abort();
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t written = ::pwrite(fd_, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
      if (written <= 0) std::abort();
      at += static_cast<size_t>(written);
    }
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

// Errors about the input or the machine are right answers; one that blames us, or is not ours, is a finding.
inline void allow_coded_errors(const std::function<void()>& use) {
  try {
    use();
  } catch (const InternalError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::abort();
  } catch (const Error& error) {
    if (std::getenv("AICF_FUZZ_SHOW") != nullptr) std::fprintf(stderr, "%s\n", error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "an exception of another library: %s\n", error.what());
    std::abort();
  }
}

// Limits far below those of a machine, so that an input that asks for much is refused and not run.
inline void set_limits() {
  ::setenv("AICF_MAX_MEMORY", "256M", 1);
  ::setenv("AICF_MAX_SECONDS", "0.05", 1);
}

inline std::shared_ptr<Device> device() {
  static const std::shared_ptr<Device> one = make_cpu_device({1, detect_isa()});
  return one;
}

inline void read_bytes(const Array& array) {
  const volatile char* bytes = array.data_as<char>();
  for (int64_t i = 0; i < array.bytes(); ++i) (void)bytes[i];
}

constexpr int64_t kLargestSize = 16;  // of a named size, whatever range the plan declares
constexpr size_t kBucketsToRun = 3;
constexpr int64_t kMaxCallerBytes = 1 << 22;  // the caller's own memory, which no limit of ours covers

inline bool small_enough(const EntryPlan& entry, const SymbolValues& sizes) {
  int64_t bytes = 0;
  for (const auto* list : {&entry.inputs, &entry.outputs})
    for (const IoTensor& io : *list)
      bytes =
          checked_add(bytes, checked_mul(element_count(evaluate(io.sizes, sizes)), dtype_bytes(io.dtype)));
  return bytes <= kMaxCallerBytes;
}

template <typename T>
const T& pick(Random& random, const std::vector<T>& list) {
  return list[random() % list.size()];
}

// A level of optimisation and a precision, drawn from the input, so that all of them take part and an input
// always meets the same.
inline CompileOptions drawn_options(std::string_view input) {
  Random random(std::hash<std::string_view>()(input));
  CompileOptions options;
  options.opt_level = random() % 4 == 0 ? static_cast<int>(random() % 2) : 2;
  options.precision = pick(random, std::vector<Precision>{Precision::kF32, Precision::kTf32,
                                                          Precision::kBf16Mixed, Precision::kF16Mixed});
  return options;
}

// The sizes of a plan to run: all low, all high, and the low ends of its first buckets.
inline std::vector<SymbolValues> sizes_to_run(const Plan& plan) {
  std::vector<SymbolValues> list(plan.sizes.empty() ? 1 : 2);
  for (const auto& [name, range] : plan.sizes) {
    list[0][name] = range.lo;
    list[1][name] = std::max(range.lo, std::min(range.hi, kLargestSize));
  }
  const size_t buckets = std::min(plan.buckets.size(), kBucketsToRun);
  for (size_t i = 0; i < buckets; ++i) {
    list.push_back(list[0]);
    for (const auto& [name, range] : plan.buckets[i].bucket) list.back()[name] = range.lo;
  }
  return list;
}

// Loads the artifact and runs every entry at some of its sizes, each on its own: an error of one does not
// keep the others from running.
inline void run_everything(Artifact artifact, const std::shared_ptr<Device>& on = device()) {
  Executable exe(Model::load(std::move(artifact), on));
  const Plan& plan = exe.model().plan();
  for (const SymbolValues& sizes : sizes_to_run(plan))
    for (const EntryPlan& entry : plan.entries) {
      if (entry.name == kInitEntry) continue;  // loading has run it
      allow_coded_errors([&] {
        if (small_enough(entry, sizes)) exe.run(entry.name, random_inputs(plan, entry, sizes, 1));
      });
    }
}

inline int64_t pick_number(Random& random, int64_t old) {
  switch (random() % 5) {
    case 0:
      return static_cast<int64_t>(static_cast<uint64_t>(old) + random() % 5 - 2);
    case 1:
      return static_cast<int64_t>(random() % 70);
    case 2:
      return int64_t{1} << (random() % 63);
    case 3:
      return -static_cast<int64_t>(random() % 4);
    default:
      return pick(random, std::vector<int64_t>{INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX, 0, 1, -1, 2, 64,
                                               int64_t{1} << 47, int64_t{1} << 48});
  }
}

// Pointers to every value of a document.
inline void list_values(const Json& json, const Json::json_pointer& at,
                        std::vector<Json::json_pointer>& values) {
  values.push_back(at);
  if (json.is_object())
    for (const auto& [key, value] : json.items()) list_values(value, at / key, values);
  if (json.is_array())
    for (size_t i = 0; i < json.size(); ++i) list_values(json[i], at / i, values);
}

// `words`: texts that mean something to the reader besides those in the document.
inline void mutate_value(Json& value, const Json& document, const std::vector<Json::json_pointer>& values,
                         const std::vector<std::string>& words, Random& random) {
  const Json& other = document[pick(random, values)];
  if (random() % 4 == 0 && (other.type() == value.type() || random() % 8 == 0)) {
    value = Json(other);
  } else if (value.is_number_integer()) {
    const auto old = static_cast<uint64_t>(value.get<int64_t>());
    value = pick_number(random, static_cast<int64_t>(old & INT64_MAX));
  } else if (value.is_number()) {
    value = pick(random, std::vector<double>{0, -1, 1e300, 1e-300, 0.5});
  } else if (value.is_string()) {
    value = random() % 16 == 0 ? Json(pick_number(random, 0)) : Json(pick(random, words));
  } else if (value.is_boolean()) {
    value = !value.get<bool>();
  } else if (value.is_array() && !value.empty()) {
    const size_t at = random() % value.size();
    if (random() % 2) {
      value.push_back(Json(value[at]));
    } else {
      value.erase(at);
    }
  } else if (value.is_object() && !value.empty() && random() % 8 == 0) {
    value.erase(std::next(value.begin(), static_cast<std::ptrdiff_t>(random() % value.size())).key());
  }
}

// One to four changes near each other: what single changes cannot reach because another check stands before.
inline void mutate_json(Json& json, const std::vector<std::string>& words, Random& random) {
  std::vector<Json::json_pointer> values;
  list_values(json, Json::json_pointer(), values);
  const size_t first = random() % values.size();
  for (uint64_t i = 0, changes = 1 + random() % 4; i < changes; ++i) {
    const Json::json_pointer& at = values[(first + random() % 24) % values.size()];
    if (!json.contains(at)) continue;
    std::vector<Json::json_pointer> present;
    std::copy_if(values.begin(), values.end(), std::back_inserter(present),
                 [&](const Json::json_pointer& p) { return json.contains(p); });
    Json value = json[at];
    mutate_value(value, json, present, words, random);
    json[at] = std::move(value);
  }
}

inline std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A safetensors file as its header and its data; false if the bytes do not hold that much.
inline bool split_safetensors(std::string_view bytes, Json& header, std::string& data) {
  if (bytes.size() < 8) return false;
  uint64_t size = 0;
  for (int i = 7; i >= 0; --i) size = size << 8 | static_cast<uint8_t>(bytes[static_cast<size_t>(i)]);
  if (size > bytes.size() - 8) return false;
  header = Json::parse(bytes.substr(8, size), nullptr, false);
  data = bytes.substr(8 + size);
  return header.is_object();
}

inline std::string join_safetensors(const Json& header, const std::string& data) {
  std::string text = dump(header), prefix;
  text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');
  for (int i = 0; i < 8; ++i) prefix.push_back(static_cast<char>(text.size() >> (8 * i) & 0xff));
  return prefix + text + data;
}

// For LLVMFuzzerCustomMutator: mostly a target's own mutation; libFuzzer's where that gives nothing ("") or
// does not fit.
inline size_t mutate(uint8_t* data, size_t size, size_t max_size, unsigned seed,
                     const std::function<std::string(std::string_view, Random&)>& mutated) {
  Random random(seed);
  const std::string bytes =
      random() % 16 ? mutated({reinterpret_cast<const char*>(data), size}, random) : std::string();
  if (bytes.empty() || bytes.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(data));
  return bytes.size();
}

inline std::string mutate_text(std::string text, size_t room) {
  const size_t size = text.size();
  text.resize(size + room);
  text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text.data()), size, text.size()));
  return text;
}

using Seeds = std::vector<std::pair<std::string, std::function<void(const std::string& path)>>>;

// For LLVMFuzzerInitialize.
inline void write_seeds_if_asked(const std::function<Seeds()>& seeds) {
  const char* folder = std::getenv("AICF_FUZZ_SEEDS");
  if (folder == nullptr) return;
  for (const auto& [name, write] : seeds()) write(std::string(folder) + "/" + name);
  std::exit(0);
}

// What a driver of this folder defines. `mutated` gives "" where libFuzzer's own mutation shall do.
struct Target {
  Seeds (*seeds)();
  std::string (*mutated)(std::string_view bytes, Random& random);
  void (*use)(const std::string& path, std::string_view bytes);  // the input as a file and as bytes
  std::string (*prepared)(std::string_view bytes) = nullptr;     // what is used in place of an input
};
Target target();

}  // namespace aicf::fuzz

// A driver is one unit, so these are defined once.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  aicf::fuzz::set_limits();
  aicf::fuzz::write_seeds_if_asked(aicf::fuzz::target().seeds);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return aicf::fuzz::mutate(data, size, max_size, seed, aicf::fuzz::target().mutated);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace aicf;
  static fuzz::MemoryFile file;
  const fuzz::Target target = fuzz::target();
  std::string prepared;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (target.prepared != nullptr) bytes = prepared = target.prepared(bytes);
  file.write(bytes);
  fuzz::allow_coded_errors([&] { target.use(file.path(), bytes); });
  return 0;
}
