// One run at a time: the flag of an executable, or of memory that its runs share, held for a scope.
#pragma once

#include <atomic>

#include "base/error.h"

namespace aicf {

class RunGuard {
 public:
  // UserError busy if the flag is held; the remedy is in the words of the caller's language.
  explicit RunGuard(std::atomic_flag& flag, const char* remedy = "use one clone() per thread",
                    const char* message = "the executable already has a run in flight")
      : flag_(flag) {
    if (flag_.test_and_set(std::memory_order_acquire))
      throw UserError(ErrorCode::kU_busy, message).with_remedy(remedy);
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
