#include "runtime/cuda/staged_upload.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "runtime/cuda/cuda_graphs.h"

namespace aicf::cuda {
namespace {

constexpr int64_t kPieceBytes = int64_t{2} << 20;
constexpr unsigned kMostThreads = 4;
constexpr size_t kPiecesOfThread = 2;  // one is filled while the other is on its way

std::vector<Transfer> pieces_of(const std::vector<Transfer>& transfers) {
  std::vector<Transfer> pieces;
  for (const Transfer& all : transfers)
    for (int64_t at = 0; at < all.bytes; at += kPieceBytes)
      pieces.push_back(
          {all.to + at, static_cast<const std::byte*>(all.from) + at, std::min(kPieceBytes, all.bytes - at)});
  return pieces;
}

// A thread's page-locked memory, with what tells when each piece of it may be filled again.
struct Stage {
  std::byte* memory;
  std::array<OwnedEvent, kPiecesOfThread> taken;
};

class Upload {
 public:
  Upload(std::shared_ptr<DeviceContext> context, const std::vector<Transfer>& transfers)
      : context_(std::move(context)), pieces_(pieces_of(transfers)) {}

  // On each of several threads at once, until no piece is left or one of them failed.
  void work(Stage& stage) {
    try {
      context_->enter();
      size_t rounds = 0;
      for (size_t i = next_++; i < pieces_.size(); i = next_++, ++rounds) {
        const size_t half = rounds % kPiecesOfThread;
        std::byte* memory = stage.memory + static_cast<int64_t>(half) * kPieceBytes;
        const Event taken = stage.taken[half].handle();
        if (rounds >= kPiecesOfThread) AICF_CUDA(driver().event_synchronize(taken));
        const Transfer& piece = pieces_[i];
        std::memcpy(memory, piece.from, static_cast<size_t>(piece.bytes));
        const StreamHandle stream = context_->stream({});
        AICF_CUDA(driver().copy_in(reinterpret_cast<Address>(piece.to), memory,
                                   static_cast<size_t>(piece.bytes), stream));
        AICF_CUDA(driver().event_record(taken, stream));
      }
    } catch (...) {
      next_ = pieces_.size();
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
  }

  // After all threads have ended.
  void finish() {
    const int waited = driver().stream_synchronize(context_->stream({}));
    if (error_) std::rethrow_exception(error_);
    AICF_CUDA(waited);
  }

 private:
  std::shared_ptr<DeviceContext> context_;
  std::vector<Transfer> pieces_;
  std::atomic<size_t> next_{0};
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace

void staged_upload(const std::shared_ptr<DeviceContext>& context, const std::vector<Transfer>& transfers) {
  const size_t count = std::clamp(std::thread::hardware_concurrency(), 1U, kMostThreads);
  constexpr size_t kStageBytes = kPiecesOfThread * static_cast<size_t>(kPieceBytes);
  const MappedMemory memory(context, count * kStageBytes);
  std::vector<Stage> stages(count);
  for (size_t i = 0; i < count; ++i)
    stages[i].memory = static_cast<std::byte*>(memory.host()) + i * kStageBytes;
  Upload upload(context, transfers);
  {
    std::vector<std::jthread> threads;
    threads.reserve(count);
    try {
      for (size_t i = 1; i < count; ++i)
        threads.emplace_back([&upload, &stages, i] { upload.work(stages[i]); });
    } catch (const std::exception&) {
      // As many as the system gives.
    }
    upload.work(stages[0]);
  }
  upload.finish();
}

}  // namespace aicf::cuda
