#include "kernels/recurrent/recurrent_mma_plan.h"

#include <algorithm>
#include <optional>

namespace aicf {
namespace recurrent_mma {
namespace {

constexpr int64_t kRegisters = 65536, kMostRegisters = 255;  // of a multiprocessor, of a thread
constexpr int64_t kOwnRegisters = 60;                        // of a thread, beside operands and state
constexpr int64_t kMostWarps = 16;
constexpr int64_t kDepth = 32;         // of a chunk
constexpr int64_t kPlaceBytes = 512;   // of 8 rows of weights over a chunk
constexpr double kMmaCycles = 6.3;     // of a scheduler, of one m16n8k16
constexpr double kMmaLatency = 34;     // until a sum takes its next product
constexpr double kLoadLatency = 35;    // of a chunk, before a warp's first product
constexpr double kSharedBytes = 128;   // a cycle, of shared memory
constexpr double kStreamedBytes = 13;  // a cycle and multiprocessor, of weights from L2
constexpr double kL2Bytes = 3500;      // a cycle, of the machine
constexpr double kSentBytes = 16;      // a cycle and multiprocessor, between blocks
constexpr double kLoadedBytes = 24;    // a cycle, of weights into a multiprocessor
constexpr double kArrival = 420;       // cycles until what is sent can be read
constexpr double kNearArrival = 90;    // of a block alone: a barrier and a load
constexpr double kOfBlock = 10;        // more for each block of the cluster
constexpr double kCell = 220;          // of the gates' functions, of which each waits
constexpr double kItem = 40;           // instructions of a warp's cells of 8 units and 8 rows, beside those
constexpr double kFunction = 32;  // cycles of a scheduler, of a function of an item: 4 special ones, 8 each
constexpr double kBarrier = 60;   // of a group's warps
constexpr double kStart = 3000;
constexpr double kMemoryBytes = 2000;     // a cycle, of the machine's memory
constexpr double kDecomposedStep = 6000;  // of the launches of one step of one direction

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
double number(int64_t n) { return static_cast<double>(n); }

// As UnitGroup and RecurrentMmaLayer in recurrent_mma.cuh.
struct Shape {
  int64_t eights, units, places, tiles, groups, warps, row_tiles, items, own_items, chunks, own_chunks,
      columns;

  Shape(const RecurrentWork& w, int64_t cluster, int64_t slices, int64_t rows) {
    eights = w.products == 4 ? 1 : 2, units = 8 * eights;
    places = w.products * eights, tiles = places / 2;
    groups = ceil_div(ceil_div(w.hidden, units), cluster), warps = groups * slices;
    row_tiles = rows / 8, items = row_tiles * eights, own_items = ceil_div(items, slices);
    chunks = ceil_div(w.hidden, kDepth), own_chunks = ceil_div(chunks, slices);
    columns = cluster * groups * units;
  }
  int64_t vector_bytes(int64_t rows) const {
    return 2 * rows * 64 * (std::max(ceil_div(columns, kDepth), chunks) | 1);
  }
  int64_t patch_bytes() const { return warps * own_items * 8 * 16; }
  int64_t partial_bytes(int64_t slices, int64_t gates) const {
    return (slices > 1 ? warps * items : 1) * gates * 32 * 8;
  }
  int64_t weight_bytes(int64_t in_shared) const {
    return (in_shared > 0 ? warps * in_shared : 1) * places * kPlaceBytes;
  }
};

// Where the chunks of a warp lie.
struct Kept {
  int64_t in_registers, in_shared, streamed;
};

// Nothing if the registers do not suffice.
std::optional<Kept> keep(const Shape& s, int64_t gates, int64_t shared_bytes) {
  const int64_t registers = std::min(kMostRegisters, kRegisters / (32 * s.warps) / 8 * 8);
  const int64_t side = std::min<int64_t>(s.row_tiles, s.tiles == 1 ? 4 : 2);
  const int64_t of_items = s.own_items * (3 * gates + 9), of_chunk = 4 * s.places;
  const int64_t free = registers - kOwnRegisters - 4 * s.tiles * s.row_tiles - 4 * side - of_items;
  const int64_t most_shared = (shared_limit(90) - shared_bytes) / (s.warps * s.places * kPlaceBytes);
  if (free >= s.own_chunks * of_chunk) return Kept{s.own_chunks, 0, 0};
  // Of a chunk on its way from shared memory, or of two from global memory and their addresses.
  for (const int64_t on_the_way : {of_chunk, 2 * of_chunk + 2 * s.places}) {
    if (free < on_the_way) return std::nullopt;
    const int64_t held = std::min((free - on_the_way) / of_chunk, s.own_chunks);
    const int64_t in_shared = std::min(most_shared, s.own_chunks - held),
                  streamed = s.own_chunks - held - in_shared;
    if (streamed == 0 || on_the_way > of_chunk) return Kept{held, in_shared, streamed};
  }
  return std::nullopt;
}

std::optional<RecurrentMmaPlan> place(const RecurrentWork& w, int64_t cluster, int64_t slices, int64_t rows) {
  const Shape s(w, cluster, slices, rows);
  if (s.warps > kMostWarps || slices > s.chunks) return std::nullopt;
  const int64_t fixed = s.vector_bytes(rows) + s.patch_bytes() + s.partial_bytes(slices, w.products) + 16;
  const int64_t one = s.weight_bytes(0);
  if (fixed + one > shared_limit(90)) return std::nullopt;
  const std::optional<Kept> kept = keep(s, w.products, fixed);
  if (!kept) return std::nullopt;
  const int64_t bytes = fixed + s.weight_bytes(kept->in_shared);

  const int64_t clusters = ceil_div(w.batch, rows) * w.directions;
  const int64_t at_once = std::min(clusters, clusters_at_once(cluster, w.machine));
  const double of_scheduler = number(ceil_div(s.warps, 4)), chunk_bytes = number(s.places * kPlaceBytes);
  const double of_chunk = number(2 * s.tiles * s.row_tiles) * kMmaCycles;
  const double mma =
      number(s.own_chunks) * std::max({of_scheduler * of_chunk, of_chunk + kLoadLatency, 2 * kMmaLatency});
  const double read =
      number(s.warps) * (number(s.own_chunks * rows * 64) + number(kept->in_shared) * chunk_bytes);
  const double streamed = number(s.warps * kept->streamed) * chunk_bytes;
  const double multiplied = std::max(
      {mma, read / kSharedBytes, streamed / kStreamedBytes, streamed * number(at_once * cluster) / kL2Bytes});
  const double reduced =
      slices == 1 ? 0 : kBarrier + 2 * number(s.partial_bytes(slices, w.products)) / kSharedBytes;
  const double functions = w.products == 4 ? 5 : number(w.products);  // an LSTM's cell has one more
  const int64_t busy = s.groups * std::min(slices, s.items);
  const double busiest = number(ceil_div(busy, 4) * s.own_items);
  const double cells = kCell + (busiest - 1) * functions * kFunction + busiest * kItem;
  const double exchanged =
      cluster == 1 ? kNearArrival
                   : kArrival + kOfBlock * number(cluster) + number(rows * s.columns * 2) / kSentBytes;
  const double step = multiplied + reduced + cells + exchanged;
  const double start =
      kStart + number(w.products * s.groups * s.units * w.hidden * w.element_bytes) / kLoadedBytes;
  const double rounds = number(ceil_div(clusters, at_once));
  const auto narrow = [](int64_t n) { return static_cast<int32_t>(n); };
  return RecurrentMmaPlan{narrow(cluster),
                          narrow(s.groups),
                          narrow(slices),
                          narrow(rows),
                          narrow(kept->in_registers),
                          narrow(kept->in_shared),
                          bytes,
                          rounds * step,
                          rounds * (start + step * number(w.length))};
}

}  // namespace
}  // namespace recurrent_mma

std::vector<RecurrentMmaPlan> recurrent_mma_plans(const RecurrentWork& work) {
  std::vector<RecurrentMmaPlan> plans;
  if (work.element_bytes != 2) return plans;
  for (const int64_t cluster : {1, 2, 4, 8, 16})
    for (int64_t slices = 1; slices <= recurrent_mma::kMostWarps; ++slices)
      for (const int64_t rows : {8, 16, 24, 32, 48, 64})
        if (const auto plan = recurrent_mma::place(work, cluster, slices, rows)) plans.push_back(*plan);
  std::stable_sort(plans.begin(), plans.end(),
                   [](const auto& a, const auto& b) { return a.cycles < b.cycles; });
  return plans;
}

double decomposed_step_cycles(const RecurrentWork& work) {
  const double weights =
      recurrent_mma::number(work.products * work.hidden * work.hidden * work.element_bytes);
  return static_cast<double>(work.directions) *
         (recurrent_mma::kDecomposedStep + weights / recurrent_mma::kMemoryBytes);
}

}  // namespace aicf
