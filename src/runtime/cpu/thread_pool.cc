#include "runtime/cpu/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/forks.h"

namespace aicf {
namespace {

constexpr int kSpins = 20000;  // about 50 to 100 µs

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) : shares_(static_cast<size_t>(threads)) { start_workers(); }

void ThreadPool::start_workers() {
  forks_ = fork_count();
  const uint32_t seen = epoch_.load();
  try {
    for (int worker = 1; worker < threads(); ++worker)
      workers_.emplace_back([this, worker, seen] { work(worker, seen); });
  } catch (const std::system_error& error) {
    end_workers();
    throw EnvironmentError(ErrorCode::kE_io_failed, "cannot start a thread to compute in")
        .with_value(std::to_string(threads()) + " threads")
        .with_actual(error.code().message())
        .with_remedy(
            "ask for fewer threads (AICF_NUM_THREADS), or raise the limits on processes (ulimit -u) and on "
            "memory "
            "(ulimit -v)");
  } catch (...) {  // a thread that is not joined would end the process
    end_workers();
    throw;
  }
}

void ThreadPool::end_workers() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
  stop_.store(false);
}

// They run in the parent only: their handles can be neither joined nor detached here.
void ThreadPool::abandon_workers() {
  (void)std::make_unique<std::vector<std::thread>>(std::move(workers_)).release();
  workers_.clear();
}

std::unique_lock<std::mutex> ThreadPool::try_acquire() {
  std::unique_lock<std::mutex> lock(in_use_, std::try_to_lock);
  if (lock.owns_lock() && forks_ != fork_count()) {
    abandon_workers();
    start_workers();
  }
  return lock;
}

ThreadPool::~ThreadPool() {
  if (forks_ != fork_count()) {
    abandon_workers();
    return;
  }
  end_workers();
}

std::shared_ptr<ThreadPool> ThreadPool::shared(int threads) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<ThreadPool>> pools;
  const std::lock_guard lock(mutex);
  std::shared_ptr<ThreadPool> pool = pools[threads].lock();
  if (pool == nullptr) pools[threads] = pool = std::make_shared<ThreadPool>(threads);
  return pool;
}

void ThreadPool::take_tiles(int worker) {
  const BoundCall& call = *call_;
  for (size_t i = 0; i < shares_.size(); ++i) {
    Share& share = shares_[(static_cast<size_t>(worker) + i) % shares_.size()];
    for (int64_t tile = share.next.fetch_add(1, std::memory_order_relaxed); tile < share.end;
         tile = share.next.fetch_add(1, std::memory_order_relaxed))
      call.run(call, tile, scratch_[worker]);
  }
}

void ThreadPool::run(const BoundCall& call, std::byte* const* scratch) {
  call_ = &call;
  scratch_ = scratch;
  const auto count = static_cast<int64_t>(shares_.size());
  for (int64_t worker = 0, first = 0; worker < count; ++worker) {
    Share& share = shares_[static_cast<size_t>(worker)];
    share.next.store(first, std::memory_order_relaxed);
    share.end = first = share_begin(call.tiles, count, worker + 1);
  }
  busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  take_tiles(0);
  // A worker may have lost its core to another process: then give up ours too rather than burn its time.
  for (int spins = 0; busy_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::work(int worker, uint32_t seen) {
  for (;;) {
    int spins = 0;
    while (epoch_.load(std::memory_order_acquire) == seen) {
      if (++spins < kSpins) {
        pause();
      } else {
        epoch_.wait(seen, std::memory_order_acquire);
      }
    }
    ++seen;
    if (stop_.load()) return;
    take_tiles(worker);
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

int default_thread_count() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
    return std::max(1u, std::thread::hardware_concurrency());
  // One thread per (package, core): siblings share the arithmetic units.
  std::set<std::pair<std::string, std::string>> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    std::string package, core;
    std::ifstream(folder + "physical_package_id") >> package;
    std::ifstream(folder + "core_id") >> core;
    if (core.empty()) core = "cpu" + std::to_string(cpu);
    cores.emplace(package, core);
  }
  return std::max<int>(1, static_cast<int>(cores.size()));
}

}  // namespace aicf
