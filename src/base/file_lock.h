// A lock on bytes of a file, for work that one does for all: between processes on these bytes, between the
// threads of one on the file. The kernel releases it when its process ends, however that ends; a forked child
// does not have it. It saves work and keeps read-change-write apart; where a file system has no locks, or the
// wait is over, the work goes on without.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace aicf {

class FileLock {
 public:
  // Waits until no other thread of this process has a lock on the file, which is made if its folder allows
  // it, and no other process one on these bytes; at most `seconds` for all of them. A thread has one at a
  // time.
  FileLock(const std::string& path, std::vector<int64_t> bytes, double seconds);
  explicit FileLock(const std::string& path, double seconds = 60) : FileLock(path, {0}, seconds) {}
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // Whether all of them are ours.
  bool held() const { return held_; }

 private:
  std::shared_ptr<std::timed_mutex> threads_;
  std::unique_lock<std::timed_mutex> turn_;
  int file_ = -1;
  bool held_ = false;
};

}  // namespace aicf
