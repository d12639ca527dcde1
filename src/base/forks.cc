#include "base/forks.h"

#include <pthread.h>

#include <atomic>

namespace aicf {
namespace {

std::atomic<int> forks{0};

}  // namespace

int fork_count() {
  [[maybe_unused]] static const int watching =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  return forks.load(std::memory_order_relaxed);
}

}  // namespace aicf
