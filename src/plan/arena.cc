#include "plan/arena.h"

#include <algorithm>

#include "base/rounding.h"

namespace aicf {

int64_t align_up(int64_t bytes) { return checked_round_up(bytes, kBufferAlignment); }

int64_t aligned_offset(int64_t offset, int64_t bytes) {
  return checked_round_up(offset, bytes < kLargeBuffer ? kBufferAlignment : kLargeBufferAlignment);
}

int64_t assign_arena_offsets(std::vector<Buffer>& buffers) {
  std::vector<size_t> order;
  for (size_t i = 0; i < buffers.size(); ++i)
    if (buffers[i].kind == BufferKind::kArena) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return buffers[a].max_bytes > buffers[b].max_bytes; });

  int64_t arena = 0;
  std::vector<size_t> placed;  // sorted by offset
  for (size_t index : order) {
    Buffer& buffer = buffers[index];
    const int64_t need = buffer.max_bytes;
    int64_t offset = 0;
    for (size_t other_index : placed) {
      const Buffer& other = buffers[other_index];
      if (other.last_step < buffer.first_step || buffer.last_step < other.first_step) continue;
      if (offset + need <= other.offset) break;
      offset = std::max(offset, aligned_offset(other.offset + other.max_bytes, need));
    }
    buffer.offset = offset;
    arena = std::max(arena, align_up(checked_add(offset, need)));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), index,
                                   [&](size_t a, size_t b) { return buffers[a].offset < buffers[b].offset; }),
                  index);
  }
  return arena;
}

}  // namespace aicf
