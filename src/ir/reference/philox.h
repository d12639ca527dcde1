// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
// easy as 1, 2, 3" (SC 2011): ten rounds of two 32x32→64-bit products over a 128-bit counter, with a 64-bit
// key bumped between rounds.
#pragma once

#include <array>
#include <cstdint>

namespace aicf::reference {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key);

// The word of op random_bits at row-major element `index`. A block of four consecutive elements shares one
// counter:
//   key     = (seed bits 0..31, seed bits 32..63)
//   counter = (index / 4 bits 0..31, index / 4 bits 32..63, step bits 0..31, stream bits 0..31)
// and element index % 4 of the block is that word of the result.
uint32_t random_word(int64_t seed, int64_t step, int64_t stream, int64_t index);

}  // namespace aicf::reference
