// Writes a file that appears whole or not at all: bytes go to a file without a name in the target's folder,
// commit() syncs it, names it and renames it over the target. Destroyed without commit, or killed, nothing is
// left and the target is untouched. On a file system that has no nameless files it is a temporary file beside
// the target, ".aicf.tmp.*", which a kill leaves there, as does one right before the rename. Its writer holds
// a lock on it, which the kernel releases, and the next writer in the folder removes what nobody holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace aicf {

class AtomicFile {
 public:
  // io_failed if the folder cannot be written, or the target is there and no regular file.
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, int64_t bytes);
  void write(std::string_view text) { write(text.data(), static_cast<int64_t>(text.size())); }
  // At a place that no other call of this writes to: by any thread. write() knows nothing of it.
  void write_at(int64_t position, const void* data, int64_t bytes);
  // Cuts off what is beyond, or adds zeros.
  void set_size(int64_t bytes);
  int64_t position() const { return position_; }
  void commit();

 private:
  [[noreturn]] void fail(std::string what);
  void start_flushing();
  void give_name();
  std::string path_, temporary_;  // temporary_: "" while the file has no name
  int fd_ = -1;
  int64_t position_ = 0, flushed_ = 0;
};

// The whole of `text` as the file's contents.
void write_file_atomically(const std::string& path, std::string_view text);

}  // namespace aicf
