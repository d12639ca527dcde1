#include "base/helpers.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <vector>

namespace aicf {

void run_with_helpers(int64_t bytes, const std::function<void()>& work) {
  constexpr int64_t kBytesOfThread = 16 << 20;
  constexpr unsigned kMostThreads = 8;
  const int64_t threads = std::min<int64_t>(
      bytes / kBytesOfThread, std::min(std::max(std::thread::hardware_concurrency(), 1u), kMostThreads));
  std::vector<std::jthread> helpers;
  try {
    for (int64_t i = 1; i < threads; ++i) helpers.emplace_back(work);
  } catch (const std::exception&) {
    // There are no more threads or memory to have; those that started and this one do it.
  }
  work();
}

}  // namespace aicf
