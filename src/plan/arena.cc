#include "plan/arena.h"

#include <algorithm>
#include <array>

#include "base/rounding.h"

namespace aicf {
namespace {

// The buffers that have an offset, by offset, apart for blocks of steps of several lengths: what lives within
// one block need not look past those that live in it too.
class Placed {
 public:
  void add(const Buffer& buffer) {
    for (size_t level = 0; level < kShifts.size(); ++level)
      for (int32_t block = buffer.first_step >> kShifts[level]; block <= buffer.last_step >> kShifts[level];
           ++block) {
        List& list = list_of(level, block);
        list.insert(std::upper_bound(list.begin(), list.end(), &buffer,
                                     [](const Buffer* a, const Buffer* b) { return a->offset < b->offset; }),
                    &buffer);
      }
  }

  // All that live at a step of the buffer, and others.
  const std::vector<const Buffer*>& around(const Buffer& buffer) {
    size_t level = 0;
    while (buffer.first_step >> kShifts[level] != buffer.last_step >> kShifts[level]) ++level;
    return list_of(level, buffer.first_step >> kShifts[level]);
  }

 private:
  using List = std::vector<const Buffer*>;
  static constexpr std::array<int, 4> kShifts = {8, 12, 16, 31};  // the last: one block for all
  List& list_of(size_t level, int32_t block) {
    std::vector<List>& lists = lists_[level];
    if (lists.size() <= static_cast<size_t>(block)) lists.resize(static_cast<size_t>(block) + 1);
    return lists[static_cast<size_t>(block)];
  }
  std::array<std::vector<List>, kShifts.size()> lists_;
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
      for (const Buffer* other : placed.around(*buffer)) {
        if (other->last_step < buffer->first_step || buffer->last_step < other->first_step) continue;
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
