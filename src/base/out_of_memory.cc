#include "base/out_of_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
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

void require_room(uint64_t bytes, const std::string& what) {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw EnvironmentError(ErrorCode::kE_out_of_memory,
                           "there is no room in memory for what has to stand there")
        .with_value(what)
        .with_expected(std::to_string((bytes >> 10) + 1) + " KiB")
        .with_actual("not enough memory")
        .with_remedy("free memory, or raise the limit of the process (ulimit -v, the container's)");
  munmap(memory, bytes);
}

void require_room_for_json(uint64_t bytes, const std::string& what) {
  constexpr uint64_t kOfAByte = 32,
                     kLeast = 1 << 20;  // "0," is an element of 16 bytes of a vector that grows
  require_room(kLeast + kOfAByte * bytes, what);
}

bool met_memory_limit() {
  constexpr int64_t kKilobytesAtOnce = 64 << 10;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  char status[1024];  // the line is among the first twenty
  const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t size = read(file, status, sizeof(status) - 1);
  close(file);
  status[std::max<ssize_t>(size, 0)] = '\0';
  constexpr char kPeak[] = "VmPeak:";
  const char* at = std::strstr(status, kPeak);
  if (at == nullptr) return false;
  int64_t most = 0;  // KiB
  for (at += std::strlen(kPeak); *at == ' ' || *at == '\t'; ++at) {
  }
  for (; *at >= '0' && *at <= '9'; ++at) most = 10 * most + (*at - '0');
  return most + kKilobytesAtOnce > static_cast<int64_t>(limit.rlim_cur >> 10);
}

}  // namespace aicf
