// Offsets of temporaries in one arena. Takes sizes and lifetimes, gives offsets such that two buffers alive
// at one step never share a byte.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace aicf {

// Sets Buffer::offset of every kArena buffer from max_bytes and lifetime, returns the arena's size. Larger
// buffers are placed first, each at the lowest offset that is free during its whole life (greedy by size;
// Pisarchyk & Lee 2020, "Efficient Memory Management for Deep Neural Net Inference"). Equal sizes keep their
// order, so the result is deterministic.
int64_t assign_arena_offsets(std::vector<Buffer>& buffers);

int64_t align_up(int64_t bytes);  // to kBufferAlignment, overflow-checked
// The first offset from `offset` on for a buffer of so many bytes.
int64_t aligned_offset(int64_t offset, int64_t bytes);

}  // namespace aicf
