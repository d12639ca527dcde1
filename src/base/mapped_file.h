// A file mapped read-only for the life of this object. Arrays that view it hold the shared pointer, so the
// mapping lives as long as anything reads it. The caller must not count on the bytes if another process
// truncates the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace aicf {

class MappedFile {
 public:
  // file_not_found if it cannot be opened, bad_option for a directory or device, io_failed if it cannot be
  // mapped.
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  int64_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), static_cast<size_t>(size_)}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, const std::byte* data, int64_t size)
      : path_(std::move(path)), data_(data), size_(size) {}
  std::string path_;
  const std::byte* data_ = nullptr;  // null for an empty file
  int64_t size_ = 0;
};

}  // namespace aicf
