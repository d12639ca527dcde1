#include "base/file_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <map>
#include <system_error>
#include <thread>

#include "base/forks.h"

namespace aicf {
namespace {

using Clock = std::chrono::steady_clock;

// What the threads of a process take first. The system's lock does not keep them apart: it is the process's,
// and the first thread that closes the file gives up those of all.
struct FileTurns {
  const int forks = fork_count();
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<std::timed_mutex>> by_path;
};

// A forked child has its own: those of its parent may be held by threads that it does not have.
FileTurns& file_turns() {
  static std::atomic<FileTurns*> current = new FileTurns;
  FileTurns* turns = current;
  if (turns->forks == fork_count()) return *turns;
  auto* fresh = new FileTurns;
  if (current.compare_exchange_strong(turns, fresh)) return *fresh;
  delete fresh;
  return *turns;
}

std::shared_ptr<std::timed_mutex> turns_on(const std::string& path) {
  std::error_code error;
  const std::string name = std::filesystem::weakly_canonical(path, error).string();
  FileTurns& turns = file_turns();
  const std::lock_guard lock(turns.mutex);
  std::weak_ptr<std::timed_mutex>& known = turns.by_path[name];
  std::shared_ptr<std::timed_mutex> turn = known.lock();
  if (turn == nullptr) known = turn = std::make_shared<std::timed_mutex>();
  return turn;
}

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
    : threads_(turns_on(path)), turn_(*threads_, std::defer_lock) {
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  if (!turn_.try_lock_until(end)) return;
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0) return;
  // In one order everywhere, so that two processes never wait for each other.
  std::sort(bytes.begin(), bytes.end());
  held_ = std::all_of(bytes.begin(), bytes.end(), [&](int64_t byte) { return take(file_, byte, end); });
}

FileLock::~FileLock() {
  if (file_ >= 0) close(file_);
}

}  // namespace aicf
