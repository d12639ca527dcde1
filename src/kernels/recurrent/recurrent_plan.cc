#include "kernels/recurrent/recurrent_plan.h"

#include <algorithm>
#include <array>

namespace aicf {
namespace {

constexpr int64_t kOwnRegisters = 56, kOwnOfGradient = 80;  // of a thread, beside sums and weights
constexpr int64_t kOnTheWay = 44;                           // of a thread, from shared memory
constexpr int64_t kMostSums = 64;                           // of a lane
constexpr double kArrival = 420;                            // cycles until what is sent can be read
constexpr double kNearArrival = 90;                         // of a block alone: a barrier and a load
constexpr double kCell = 220;                               // of the gates' functions, of which each waits
constexpr double kLoadedBytes = 24;                         // a cycle, of weights into a multiprocessor
constexpr double kStart = 3000;
// Instructions of a warp and step beside its products and their sums.
constexpr double kOwnInstructions = 40, kOfGate = 34, kOfSend = 4;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t power_of_two(int64_t least) {
  int64_t power = 1;
  while (power < least) power *= 2;
  return power;
}

int64_t logarithm(int64_t power) {
  int64_t result = 0;
  while (power > 1) power /= 2, ++result;
  return result;
}

// As DepthSplit in recurrent.cuh.
struct Split {
  int64_t lanes, vec, chunk, chunks;
};
Split split_of(int64_t depth) {
  int64_t lanes = 1, vec = 4;
  while (lanes < 32 && 8 * lanes < depth) lanes *= 2;
  const auto padded = [&](int64_t v) { return ceil_div(depth, lanes * v) * lanes * v; };
  while (vec > 1 && 4 * padded(vec) > 5 * padded(1)) vec /= 2;
  return {lanes, vec, lanes * vec, ceil_div(depth, lanes * vec)};
}

std::optional<RecurrentPlan> place(const RecurrentWork& w, int64_t cluster, int64_t most_warps,
                                   int64_t rows) {
  const Split split = split_of(w.depth);
  const int64_t teams = 32 / split.lanes, of_block = ceil_div(w.hidden, cluster);
  const int64_t units = ceil_div(of_block, most_warps * teams);
  const int64_t warps = ceil_div(of_block, units * teams), items = power_of_two(units * rows);
  // Every block has work, and a lane a unit.
  if ((cluster - 1) * warps * teams * units >= w.hidden || items > split.lanes) return std::nullopt;
  const int64_t sums = w.products * units * rows;
  if (sums > kMostSums) return std::nullopt;
  const int64_t registers = registers_of_thread(warps);
  const int64_t own = w.columns_staged > 0 ? kOwnOfGradient : kOwnRegisters;
  const int64_t free = registers - own - sums - rows * split.vec;
  if (free < 0) return std::nullopt;
  const int64_t of_chunk = w.products * units * split.vec;
  const bool all = free >= of_chunk * split.chunks;
  const int64_t rest = free - std::min(kOnTheWay, 2 * of_chunk) - rows * split.vec;
  if (!all && rest < 0) return std::nullopt;
  const int64_t held = all ? split.chunks : rest / of_chunk;
  const int64_t shared_chunks = split.chunks - held;
  const int64_t exchanged = ceil_div(2 * rows * split.chunk * split.chunks * 4 + 16, 16) * 16;
  const int64_t staged =
      w.columns_staged * (split.chunk * (warps * teams * units + 2) * w.element_bytes + 16);
  const int64_t kept = warps * shared_chunks * of_chunk * 32 * w.element_bytes;
  const int64_t bytes = exchanged + staged + kept;
  if (bytes > shared_limit(90)) return std::nullopt;

  const auto number = [](int64_t n) { return static_cast<double>(n); };
  const double fma = number(of_chunk * split.chunks * rows);
  // Halving takes a shuffle, an addition and two choices, adding what is alone the former two.
  const int64_t alone = logarithm(split.lanes / items);
  const double trees = number(w.products * (4 * (items - 1) + 2 * alone)),
               shuffles = number(w.products * (items - 1 + alone));
  const double sends = kOfSend * number(w.sent * ceil_div(cluster * items, split.lanes));
  // Weights in registers are f32; halves in shared memory are converted in every step.
  const double converted = w.element_bytes == 2 ? number(of_chunk * shared_chunks) : 0;
  const double loads = number(split.chunks * rows + of_chunk / split.vec * shared_chunks);
  const double gates = number(std::max(w.products, w.sent));
  const double issued = (fma + converted + trees + sends + loads + kOwnInstructions + kOfGate * gates) *
                        number(ceil_div(warps, 4));
  const double accesses = number(warps) * (number(split.chunks * rows * split.vec) + shuffles) +
                          number(kept) / 128 + number(w.sent * rows * w.hidden) / 4;
  const double step =
      std::max(issued, accesses) + kCell + (cluster == 1 ? kNearArrival : kArrival + number(10 * cluster));
  const double start = kStart + number(w.products * of_block * w.depth * w.element_bytes) / kLoadedBytes;
  const int64_t clusters = ceil_div(w.batch, rows) * w.directions;
  const double rounds = number(ceil_div(clusters, clusters_at_once(cluster, w.machine)));
  return RecurrentPlan{static_cast<int32_t>(cluster),
                       static_cast<int32_t>(warps),
                       static_cast<int32_t>(units),
                       static_cast<int32_t>(teams),
                       static_cast<int32_t>(rows),
                       static_cast<int32_t>(held),
                       bytes,
                       rounds * (start + step * number(w.length))};
}

}  // namespace

// A quarter of a multiprocessor has 512 for each lane, and a quarter of the warps.
int64_t registers_of_thread(int64_t warps) {
  return std::min<int64_t>(512 / ceil_div(warps, 4) / 8 * 8, 255);
}

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
