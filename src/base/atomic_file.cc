#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/path.h"

namespace aicf {
namespace {

constexpr int64_t kFlushBytes = 64 << 20;
constexpr const char* kTemporary = ".aicf.tmp.";

// A name for the time until the rename, which `claim` takes or finds taken (EEXIST); "" if it fails
// otherwise. Short, because the path's own may be as long as names can be.
template <typename Claim>
std::string claim_name(const std::string& path, const Claim& claim) {
  const std::string begin = folder_of(path) + "/" + kTemporary + std::to_string(::getpid()) + ".";
  for (int attempt = 0;; ++attempt) {
    std::string name = begin + std::to_string(attempt);
    if (claim(name.c_str())) return name;
    if (errno != EEXIST) return {};
  }
}

// The file has the mode that open() gives: to ask for the process's mask is to change it, for all threads.
constexpr mode_t kMode = 0666;

std::string link_of(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

// -1 where the file system or the missing /proc does not allow it.
int open_nameless(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kMode);
  if (fd < 0 || ::access(link_of(fd).c_str(), F_OK) == 0) return fd;
  ::close(fd);
  return -1;
}

// Held by the kernel for as long as the file's writer lives. False where another has it; true, too, where the
// file system knows no locks.
bool lock_for_life(int fd) { return ::flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; }

// With a name from its birth, and ours: who reclaims may have come between the birth and the lock.
int open_named(const std::string& path, std::string& name) {
  for (;;) {
    int fd = -1;
    name = claim_name(path, [&](const char* at) {
      return (fd = ::open(at, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, kMode)) >= 0;
    });
    if (fd < 0) return fd;
    struct stat info;
    if (lock_for_life(fd) && ::fstat(fd, &info) == 0 && info.st_nlink > 0) return fd;
    ::close(fd);
  }
}

// Removes a file whose writer was killed: the kernel has released its lock.
void remove_if_dead(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return;
  struct stat info;
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && ::flock(fd, LOCK_EX | LOCK_NB) == 0)
    ::unlink(path.c_str());
  ::close(fd);
}

// What writers that were killed have left in the folder. A large folder is looked through once a second at
// most.
void reclaim(const std::string& folder) {
  constexpr int kLarge = 1000;
  using Clock = std::chrono::steady_clock;
  static std::mutex mutex;
  static auto* const large = new std::map<std::string, Clock::time_point>;  // when they were looked through
  const auto now = Clock::now();
  {
    const std::lock_guard lock(mutex);
    const auto at = large->find(folder);
    if (at != large->end() && now - at->second < std::chrono::seconds(1)) return;
  }
  int count = 0;
  std::error_code error;
  for (auto file = std::filesystem::directory_iterator(folder, error);
       !error && file != std::filesystem::directory_iterator(); file.increment(error), ++count)
    if (file->path().filename().string().starts_with(kTemporary)) remove_if_dead(file->path().string());
  const std::lock_guard lock(mutex);
  if (count >= kLarge)
    (*large)[folder] = now;
  else
    large->erase(folder);
}

// A rename would put a plain file where a device, a pipe or a terminal was, for everybody.
void require_replaceable(const std::string& path) {
  struct stat found;
  if (::stat(path.c_str(), &found) != 0 || S_ISREG(found.st_mode)) return;
  throw EnvironmentError(ErrorCode::kE_io_failed, "what is at the path of the output is no regular file")
      .with_value(path)
      .with_remedy("name a file; it is put there when it is complete");
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  require_path(path_);
  require_replaceable(path_);
  reclaim(folder_of(path_));
  fd_ = open_nameless(folder_of(path_));
  if (fd_ < 0) fd_ = open_named(path_, temporary_);
  if (fd_ < 0) fail("cannot create a file in folder '" + folder_of(path_) + "'");
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  if (fd_ >= 0) ::close(fd_);
}

void AtomicFile::write(const void* data, int64_t bytes) {
  AICF_CHECK(fd_ >= 0, "write after commit");
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(fd_, at, static_cast<size_t>(std::min(bytes, kFlushBytes)));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot write file");
    at += written;
    bytes -= written;
    position_ += written;
    start_flushing();
  }
}

void AtomicFile::write_at(int64_t position, const void* data, int64_t bytes) {
  const char* at = static_cast<const char*>(data);
  const int64_t end = position + bytes;
  for (int64_t next = position; next < end;) {
    const ssize_t written = ::pwrite(fd_, at, static_cast<size_t>(end - next), next);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot write file");
    at += written;
    next += written;
  }
  if (bytes > 0) ::sync_file_range(fd_, position, bytes, SYNC_FILE_RANGE_WRITE);
}

void AtomicFile::set_size(int64_t bytes) {
  if (::ftruncate(fd_, bytes) != 0) fail("cannot write file");
}

// The disk takes what was written while more is copied, and commit() waits for the rest. Where a file system
// cannot do so, commit() writes all of it.
void AtomicFile::start_flushing() {
  if (position_ - flushed_ < kFlushBytes) return;
  ::sync_file_range(fd_, flushed_, position_ - flushed_, SYNC_FILE_RANGE_WRITE);
  flushed_ = position_;
}

// A link cannot replace the target, so the file gets a name beside it first.
void AtomicFile::give_name() {
  const std::string link = link_of(fd_);
  (void)lock_for_life(fd_);
  temporary_ = claim_name(path_, [&](const char* name) {
    return ::linkat(AT_FDCWD, link.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
  });
  if (temporary_.empty()) fail("cannot name the finished file");
}

void AtomicFile::commit() {
  AICF_CHECK(fd_ >= 0, "commit twice");
  if (::fsync(fd_) != 0) fail("cannot finish file");
  if (temporary_.empty()) give_name();
  // The lock is held until the name is gone. All bytes are on the disk, so closing has nothing to tell.
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot rename the finished file into place");
  temporary_.clear();
  ::close(std::exchange(fd_, -1));
  // Makes the new name itself durable; a file system that cannot sync a folder still has the renamed file.
  const int folder = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
}

void AtomicFile::fail(std::string what) {
  const int error = errno;
  throw EnvironmentError(ErrorCode::kE_io_failed, std::move(what))
      .with_value(path_)
      .with_actual(std::strerror(error))
      .with_remedy(error == ENOENT ? "make the folder first, or name a file in another"
                                   : "check permissions and free space of the folder");
}

void write_file_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace aicf
