#include "kernels/recurrent/recurrent_plan.h"

#include <algorithm>
#include <array>

namespace aicf {
namespace {

constexpr int64_t kRegisters = 65536, kMostRegisters = 255;   // of a multiprocessor, of a thread
constexpr int64_t kOwnRegisters = 100, kOwnOfGradient = 132;  // of a thread, beside sums and weights
constexpr int64_t kMostSums = 64;                             // of a lane
constexpr double kArrival = 420;                              // cycles until what is sent can be read
constexpr double kNearArrival = 90;                           // of a block alone: a barrier and a load
constexpr double kCell = 220;                                 // of the gates' functions, of which each waits
constexpr double kLoadedBytes = 24;                           // a cycle, of weights into a multiprocessor
constexpr double kStart = 3000;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t power_of_two(int64_t least) {
  int64_t power = 1;
  while (power < least) power *= 2;
  return power;
}

// As DepthSplit in recurrent.cuh.
struct Split {
  int64_t vec, chunk, chunks;
};
Split split_of(int64_t depth) {
  const int64_t vec = depth > 64 ? 4 : depth > 32 ? 2 : 1;
  return {vec, 32 * vec, ceil_div(depth, 32 * vec)};
}

std::optional<RecurrentPlan> place(const RecurrentWork& w, int64_t cluster, int64_t most_warps,
                                   int64_t rows) {
  const Split split = split_of(w.depth);
  const int64_t of_block = ceil_div(w.hidden, cluster), units = ceil_div(of_block, most_warps);
  const int64_t warps = ceil_div(of_block, units), items = power_of_two(units * rows);
  // Every block has work, and a lane a unit.
  if ((cluster - 1) * warps * units >= w.hidden || items > 32) return std::nullopt;
  const int64_t sums = w.products * units * rows;
  if (sums > kMostSums) return std::nullopt;
  const int64_t registers = std::min(kMostRegisters, kRegisters / (32 * warps) / 8 * 8);
  const int64_t own = w.columns_staged > 0 ? kOwnOfGradient : kOwnRegisters;
  const int64_t free = registers - own - sums - rows * split.vec;
  if (free < 0) return std::nullopt;
  const int64_t of_chunk = w.products * units * split.vec;
  const int64_t held = std::clamp<int64_t>(free / of_chunk, 0, split.chunks);
  const int64_t shared_chunks = split.chunks - held;
  const int64_t exchanged = 2 * rows * split.chunk * split.chunks * 4 + 16;
  const int64_t staged = w.columns_staged * split.chunk * (warps * units + 2) * w.element_bytes;
  const int64_t kept = warps * shared_chunks * of_chunk * 32 * w.element_bytes;
  const int64_t bytes = exchanged + staged + kept + 64;
  if (bytes > shared_limit(90)) return std::nullopt;

  const auto number = [](int64_t n) { return static_cast<double>(n); };
  const double fma = number(of_chunk * split.chunks * rows);
  const double trees =
      number(w.products * 2 * (items - 1 + 5)) + number(w.sent * ceil_div(cluster * items, 32) * 4);
  // Weights in registers are f32; halves in shared memory are converted in every step.
  const double converted = w.element_bytes == 2 ? number(of_chunk * shared_chunks) : 0;
  const double issued =
      (fma + converted + trees + number(split.chunks * rows) + 80) * number(ceil_div(warps, 4));
  const double accesses = number(warps * split.chunks * rows * split.vec) + number(kept) / 128 +
                          number(w.sent * rows * w.hidden) / 4;
  const double step =
      std::max(issued, accesses) + kCell + (cluster == 1 ? kNearArrival : kArrival + number(10 * cluster));
  const double start = kStart + number(w.products * of_block * w.depth * w.element_bytes) / kLoadedBytes;
  const int64_t clusters = ceil_div(w.batch, rows) * w.directions;
  const double rounds = number(ceil_div(clusters, clusters_at_once(cluster, w.machine)));
  return RecurrentPlan{static_cast<int32_t>(cluster),
                       static_cast<int32_t>(warps),
                       static_cast<int32_t>(units),
                       static_cast<int32_t>(rows),
                       static_cast<int32_t>(held),
                       bytes,
                       rounds * (start + step * number(w.length))};
}

}  // namespace

// Those of 16 blocks need a whole group of multiprocessors.
int64_t clusters_at_once(int64_t cluster, const CudaMachine& machine) {
  if (cluster == 1) return machine.multiprocessors;
  const int64_t at_once = cluster == 16 ? 7 * machine.multiprocessors / kMultiprocessors
                                        : machine.multiprocessors / cluster * 15 / 16;
  return std::max<int64_t>(at_once, 1);
}

std::optional<RecurrentPlan> recurrent_plan(const RecurrentWork& work) {
  std::optional<RecurrentPlan> best;
  for (const int64_t cluster : {1, 2, 4, 8, 16})
    for (const int64_t warps : {4, 8, 12, 16})
      for (const int64_t rows : {1, 2, 4, 8}) {
        const auto plan = place(work, cluster, warps, rows);
        if (plan && (!best || plan->cycles < best->cycles)) best = plan;
      }
  return best;
}

}  // namespace aicf
