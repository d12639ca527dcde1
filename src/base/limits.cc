#include "base/limits.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/dim.h"
#include "base/error.h"

namespace aicf {
namespace {

constexpr double kDefaultSeconds = 600;

std::atomic<int64_t> array_bytes{0};

int64_t machine_memory() {
  static const int64_t bytes = [] {
    int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
    int64_t group = 0;  // "max" does not parse and sets nothing
    if (std::ifstream("/sys/fs/cgroup/memory.max") >> group && group > 0) memory = std::min(memory, group);
    return memory;
  }();
  return bytes;
}

UserError over_limit(const std::string& what, const std::string& limit, const std::string& actual,
                     const char* variable) {
  return UserError(ErrorCode::kU_over_limit, "the model asks for more than the limit allows")
      .with_op(what)
      .with_expected(limit)
      .with_actual(actual)
      .with_remedy(std::string("set ") + variable + " higher if you trust the model");
}

UserError bad_variable(const char* name, const char* text, const std::string& expected) {
  return UserError(ErrorCode::kU_bad_option, "an environment variable has a value that is not accepted")
      .with_op(name)
      .with_value(text)
      .with_expected(expected);
}

std::string seconds_text(double seconds) {
  char text[32];
  return std::string(text,
                     std::to_chars(text, text + sizeof text, seconds, std::chars_format::general, 3).ptr) +
         " s";
}

void require(int64_t live, int64_t bytes, const std::string& what) {
  const int64_t limit = resource_limits().memory_bytes;
  if (bytes > limit || live > limit - bytes)
    throw over_limit(what, "at most " + std::to_string(limit) + " bytes",
                     std::to_string(bytes) + " bytes beside " + std::to_string(live) + " of live arrays",
                     "AICF_MAX_MEMORY");
}

}  // namespace

std::optional<int> number_from_environment(const char* name, int lowest, int highest) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*end != '\0' || value < lowest || value > highest)
    throw bad_variable(name, text, std::to_string(lowest) + " to " + std::to_string(highest));
  return static_cast<int>(value);
}

int64_t parse_bytes(std::string_view text) {
  int shift = 0;
  if (!text.empty()) {
    const size_t unit = std::string_view("KMGT").find(text.back());
    if (unit != std::string_view::npos) {
      shift = 10 * (static_cast<int>(unit) + 1);
      text.remove_suffix(1);
    }
  }
  if (text.empty() || text.size() > 18) return -1;
  int64_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return -1;
    value = value * 10 + (c - '0');
  }
  return value > INT64_MAX >> shift ? -1 : value << shift;
}

ResourceLimits resource_limits() {
  ResourceLimits limits = {machine_memory(), kDefaultSeconds};
  if (const char* text = std::getenv("AICF_MAX_MEMORY"); text != nullptr && *text != '\0') {
    limits.memory_bytes = parse_bytes(text);
    if (limits.memory_bytes < 0)
      throw bad_variable("AICF_MAX_MEMORY", text, "bytes, with K, M, G or T if wanted: 512M");
  }
  if (const char* text = std::getenv("AICF_MAX_SECONDS"); text != nullptr && *text != '\0') {
    const char* end = text + std::strlen(text);
    const auto [read, error] = std::from_chars(text, end, limits.seconds);
    if (error != std::errc() || read != end || !(limits.seconds >= 0))
      throw bad_variable("AICF_MAX_SECONDS", text, "a number of seconds >= 0");
  }
  return limits;
}

void require_memory(int64_t bytes, const std::string& what) { require(array_bytes.load(), bytes, what); }

void require_seconds(double seconds, const std::string& what) {
  const double limit = resource_limits().seconds;
  if (seconds > limit)
    throw over_limit(what, "at most " + seconds_text(limit) + " on one core",
                     "about " + seconds_text(seconds), "AICF_MAX_SECONDS");
}

void add_array_bytes(int64_t bytes) {
  // Small arrays are many; they are let through while all together are few bytes.
  constexpr int64_t kSmall = 1 << 16, kFew = 1 << 24;
  if (const int64_t live = array_bytes.load(); bytes > kSmall || live > kFew)
    require(live, bytes, "an array");
  array_bytes.fetch_add(bytes);
}

void remove_array_bytes(int64_t bytes) { array_bytes.fetch_sub(bytes); }

}  // namespace aicf
