#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/helpers.h"
#include "base/limits.h"
#include "base/path.h"

namespace aicf {
namespace {

constexpr int64_t kCopiedFiles = int64_t{1} << 30;
// Of a copy: smaller ones come from the heap, because a process may have only so many mappings.
constexpr int64_t kOwnPages = 1 << 20;

std::atomic<int64_t> copied_bytes{0};

// Closes on every way out; a mapping keeps a descriptor of its own.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// The mapped files of the process.
struct Mappings {
  std::mutex mutex;
  std::vector<std::weak_ptr<const MappedFile>> files;
};
Mappings& mappings() {
  static auto* const all = new Mappings;  // files may be closed after static objects are gone
  return *all;
}

int open_regular(const std::string& path) {
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
  return std::exchange(file.fd, -1);
}

EnvironmentError no_memory(const std::string& path, int64_t bytes) {
  return EnvironmentError(ErrorCode::kE_out_of_memory, "there is no memory for what a file holds")
      .with_value(path)
      .with_actual(std::to_string(bytes) + " bytes")
      .with_remedy("free memory, or raise the limit of the process (ulimit -v)");
}

// 0 when all bytes were read; -1 at the file's end; else errno.
int read_all(int fd, std::byte* to, int64_t offset, int64_t bytes) {
  constexpr int64_t kPiece = 16 << 20;
  std::atomic<int64_t> next = 0;
  std::atomic<int> failure = 0;
  run_with_helpers(bytes, [&] {
    for (int64_t at = next.fetch_add(kPiece); at < bytes && failure == 0; at = next.fetch_add(kPiece))
      for (int64_t done = at, end = std::min(at + kPiece, bytes); done < end;) {
        const ssize_t got = ::pread(fd, to + done, static_cast<size_t>(end - done), offset + done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
          failure = got == 0 ? -1 : errno;
          break;
        }
        done += got;
      }
  });
  return failure;
}

std::string describe(int64_t size, int64_t seconds, int64_t nanoseconds) {
  std::string fraction = std::to_string(nanoseconds);
  fraction.insert(0, 9 - fraction.size(), '0');
  return std::to_string(size) + " bytes, written at " + std::to_string(seconds) + "." + fraction + " s";
}

}  // namespace

int64_t copied_files_limit() {
  if (const char* text = std::getenv("AICF_COPIED_FILES"); text != nullptr && *text != '\0') {
    const int64_t bytes = parse_bytes(text);
    if (bytes >= 0) return bytes;
    throw UserError(ErrorCode::kU_bad_option, "an environment variable has a value that is not accepted")
        .with_op("AICF_COPIED_FILES")
        .with_value(text)
        .with_expected("bytes, with K, M, G or T if wanted: 512M");
  }
  return std::min(kCopiedFiles, resource_limits().memory_bytes / 8);
}

MappedFile::Identity MappedFile::identity_of(int fd, const std::string& path) {
  struct stat info{};
  if (::fstat(fd, &info) != 0)
    throw EnvironmentError(ErrorCode::kE_io_failed, "cannot inspect file")
        .with_value(path)
        .with_actual(std::strerror(errno));
  return {info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  return open_part(path, [](int64_t size) { return FileRange{0, size}; });
}

std::shared_ptr<const MappedFile> MappedFile::open_part(const std::string& path,
                                                        const std::function<FileRange(int64_t)>& choose) {
  Descriptor file{open_regular(path)};
  const std::shared_ptr<MappedFile> opened(new MappedFile(path));
  opened->identity_ = identity_of(file.fd, path);
  const FileRange part = choose(opened->identity_.size);
  opened->size_ = part.bytes;
  if (part.bytes == 0) return opened;
  const int64_t limit = copied_files_limit();
  if (copied_bytes.fetch_add(part.bytes) <= limit - part.bytes) {
    opened->counted_ = part.bytes;
    opened->copy(file.fd, part);
    if (const Identity now = identity_of(file.fd, path); now != opened->identity_) opened->refuse_change(now);
    return opened;
  }
  copied_bytes.fetch_sub(part.bytes);
  opened->map(file.fd, part);
  opened->fd_ = std::exchange(file.fd, -1);
  const std::lock_guard lock(mappings().mutex);
  std::erase_if(mappings().files, [](const auto& known) { return known.expired(); });
  mappings().files.push_back(opened);
  return opened;
}

void MappedFile::copy(int fd, FileRange part) {
  auto* to = static_cast<std::byte*>(nullptr);
  if (part.bytes < kOwnPages) {
    memory_ = std::aligned_alloc(64, static_cast<size_t>((part.bytes + 63) / 64 * 64));
    if (memory_ == nullptr) throw no_memory(path_, part.bytes);
  } else {
    void* pages = ::mmap(nullptr, static_cast<size_t>(part.bytes), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw no_memory(path_, part.bytes);
    memory_ = pages;
    memory_bytes_ = part.bytes;
    ::madvise(memory_, static_cast<size_t>(memory_bytes_), MADV_HUGEPAGE);
  }
  to = static_cast<std::byte*>(memory_);
  data_ = to;
  const int failure = read_all(fd, to, part.offset, part.bytes);
  if (failure > 0)
    throw EnvironmentError(ErrorCode::kE_io_failed, "cannot read file")
        .with_value(path_)
        .with_actual(std::strerror(failure));
  if (failure < 0) refuse_change(identity_of(fd, path_));
  if (memory_bytes_ > 0) ::mprotect(memory_, static_cast<size_t>(memory_bytes_), PROT_READ);
}

void MappedFile::map(int fd, FileRange part) {
  const int64_t before = part.offset % ::sysconf(_SC_PAGESIZE);
  void* pages = ::mmap(nullptr, static_cast<size_t>(before + part.bytes), PROT_READ, MAP_PRIVATE, fd,
                       part.offset - before);
  if (pages == MAP_FAILED) {
    if (errno == ENOMEM) throw no_memory(path_, part.bytes);
    throw EnvironmentError(ErrorCode::kE_io_failed, "cannot map file")
        .with_value(path_)
        .with_actual(std::strerror(errno));
  }
  memory_ = pages;
  memory_bytes_ = before + part.bytes;
  data_ = static_cast<const std::byte*>(memory_) + before;
}

MappedFile::~MappedFile() {
  if (memory_bytes_ > 0) {
    ::munmap(memory_, static_cast<size_t>(memory_bytes_));
  } else {
    std::free(memory_);
  }
  if (fd_ >= 0) ::close(fd_);
  copied_bytes.fetch_sub(counted_);
}

std::shared_ptr<const MappedFile> MappedFile::mapping_of(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const std::lock_guard lock(mappings().mutex);
  for (const auto& known : mappings().files)
    if (auto file = known.lock()) {
      const auto begin = reinterpret_cast<uintptr_t>(file->data_);
      if (at >= begin && at - begin < static_cast<uintptr_t>(file->size_)) return file;
    }
  return nullptr;
}

void MappedFile::require_unchanged() const {
  if (is_copy()) return;
  if (const Identity now = identity_of(fd_, path_); now != identity_) refuse_change(now);
}

void MappedFile::refuse_change(const Identity& now) const {
  throw EnvironmentError(ErrorCode::kE_file_changed, "a file was written to while it was in use")
      .with_value(path_)
      .with_expected(describe(identity_.size, identity_.seconds, identity_.nanoseconds))
      .with_actual(describe(now.size, now.seconds, now.nanoseconds))
      .with_remedy("load it again; to replace a file in use, write another and rename it into its place");
}

}  // namespace aicf
