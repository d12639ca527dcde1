#include "kernels/conv/cuda/conv_depthwise_ways.h"

#include <algorithm>

#include "base/rounding.h"
#include "kernels/conv/cuda/conv_cycles.h"

namespace aicf {
namespace {

struct ThreadCycles {
  double issued, alone;  // of its warp, and of the warp without others
};

ThreadCycles of_thread(const DepthwiseWork& work) {
  constexpr double kTap = 87;       // of a window alone, whose loads wait for memory
  constexpr double kRow = 150;      // likewise of a row of x under a tile
  constexpr double kTapIssue = 14;  // instructions of a tap that is found by itself
  constexpr double kPlace = 80, kLoad = 8, kWeight = 2, kResult = 12;
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  const double taps = number(work.taps), vector = number(work.vector),
               results = number(work.rows * work.columns * work.vector);
  if (work.x_loads == 0) {
    const double issued = taps * (kTapIssue + 2 * (vector - 1)) + kPlace + kResult * results;
    return {issued, std::max(issued, taps * kTap)};
  }
  const double x_rows = number(work.x_rows);
  const double issued = kPlace + x_rows * (number(work.x_loads) * kLoad + number(work.x_columns) * vector) +
                        number(work.weights) * kWeight + taps * results + kResult * results;
  return {issued, std::max(issued, x_rows * kRow)};
}

}  // namespace

double depthwise_microseconds(const DepthwiseWork& work) {
  constexpr int64_t kThreads = 2048, kSchedulers = 4;  // of a multiprocessor
  const ThreadCycles thread = of_thread(work);
  const int64_t blocks = ceil_div(work.threads, work.block),
                own = std::max<int64_t>(1, ceil_div(blocks, work.machine.multiprocessors));
  const auto waves = static_cast<double>(ceil_div(own * work.block, kThreads)),
             warps = static_cast<double>(ceil_div(own * work.block, 32 * kSchedulers));
  const double cycles = std::max({waves * thread.alone, warps * thread.issued * kConvBusy,
                                  work.bytes / kConvMemoryBytes, work.sectors / kConvSectors});
  return (kConvStart + cycles) / kCyclesPerMicrosecond;
}

}  // namespace aicf
