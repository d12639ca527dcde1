// A lock between processes on bytes of a file, for work that one of them does for all. The kernel releases it
// when its process ends, however that ends; a forked child does not have it. It saves work and keeps
// read-change-write apart; where a file system has no locks, or the wait is over, the work goes on without.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace aicf {

class FileLock {
 public:
  // Waits until no other process holds one of these bytes of the file, which is made if its folder allows it;
  // at most `seconds` for all of them.
  FileLock(const std::string& path, std::vector<int64_t> bytes, double seconds);
  explicit FileLock(const std::string& path, double seconds = 60) : FileLock(path, {0}, seconds) {}
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // Whether all of them are ours.
  bool held() const { return held_; }

 private:
  int file_ = -1;
  bool held_ = false;
};

}  // namespace aicf
