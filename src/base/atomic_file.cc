#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace aicf {
namespace {

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// mkstemp gives 0600; a file that appears by rename has the mode that open() would have given.
mode_t default_mode() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".tmp.XXXXXX") {
  fd_ = ::mkostemp(temporary_.data(), O_CLOEXEC);
  if (fd_ < 0) {
    temporary_.clear();
    fail("cannot create a file in folder '" + folder_of(path_) + "'");
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, int64_t bytes) {
  AICF_CHECK(fd_ >= 0, "write after commit");
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    // The kernel moves at most 2 GiB per call.
    const ssize_t written = ::write(fd_, at, static_cast<size_t>(std::min<int64_t>(bytes, 1 << 30)));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot write file");
    at += written;
    bytes -= written;
    position_ += written;
  }
}

void AtomicFile::commit() {
  AICF_CHECK(fd_ >= 0, "commit twice");
  if (::fchmod(fd_, default_mode()) != 0 || ::fsync(fd_) != 0) fail("cannot finish file");
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0) fail("cannot finish file");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot rename the finished file into place");
  temporary_.clear();
  // Makes the new name itself durable; a file system that cannot sync a folder still has the renamed file.
  const int folder = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
}

void AtomicFile::fail(std::string what) {
  throw EnvironmentError(ErrorCode::kE_io_failed, std::move(what))
      .with_value(path_)
      .with_actual(std::strerror(errno))
      .with_remedy("check permissions and free space of the folder");
}

void write_file_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace aicf
