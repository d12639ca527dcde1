#include "plan/arena.h"

#include <algorithm>

#include "base/rounding.h"

namespace aicf {
namespace {

// The buffers that have an offset, by when they live: a buffer that lives long is listed in every block of
// steps.
class Placed {
 public:
  void add(const Buffer& buffer) {
    for (size_t block = block_of(buffer.first_step); block <= block_of(buffer.last_step); ++block) {
      if (block >= alive_.size()) alive_.resize(block + 1), started_.resize(block + 1);
      alive_[block].push_back(&buffer);
    }
    started_[block_of(buffer.first_step)].push_back(&buffer);
  }

  // Those that live beside the buffer at some step, by offset.
  std::vector<const Buffer*> beside(const Buffer& buffer) const {
    std::vector<const Buffer*> found;
    const auto note = [&](const std::vector<const Buffer*>& list) {
      for (const Buffer* other : list)
        if (other->last_step >= buffer.first_step && buffer.last_step >= other->first_step)
          found.push_back(other);
    };
    const size_t first = block_of(buffer.first_step);
    if (first < alive_.size()) note(alive_[first]);
    for (size_t block = first + 1; block <= block_of(buffer.last_step) && block < started_.size(); ++block)
      note(started_[block]);
    std::sort(found.begin(), found.end(),
              [](const Buffer* a, const Buffer* b) { return a->offset < b->offset; });
    return found;
  }

 private:
  static size_t block_of(int32_t step) { return static_cast<size_t>(step) / 256; }
  std::vector<std::vector<const Buffer*>> alive_, started_;  // by block: that live in it, that begin in it
};

}  // namespace

int64_t align_up(int64_t bytes) { return checked_round_up(bytes, kBufferAlignment); }

int64_t aligned_offset(int64_t offset, int64_t bytes) {
  return checked_round_up(offset, bytes < kLargeBuffer ? kBufferAlignment : kLargeBufferAlignment);
}

int64_t assign_arena_offsets(std::vector<Buffer>& buffers) {
  std::vector<Buffer*> order;
  for (Buffer& buffer : buffers)
    if (buffer.kind == BufferKind::kArena) order.push_back(&buffer);
  std::stable_sort(order.begin(), order.end(),
                   [](const Buffer* a, const Buffer* b) { return a->max_bytes > b->max_bytes; });

  int64_t arena = 0;
  Placed placed;
  for (Buffer* buffer : order) {
    const int64_t need = buffer->max_bytes;
    const bool is_used = buffer->first_step <= buffer->last_step;
    int64_t offset = 0;
    if (is_used)
      for (const Buffer* other : placed.beside(*buffer)) {
        if (offset + need <= other->offset) break;
        offset = std::max(offset, aligned_offset(other->offset + other->max_bytes, need));
      }
    buffer->offset = offset;
    arena = std::max(arena, align_up(checked_add(offset, need)));
    if (is_used) placed.add(*buffer);
  }
  return arena;
}

}  // namespace aicf
