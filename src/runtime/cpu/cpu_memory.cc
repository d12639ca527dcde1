#include "runtime/cpu/cpu_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "base/dim.h"
#include "base/error.h"

namespace aicf {
namespace {

// Of Linux 5.14 and 6.1; older headers lack the names, older kernels refuse them, which costs nothing but
// time.
#ifdef MADV_POPULATE_WRITE
constexpr int kPopulate = MADV_POPULATE_WRITE;
#else
constexpr int kPopulate = 23;
#endif
#ifdef MADV_COLLAPSE
constexpr int kCollapse = MADV_COLLAPSE;
#else
constexpr int kCollapse = 25;
#endif

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr double kSlow = 1e-3;                                  // seconds; about what 512 small pages cost
constexpr auto kReplaceAfter = std::chrono::milliseconds(100);  // a first result goes before

double take_huge_page(std::byte* block) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  (void)madvise(block, kHugePage, MADV_HUGEPAGE);
  (void)madvise(block, kHugePage, kPopulate);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void replace_by_huge_page(std::byte* block) {
  (void)madvise(block, kHugePage, MADV_HUGEPAGE);
  (void)madvise(block, kHugePage, kCollapse);
}

}  // namespace

CpuMemory::CpuMemory(int64_t bytes) : CpuMemory(bytes, {take_huge_page, replace_by_huge_page}) {}

CpuMemory::CpuMemory(int64_t bytes, const Pages& pages) : pages_(pages), bytes_(bytes) {
  if (bytes == 0) return;
  const auto mapped = static_cast<size_t>(checked_add(bytes, kHugePage));
  void* memory =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw EnvironmentError(ErrorCode::kE_out_of_memory, "cannot map memory for the model")
        .with_actual(std::to_string(bytes) + " bytes")
        .with_remedy("compile with a smaller range of sizes, or raise the limit of the process (ulimit -v)");
  mapping_ = static_cast<std::byte*>(memory);
  const int64_t past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory) % kHugePage);
  data_ = mapping_ + (past == 0 ? 0 : kHugePage - past);
  // A system that gives huge pages to everybody would give them for the corner of a large arena, too.
  (void)madvise(memory, mapped, MADV_NOHUGEPAGE);
  blocks_.resize(static_cast<size_t>(bytes / kHugePage), Block::kUntouched);
}

CpuMemory::~CpuMemory() {
  end_replacer();
  if (mapping_ != nullptr) munmap(mapping_, static_cast<size_t>(bytes_ + kHugePage));
}

void CpuMemory::will_fill(int64_t first, int64_t bytes) {
  std::vector<std::byte*> small;
  const int64_t end = std::min(first + bytes, static_cast<int64_t>(blocks_.size()) * kHugePage);
  for (int64_t at = first / kHugePage * kHugePage; at < end; at += kHugePage) {
    Block& block = blocks_[static_cast<size_t>(at / kHugePage)];
    const bool whole = at >= first && at + kHugePage <= end;
    if (whole && block == Block::kUntouched && !slow_)
      slow_ = pages_.take(data_ + at) > kSlow;
    else if (whole && block != Block::kHuge)
      small.push_back(data_ + at);
    if (block != Block::kHuge) block = whole ? Block::kHuge : Block::kTouched;
  }
  if (!small.empty()) replace_later(small);
}

// Stops and joins the thread. In a fork it is not there, nor can what it waited on be taken apart.
void CpuMemory::end_replacer() {
  if (replacer_ != nullptr && replacer_->forks != fork_count()) (void)replacer_.release();
  replacer_.reset();
}

void CpuMemory::replace_later(const std::vector<std::byte*>& blocks) {
  if (replacer_ != nullptr && replacer_->forks != fork_count()) end_replacer();
  if (replacer_ == nullptr) {
    replacer_ = std::make_unique<Replacer>();
    try {
      replacer_->thread = std::jthread(
          [this, &replacer = *replacer_](const std::stop_token& stop) { replace_small(stop, replacer); });
    } catch (const std::exception&) {
      replacer_.reset();  // there are no more threads to have, and small pages do as well
      return;
    }
  }
  {
    const std::lock_guard lock(replacer_->mutex);
    replacer_->small.insert(replacer_->small.end(), blocks.begin(), blocks.end());
  }
  replacer_->more.notify_one();
}

void CpuMemory::replace_small(const std::stop_token& stop, Replacer& replacer) const {
  std::unique_lock lock(replacer.mutex);
  while (replacer.more.wait(lock, stop, [&] { return !replacer.small.empty(); })) {
    if (replacer.more.wait_for(lock, stop, kReplaceAfter, [] { return false; }) || stop.stop_requested())
      return;
    const std::vector<std::byte*> blocks = std::move(replacer.small);
    replacer.small.clear();
    lock.unlock();
    for (std::byte* block : blocks) {
      if (stop.stop_requested()) return;
      pages_.replace(block);
    }
    lock.lock();
  }
}

}  // namespace aicf
