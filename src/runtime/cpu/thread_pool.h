// Workers that run the tiles of one kernel call at a time. Each begins with its own share of neighbouring
// tiles, the same in every call, so that what it wrote in one call is in its cache for the next; who is done
// helps the others. By the accumulation law no result depends on it. The calling thread is worker 0. Workers
// spin for a short while between calls, because the next call of a sequence follows within microseconds, then
// sleep. A forked process has none of its parent's threads: the first sequence that takes the pool there
// starts new ones.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/common/abi.h"

namespace aicf {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // The pool of this size shared by the process.
  static std::shared_ptr<ThreadPool> shared(int threads);

  int threads() const { return static_cast<int>(shares_.size()); }
  // One sequence uses the pool at a time; another that finds it taken runs on its own thread alone.
  std::unique_lock<std::mutex> try_acquire();
  // Runs every tile of the call; scratch[w] is the private memory of worker w. Returns when all are done.
  void run(const BoundCall& call, std::byte* const* scratch);

 private:
  // Tiles of one worker that nobody has taken yet.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  void start_workers();  // io_failed where the system has no more threads
  void end_workers();
  void abandon_workers();
  void work(int worker, uint32_t seen);
  void take_tiles(int worker);

  std::mutex in_use_;
  std::vector<Share> shares_;
  std::vector<std::thread> workers_;
  int forks_;  // fork_count() when the workers were started
  const BoundCall* call_ = nullptr;
  std::byte* const* scratch_ = nullptr;
  alignas(64) std::atomic<uint32_t> epoch_{0};
  alignas(64) std::atomic<int> busy_{0};
  std::atomic<bool> stop_{false};
};

// Physical cores that this process may use.
int default_thread_count();

}  // namespace aicf
