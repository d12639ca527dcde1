#include "base/out_of_memory.h"

#include <sys/resource.h>

#include <cstdint>
#include <fstream>
#include <limits>
#include <new>
#include <string>
#include <system_error>

namespace aicf {

bool says_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  // What pthread_create answers where there is no room for a stack.
  return system != nullptr && (system->code() == std::errc::resource_unavailable_try_again ||
                               system->code() == std::errc::not_enough_memory);
}

EnvironmentError out_of_memory_error(const std::exception& error) {
  return EnvironmentError(ErrorCode::kE_out_of_memory, "memory could not be allocated")
      .with_actual(error.what())
      .with_remedy("free memory, or raise the limit of the process (ulimit -v, the container's)");
}

bool met_memory_limit() {
  constexpr int64_t kKilobytesAtOnce = 64 << 10;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  std::ifstream status("/proc/self/status");
  for (std::string name; status >> name; status.ignore(std::numeric_limits<std::streamsize>::max(), '\n'))
    if (int64_t most = 0; name == "VmPeak:" && status >> most)
      return most + kKilobytesAtOnce > static_cast<int64_t>(limit.rlim_cur >> 10);
  return false;
}

}  // namespace aicf
