// The bytes of a file, read-only for the life of this object. Arrays that view them hold the shared pointer.
// They are a copy while the copies of all open files together are within AICF_COPIED_FILES
// (copied_files_limit): nothing that happens to the file then matters. A file beyond that is mapped:
// require_unchanged() tells that it was written to, and a file that is cut off while it is read ends the
// process with SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace aicf {

class MappedFile {
 public:
  struct FileRange {
    int64_t offset, bytes;
  };
  // file_not_found if it cannot be opened, bad_option for a directory or device, io_failed if it cannot be
  // read, out_of_memory, file_changed if it is written to meanwhile.
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  // The part that `choose` names when it is told the file's size.
  static std::shared_ptr<const MappedFile> open_part(const std::string& path,
                                                     const std::function<FileRange(int64_t size)>& choose);
  // The mapped file that holds the byte at this address; null if it is in none.
  static std::shared_ptr<const MappedFile> mapping_of(const void* address);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  int64_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), static_cast<size_t>(size_)}; }
  const std::string& path() const { return path_; }
  bool is_copy() const { return fd_ < 0; }
  // file_changed if the file's size or time of writing is not what it was when it was opened. Allocates
  // nothing if it is. Nothing to ask of a copy.
  void require_unchanged() const;

 private:
  struct Identity {
    int64_t size, seconds, nanoseconds;
    bool operator==(const Identity&) const = default;
  };
  explicit MappedFile(std::string path) : path_(std::move(path)) {}
  static Identity identity_of(int fd, const std::string& path);
  void copy(int fd, FileRange part);
  void map(int fd, FileRange part);
  [[noreturn]] void refuse_change(const Identity& now) const;

  std::string path_;
  Identity identity_{};
  const std::byte* data_ = nullptr;  // null for an empty part
  int64_t size_ = 0;
  // What holds the part: pages of the file, or memory. A mapping begins at a page.
  void* memory_ = nullptr;
  int64_t memory_bytes_ = 0;
  int64_t counted_ = 0;  // of the budget for copies
  int fd_ = -1;          // of a mapped file
};

// Bytes that the copies of open files may take together: AICF_COPIED_FILES; by default 1 GiB, or an eighth of
// AICF_MAX_MEMORY if that is less.
int64_t copied_files_limit();

}  // namespace aicf
