// Memory of the CPU driver: an anonymous mapping, zero-filled, where a page costs nothing before it is
// touched, so that an arena planned for the largest sizes takes only what the bound sizes use.
//
// What will be filled whole wants huge pages: a pass over the packed weights of a model walks ten thousand
// small ones (6 % of a MiniLM run). A system that has huge pages at hand gives one faster than its 512 small
// pages; where it must gather them first (a virtual machine that gave its free memory back) one takes ten
// times as long, and a load would wait for all of them. So each is timed, and when one is slow the rest
// begins as small pages, which a thread replaces a little later. In a forked process, where the thread is
// not, they stay.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/forks.h"
#include "runtime/device.h"

namespace aicf {

class CpuMemory final : public DeviceMemory {
 public:
  explicit CpuMemory(int64_t bytes);
  ~CpuMemory() override;
  CpuMemory(const CpuMemory&) = delete;
  CpuMemory& operator=(const CpuMemory&) = delete;
  std::byte* data() override { return data_; }
  int64_t bytes() const override { return bytes_; }
  void will_fill(int64_t first, int64_t bytes) override;

  // How pages are got: the system's calls, or a test's. `take` commits one huge page and gives the seconds it
  // took, `replace` makes one of the small pages there, contents and all.
  struct Pages {
    double (*take)(std::byte* block);
    void (*replace)(std::byte* block);
  };
  CpuMemory(int64_t bytes, const Pages& pages);

 private:
  enum class Block : uint8_t { kUntouched, kTouched, kHuge };
  // The thread that replaces small pages, and what it is told.
  struct Replacer {
    const int forks = fork_count();
    std::mutex mutex;
    std::condition_variable_any more;
    std::vector<std::byte*> small;  // blocks to be replaced, under the mutex
    std::jthread thread;
  };
  void replace_later(const std::vector<std::byte*>& blocks);
  void replace_small(const std::stop_token& stop, Replacer& replacer) const;
  void end_replacer();

  Pages pages_;
  std::byte* mapping_ = nullptr;
  std::byte* data_ = nullptr;  // at a multiple of a huge page
  int64_t bytes_;
  std::vector<Block> blocks_;
  bool slow_ = false;
  std::unique_ptr<Replacer> replacer_;
};

}  // namespace aicf
