// One run at a time: the flag of an executable, or of memory that its runs share, held for a scope.
#pragma once

#include <atomic>
#include <string>

#include "base/error.h"

namespace aicf {

class RunGuard {
 public:
  // UserError busy if the flag is held; `clone` is how the caller's language makes a second executable.
  explicit RunGuard(std::atomic_flag& flag, const char* clone = "clone()") : flag_(flag) {
    if (flag_.test_and_set(std::memory_order_acquire))
      throw UserError(ErrorCode::kU_busy, "the executable already has a run in flight")
          .with_remedy("use one " + std::string(clone) + " per thread");
  }
  ~RunGuard() {
    if (!kept_) flag_.clear(std::memory_order_release);
  }
  RunGuard(const RunGuard&) = delete;
  RunGuard& operator=(const RunGuard&) = delete;
  // For good: the executable has a successor.
  void keep() { kept_ = true; }

 private:
  std::atomic_flag& flag_;
  bool kept_ = false;
};

}  // namespace aicf
