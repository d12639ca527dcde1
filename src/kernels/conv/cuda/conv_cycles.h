// What the estimates of convolutions share, in clock cycles of an H100.
#pragma once

namespace aicf {

inline constexpr double kConvStart = 3900;        // launch, first loads, last stores
inline constexpr double kConvBusy = 1.12;         // of instructions of warps that fill their scheduler
inline constexpr double kConvMemoryBytes = 1750;  // per cycle, of device memory
// Sectors per cycle of which the L2 cache takes a part each: of two convolutions of halves on an H200, whose
// second result is scattered so, 35 and 39.
inline constexpr double kConvSectors = 39;

}  // namespace aicf
