#include "kernels/tile/cuda/tile_columns_shape.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace aicf {
namespace {

constexpr int kBytesAtOnce = 128;  // of a thread's loads
// Of these: in rounds; if one round has all, as many as registers that those bytes take.
constexpr int kFewAtOnce = 8, kMostAtOnce = kBytesAtOnce / 4;
constexpr int kMostHeld = 16, kFewestThreads = 128;

// Cycles, of an H100.
constexpr double kLaunchCycles = 2500, kBlockCycles = 300, kLoadCycles = 800, kAgainCycles = 200,
                 kPartCycles = 400;
constexpr double kSyncCycles = 60, kShareCycles = 30;  // of a step of a reduction; of each of its values
constexpr double kIssueCycles = 2;  // of an instruction of one thread, behind the one before
constexpr double kIndexInstructions = 10, kDivideInstructions = 20;  // of a vector; of an axis more
// Of all multiprocessors, and of one at most.
constexpr double kMemoryBytes = 1900, kCacheBytes = 3500, kOwnBytes = 40;
// Of a multiprocessor: the threads that it has at the same time, where registers suffice; its registers, and
// those of a thread beside its sums, for what it has loaded (kBytesAtOnce) and for addresses.
constexpr double kResidentThreads = 1024, kRegisters = 65536, kThreadRegisters = 52;
constexpr double kCached = 40e6, kNear = 160e3;  // bytes of the second level; of a multiprocessor's own
constexpr double kSector = 32, kBurst = 64;      // bytes
// What a memory page takes to open, in bytes that it could have given meanwhile.
constexpr double kPageBytes = 1024;
constexpr double kSegmentBytes = 8;  // what each part of a row costs beside

double ceil_of(double a, double b) { return std::ceil(a / b); }

double resident_threads(const ColumnsWork& work, const ColumnsShape& shape) {
  int lane_registers = 0;
  for (const ColumnsStage& stage : work.stages)
    lane_registers = std::max(lane_registers, stage.lane_registers);
  return std::min(kResidentThreads, kRegisters / (kThreadRegisters + lane_registers * shape.vector));
}

// Blocks of a launch.
struct Blocks {
  double count, multiprocessors, on_one, at_once;  // on a multiprocessor; of these at the same time

  // A launch begins while the one before it ends, and its blocks come to where that ends first: where they
  // would leave room, as many to one multiprocessor as fit there.
  Blocks(const ColumnsWork& work, double blocks, const ColumnsShape& shape)
      : count(blocks),
        multiprocessors(static_cast<double>(work.machine.multiprocessors)),
        at_once(std::max(1.0, std::floor(resident_threads(work, shape) / shape.threads))) {
    on_one = std::max(ceil_of(blocks, multiprocessors), std::min(at_once, blocks));
  }
  // Blocks behind one another where no more fit; the last ones fill half of the machine.
  double waves() const { return on_one <= at_once ? 1 : count / (multiprocessors * at_once) + 0.5; }
  double resident() const { return std::min(on_one, at_once); }
  // Cycles in which all blocks move so many bytes each, at `rate` of all multiprocessors.
  double moving(double bytes, double rate) const {
    return bytes * std::max(count / rate, on_one / kOwnBytes);
  }
};

struct Model {
  const ColumnsWork& work;
  const ColumnsShape& shape;

  double vectors() const { return work.places * ceil_of(work.columns, shape.vector); }
  double chunk() const { return ceil_of(work.length, shape.splits); }
  int asked(const ColumnsStage& stage) const {
    return (stage.load_bytes + stage.along_loads) * shape.vector + stage.repeat_bytes;
  }
  bool holds() const { return held_elements(work, shape) > 0; }
  double rounds(const ColumnsStage& stage, double elements) const {
    if (holds()) return stage.reads ? 1 : 0;
    return asked(stage) == 0 ? 0 : ceil_of(elements, vectors_at_once(asked(stage), elements));
  }
  double elements() const { return thread_elements(work, shape); }
  double steps(int deep) const {
    return (std::bit_width(static_cast<unsigned>(deep)) + 1) * (kSyncCycles + kShareCycles * shape.vector);
  }
  double reduction(const ColumnsStage& stage, int deep) const {
    return deep == 1 ? 0 : stage.reductions * steps(deep);
  }

  // Of a block, by itself.
  double latency(const ColumnsStage& stage) const {
    if (!stage.walks) return 0;
    const double instructions = shape.vector * stage.instructions + overhead();
    return rounds(stage, elements()) * (stage.reads ? kLoadCycles : kAgainCycles) +
           elements() * instructions * kIssueCycles + reduction(stage, shape.deep());
  }
  double overhead() const { return kIndexInstructions + kDivideInstructions * (work.inner_axes - 1); }
  // Of all blocks, of what they share.
  double share(const ColumnsStage& stage, const Blocks& blocks) const {
    if (!stage.walks) return 0;
    const double lanes = shape.across * shape.vector, of_block = lanes * chunk();
    // A block of some of the columns reads parts of rows: whole sectors, and whole bursts of memory.
    const auto whole = [&](double bytes, double unit) {
      return lanes >= work.columns || bytes == 0
                 ? bytes
                 : (std::ceil(lanes * bytes / unit) * unit + kSegmentBytes) / lanes;
    };
    // Of a row, the threads of a warp that are one behind the other access neighbours.
    const int behind = std::max(1, std::min(32 / shape.across, shape.deep()));
    const auto along = [&](double bytes) { return std::ceil(behind * bytes / kSector) * kSector / behind; };
    const double turned = along(stage.along_loads) + along(stage.along_stores);
    // Rows of a place that are read in turns open pages again.
    double pages = 1;
    if (rounds(stage, elements()) > 1 && stage.load_bytes > 0) {
      const double run =
          vectors_at_once(asked(stage), elements()) * shape.deep() * work.columns * stage.load_bytes;
      pages = run / (run + kPageBytes);
    }
    const double again = holds() ? 0 : stage.load_bytes - stage.first_bytes,
                 all = of_block * stage.load_bytes;
    const bool near = all * blocks.resident() <= kNear;
    const bool cached = all * std::min(blocks.count, blocks.at_once * blocks.multiprocessors) <= kCached;
    const double memory = whole(stage.first_bytes, kBurst) + whole(stage.store_bytes, kBurst) +
                          (cached ? 0 : whole(again, kBurst)) + stage.along_loads + stage.along_stores,
                 cache = whole(stage.first_bytes, kSector) + whole(stage.store_bytes, kSector) +
                         (near ? 0 : whole(again, kSector)) + turned;
    const double instructions =
        of_block * (stage.instructions + overhead() / shape.vector) / (128 / kIssueCycles);
    return std::max({blocks.moving(of_block * memory / pages, kMemoryBytes),
                     blocks.moving(of_block * cache, kCacheBytes), blocks.on_one * instructions});
  }
  double parts(const ColumnsStage& stage, int across, const Blocks& blocks) const {
    if (shape.splits == 1 || stage.partials == 0) return 0;
    const int deep = shape.threads / across;
    const double bytes = 4.0 * stage.partials * shape.splits * across * shape.vector;
    return blocks.waves() * (ceil_of(shape.splits, 4.0 * deep) * kPartCycles + stage.partials * steps(deep)) +
           blocks.moving(bytes, kCacheBytes);
  }

  double together() const {
    const Blocks blocks(work, ceil_of(vectors(), shape.across), shape);
    double by_itself = kBlockCycles, shared = 0;
    for (const ColumnsStage& stage : work.stages) by_itself += latency(stage), shared += share(stage, blocks);
    return kLaunchCycles + blocks.waves() * by_itself + shared;
  }
  double apart() const {
    double total = 0;
    for (const ColumnsStage& stage : work.stages) {
      const int across = stage.walks ? shape.across : combining_across(shape);
      const Blocks blocks(work, ceil_of(vectors(), across) * (stage.walks ? shape.splits : 1), shape);
      total += kLaunchCycles + blocks.waves() * (kBlockCycles + latency(stage)) + share(stage, blocks) +
               parts(stage, across, blocks);
    }
    return total;
  }
};

}  // namespace

int vectors_at_once(int load_bytes, double elements) {
  if (load_bytes == 0) return 1;
  const bool one_round = elements <= std::min(kBytesAtOnce / load_bytes, kMostAtOnce);
  if (one_round) return std::max(1, static_cast<int>(elements));
  return std::clamp(kBytesAtOnce / load_bytes, 1, kFewAtOnce);
}

double thread_elements(const ColumnsWork& work, const ColumnsShape& shape) {
  return ceil_of(ceil_of(work.length, shape.splits), shape.deep());
}

int held_elements(const ColumnsWork& work, const ColumnsShape& shape) {
  const double elements = ceil_of(work.length, shape.deep()),
               bytes = elements * (work.column_bytes * shape.vector + work.repeat_bytes);
  const auto walks = std::count_if(work.stages.begin(), work.stages.end(),
                                   [](const ColumnsStage& stage) { return stage.walks; });
  const bool holds = shape.splits == 1 && walks > 1 && elements <= kMostHeld && bytes <= kBytesAtOnce;
  return holds ? static_cast<int>(elements) : 0;
}

double columns_cycles(const ColumnsWork& work, const ColumnsShape& shape) {
  const Model model{work, shape};
  return shape.splits == 1 ? model.together() : model.apart();
}

ColumnsShape columns_shape(const ColumnsWork& work) {
  ColumnsShape best;
  double least = INFINITY;
  const auto note = [&](const ColumnsShape& shape) {
    const double cycles = columns_cycles(work, shape);
    if (cycles < least) least = cycles, best = shape;
  };
  for (int vector = work.most_vector; vector >= 1; vector /= 2)
    for (int threads = kFewestThreads; threads <= work.most_threads; threads *= 2)
      for (int across = threads; across >= 1; across /= 2) {
        const double vectors = work.places * ceil_of(work.columns, vector);
        const int deep = threads / across;
        // Threads without columns, or without elements where others could have columns.
        if ((across > 1 && across / 2 >= vectors) || (deep / 2 >= work.length && across < vectors)) continue;
        note({vector, threads, across, 1});
        const double groups = ceil_of(vectors, across);
        if (work.stages.size() == 1) continue;
        // As many as fill rounds: where few do, what follows reads fewer parts.
        const auto most = static_cast<int64_t>(std::floor(work.length / deep)),
                   rounds = work.machine.filling_blocks();
        for (int64_t blocks = work.machine.multiprocessors; blocks <= rounds;
             blocks += work.machine.multiprocessors) {
          const int64_t splits = std::min(blocks / static_cast<int64_t>(groups), most);
          if (splits > 1) note({vector, threads, across, static_cast<int>(splits)});
        }
      }
  return best;
}

}  // namespace aicf
