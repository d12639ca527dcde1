// Writes a file that appears whole or not at all: bytes go to a temporary file beside the target, commit()
// syncs it and renames it over the target. Destroyed without commit, the temporary file is removed and the
// target is untouched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace aicf {

class AtomicFile {
 public:
  // io_failed if the folder cannot be written.
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, int64_t bytes);
  void write(std::string_view text) { write(text.data(), static_cast<int64_t>(text.size())); }
  int64_t position() const { return position_; }
  void commit();

 private:
  [[noreturn]] void fail(std::string what);
  std::string path_, temporary_;
  int fd_ = -1;
  int64_t position_ = 0;
};

// The whole of `text` as the file's contents.
void write_file_atomically(const std::string& path, std::string_view text);

}  // namespace aicf
