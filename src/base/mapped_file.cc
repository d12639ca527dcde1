#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/path.h"

namespace aicf {
namespace {

// Closes on every way out; a mapping outlives its descriptor.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  require_path(path);
  // Non-blocking, so that a named pipe is refused below instead of waiting for a writer.
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0)
    throw UserError(ErrorCode::kU_file_not_found, "cannot open file")
        .with_value(path)
        .with_actual(std::strerror(errno))
        .with_remedy("check the path and its permissions");
  struct stat info{};
  if (::fstat(file.fd, &info) != 0)
    throw EnvironmentError(ErrorCode::kE_io_failed, "cannot inspect file")
        .with_value(path)
        .with_actual(std::strerror(errno));
  if (!S_ISREG(info.st_mode))
    throw UserError(ErrorCode::kU_bad_option, "not a regular file")
        .with_value(path)
        .with_expected("a regular file")
        .with_actual(S_ISDIR(info.st_mode) ? "a directory" : "a special file")
        .with_remedy("give the path of the file itself");
  const std::byte* data = nullptr;
  if (info.st_size > 0) {
    void* memory = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (memory == MAP_FAILED)
      throw EnvironmentError(ErrorCode::kE_io_failed, "cannot map file")
          .with_value(path)
          .with_actual(std::strerror(errno));
    data = static_cast<const std::byte*>(memory);
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(path, data, info.st_size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
}

}  // namespace aicf
