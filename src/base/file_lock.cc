#include "base/file_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

namespace aicf {
namespace {

using Clock = std::chrono::steady_clock;

// False where others hold the byte until `end`, or nobody can.
bool take(int file, int64_t byte, Clock::time_point end) {
  constexpr auto kPause = std::chrono::milliseconds(5);
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  for (;;) {
    if (fcntl(file, F_SETLK, &lock) == 0) return true;
    const bool others = errno == EACCES || errno == EAGAIN || errno == EINTR;
    if (!others || Clock::now() >= end) return false;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

FileLock::FileLock(const std::string& path, std::vector<int64_t> bytes, double seconds)
    : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (file_ < 0) return;
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  // In one order everywhere, so that two processes never wait for each other.
  std::sort(bytes.begin(), bytes.end());
  held_ = std::all_of(bytes.begin(), bytes.end(), [&](int64_t byte) { return take(file_, byte, end); });
}

FileLock::~FileLock() {
  if (file_ >= 0) close(file_);
}

}  // namespace aicf
