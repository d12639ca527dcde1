#include "kernels/matmul/cuda/matmul_cycles.h"

#include <algorithm>
#include <cmath>

#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"

namespace aicf {
namespace {

// Clock cycles of an H100 and bytes per cycle, fitted to measurements of the tiles below; only ratios matter.
constexpr double kStart = 3100;               // launch, first loads, last stores
constexpr double kAlone = 100;                //   of a block that leaves the next launch's no room beside it
constexpr double kMemoryBytes = 1750;         // device memory, whole chip
constexpr double kL2Bytes = 7000;             // L2 cache, whole chip, of blocks at one k,
constexpr double kStreamL2Bytes = 5500;       //   or of blocks that each are at another (stream-K)
constexpr double kL2Capacity = 45e6;          // of operands that multiprocessors of both its halves read
constexpr double kSharedBytesPerCycle = 128;  // shared memory, one multiprocessor
constexpr double kLoadLatency = 2700;    // from a load's start until its stage is full, while memory is busy,
constexpr double kIdleLatency = 1600;    //   or while hardly a block asks it
constexpr double kSimtLatency = 1000;    // of a stage of simt.cuh
constexpr double kSingleLatency = 2000;  // and of single.cuh
// Of simt.cuh, in multiply-adds of a thread: an element read of shared memory, and one loaded to it.
constexpr double kSimtRead = 0.2, kSimtLoad = 18;
constexpr double kSimtVectorLoad = 16;  // of four in one copy
constexpr double kRoundedRow = 1.05;    // of x in wgmma_tf32.cuh, of a step
// Multiply-adds of one of its warps per cycle if it never waited, and the wait for each k, in multiply-adds
// of a thread.
constexpr double kSimtWarp = 29, kSimtWait = 30;
constexpr double kStepOverhead = 50;                     // barriers between stages
constexpr double kTf32Step = 1.75, kTf32Latency = 4000;  // of mma.cuh, which rounds its operands
// Of loads of rows that are no whole lines: of one multiprocessor, of all from the L2 cache, which the copy
// engine asks for both lines of a row, and from memory; of results in such rows.
constexpr double kBrokenLines = 1.45, kBrokenL2 = 2.2, kBrokenMemory = 1.25, kBrokenResult = 1.2;
// Of results that are stored one or two at a time (store_narrow_rows).
constexpr double kNarrowResult = 2.5;
// Of mma.cuh's loads of 32 single elements, of a block alone and of several, and of one warp, which waits for
// its own; of a result that is stored by itself.
constexpr double kFetch = 12.5, kSharedFetch = 8, kFetchWarp = 62, kScatteredResult = 0.95;
// The same of whole pieces of 16 bytes that start anywhere, and the wait for a step's, which are one step
// ahead. The order of ways without a workspace was fitted to estimates with the numbers above
// (select/measured_order.h).
constexpr double kPieceFetch = 2.5, kFetchLatency = 1500;
constexpr double kSharedGain =
    1.25;  // of blocks of wgmma.cuh that share a multiprocessor; others gain nothing
// Of a result in the epilogue; half where another block can multiply meanwhile.
constexpr double kResultCycles = 0.08, kSmallResultCycles = 0.4;
constexpr double kPingPongCycles = 0.10;      // where the products of another warpgroup go on
constexpr double kEpilogueWarpsCycles = 0.2;  // by the warps that only store,
constexpr double kThreeWarpsCycles = 0.6;     //   where they are three
// Of a byte that an optimizer's update moves in an epilogue, one warp: with three of them that store, tiles
// of 128 x 256 took 27 us longer than the products of K = 4096.
constexpr double kByteCycles = 0.9;
constexpr double kOperandWait = 1000;  // of a warp for operands, behind what the copy engine has asked for
constexpr double kBehindMemory = 0.1;  // share of other work that adds to the time of the memory,
constexpr double kReduceScatterBehindMemory = 0.3;  //   where blocks with whole tiles end together
constexpr double kClusterBase = 300;                // barriers of a cluster,
constexpr double kClusterSum = 2400;                //   where all multiprocessors have one,
constexpr double kClusterPart = 285;                //   reads of each part of a cluster's sum
constexpr double kClusterResult = 0.35;             //   and of each result,
constexpr double kReduceScatterResult =
    0.05;                                //   of which each block adds its own chunks (wgmma_cluster.cuh);
constexpr double kFewClusterSum = 1200;  // of few rows (few_rows.cuh), whose blocks need no barrier,
constexpr double kFewClusterPart = 50;   //   of each part
constexpr double kSimtClusterSum = 1200, kSimtClusterPart = 285,
                 kSimtClusterResult = 0.25;  //   the groups of simt.cuh are smaller
constexpr double kSimtResult = 0.4;          // of simt.cuh, a result in the epilogue
constexpr double kMostSharing = 1.5;         //   more blocks wait together
constexpr double kMulticastStart = 500;      // blocks that begin and end together
constexpr double kWorkspaceSum = 6000;       // a second launch,
constexpr double kWorkspaceBytes = 3000;     //   of parts that are written and read per cycle, whole chip
constexpr double kRowExchange = 600;  // of a statistic of rows, for every block of a cluster but the first,
constexpr double kRowResult = 0.05;   //   and of each result

// Of sliced.cuh: the multiply-adds of one multiprocessor per cycle with warps enough, in f32 and tf32.
constexpr double kSlicedSimt = 61, kSlicedTf32 = 170, kWarpsEnough = 4;
constexpr double kSharedTf32 = 110, kShortTf32 = 250;      // where blocks share it; of four slices
constexpr double kSliceSum = 60, kSlicedResult = 0.15;     // a slice's sums; a result in the epilogue
constexpr double kSlicedBytes = 60;                        // from the L2 cache, one multiprocessor per cycle
constexpr double kSlicedCluster = 300, kSlicedPart = 150;  // blocks that send their parts; and each part
constexpr double kSlicedX = 60, kSlicedY = 60;             // of K in a slice beyond the least, if by elements
constexpr double kSlicedSimtWave = 2700, kSlicedAcross = 60;  // of simt.cuh: a round but the first; across K

// Measured in long products and in short ones with few blocks.
double wgmma_step_cycles(const MatmulWay& c) {
  switch (c.block_m * 1000 + c.block_n) {
    case 256128:
      return 1110;
    case 128256:
      return has_epilogue_warps(c) ? 1077 : 1110;
    case 128192:
      return has_epilogue_warps(c) && !keeps_x_stationary(c) ? 870 : 850;  // with fewer stages
    case 128128:
      return is_ping_pong(c) ? 630 : 700;
    case 128096:
      return 600;
    case 128064:
      return 480;
    case 64064:
      return 300;
    default:
      return 230;
  }
}

// Multiply-adds of a multiprocessor per cycle by simt.cuh where it has as many blocks as fit: 128, less what
// threads read and load for them.
double simt_rate(const MatmulSizes& sizes, const MatmulWay& c) {
  const ThreadTile thread = simt_thread(c);
  const double results = static_cast<double>(thread.m) * thread.n;
  const auto load = [&](int extent, bool along_k, bool fetched) {
    const bool single = simt_load(c, along_k, sizes.f32 && !fetched) == SimtLoad::element;
    return (single ? kSimtLoad : kSimtVectorLoad) * extent / simt_threads(c);  // for each k
  };
  const double loads =
      load(c.block_m, sizes.x_along_k, sizes.x_fetched) + load(c.block_n, sizes.y_along_k, sizes.y_fetched);
  return 128 / (1 + (kSimtRead * (thread.m + thread.n) + loads) / results);
}

// Of one of its warps, where there are too few to hide what each waits for.
double simt_warp_rate(const MatmulWay& c) {
  const ThreadTile thread = simt_thread(c);
  const double results = static_cast<double>(thread.m) * thread.n;
  return kSimtWarp * results / (results + kSimtWait);
}

// Cycles of a step of one block that has its multiprocessor for itself.
double step_cycles(const MatmulSizes& sizes, const MatmulWay& c) {
  // In tf32 rows of x are rounded on their way through registers (wgmma_tf32.cuh).
  if (is_wgmma(c)) return wgmma_step_cycles(c) + (sizes.f32 ? kRoundedRow * c.block_m : 0);
  const double results = static_cast<double>(c.block_m) * c.block_n;
  // Each of eight warps reads one and a half lines of shared memory for an element of K.
  if (c.unit == MatmulUnit::single) return 8 * kStepDepth * 1.5;
  if (family_of(c) == MatmulFamily::simt) return results * kStepDepth / simt_rate(sizes, c);
  // Each warp reads its rows and columns from shared memory.
  const WarpTile warp = warp_tile(c, sizes.dual);
  const double reads = results / warp.m / warp.n * (warp.m + warp.n) + c.block_m + c.block_n;
  return std::max(results * kStepDepth / 1300, reads * kStepDepth * 2 / kSharedBytesPerCycle) + kStepOverhead;
}

// Blocks of a multiprocessor at a time.
int64_t resident_blocks(const MatmulWay& c) {
  return has_tensor_maps(c)                  ? c.occupancy
         : family_of(c) == MatmulFamily::mma ? 2
         : c.unit == MatmulUnit::single      ? 8
                                             : simt_blocks(c);
}

// What a step loads, in the time of as many bytes of whole lines. Rows beyond x's are not loaded, which
// counts where loads and not the memory set the pace.
double loaded_bytes(const MatmulSizes& sizes, const MatmulWay& c, double broken) {
  constexpr int64_t kFewRows = 64;
  const bool is_less = sizes.x_along_k && sizes.m > kFewRows && sizes.m < c.block_m;
  const double rows = keeps_x_stationary(c) ? 0 : static_cast<double>(is_less ? sizes.m : c.block_m);
  const double columns = static_cast<double>(c.block_n) / multicast_blocks(c);
  return (rows * (sizes.x_lines ? 1 : broken) + columns * (sizes.y_lines ? 1 : broken)) * kStepDepth * 2;
}

// Blocks that the fullest multiprocessor has, of so many that run at a time. Clusters of mma.cuh, whose
// blocks are small, come to lie less evenly.
double most_blocks(const MatmulWay& c, double mean) {
  constexpr double kUneven = 1.2;
  if (mean <= 1) return 1;
  return std::ceil(mean * (family_of(c) == MatmulFamily::mma && splits_in_cluster(c) ? kUneven : 1));
}

// `mean`: blocks of a multiprocessor.
double load_latency(const MatmulSizes& sizes, const MatmulWay& c, double mean) {
  if (c.unit == MatmulUnit::single) return kSingleLatency;
  if (family_of(c) == MatmulFamily::simt)
    return kSimtLatency * kStepDepth / (static_cast<double>(kSimtDepth) * (c.stages - 1));
  const double halves = kIdleLatency + (kLoadLatency - kIdleLatency) * std::min(1.0, mean);
  const double all = family_of(c) == MatmulFamily::mma && sizes.f32 ? kTf32Latency : halves;
  return all / (c.stages + (keeps_x_stationary(c) ? 1 : 0));
}

// Of a step whose operands come element by element, of so many blocks of a multiprocessor.
double fetch_cycles(const MatmulSizes& sizes, const MatmulWay& c, double blocks) {
  if (family_of(c) != MatmulFamily::mma) return 0;
  const double rows = (sizes.x_fetched ? c.block_m : 0) + (sizes.y_fetched ? c.block_n : 0);
  const double loads = rows * kStepDepth / (sizes.f32 ? 64 : 32);
  if (splits_in_workspace(c)) return rows > 0 ? std::max(loads * blocks * kPieceFetch, kFetchLatency) : 0;
  const WarpTile warp = warp_tile(c, sizes.dual);
  const int warps = c.block_m / warp.m * (c.block_n / warp.n);
  return std::max(loads * blocks * (blocks > 1 ? kSharedFetch : kFetch), loads / warps * kFetchWarp);
}

// What the memory moves.
double touched_bytes(const MatmulSizes& sizes, const MatmulWay& c) {
  const auto m = static_cast<double>(sizes.m), k = static_cast<double>(sizes.k),
             n = static_cast<double>(sizes.n);
  const double broken = is_wgmma(c) ? kBrokenMemory : 1;
  return static_cast<double>(sizes.batch) * 2 *
         (m * k / sizes.repeats * (sizes.x_lines ? 1 : broken) + k * n * (sizes.y_lines ? 1 : broken) +
          m * n);
}

// A step of so many blocks that run at a time: those of one multiprocessor share what it can load.
double shared_step_cycles(const MatmulSizes& sizes, const MatmulWay& c, int64_t running) {
  const double mean =
      static_cast<double>(running) / static_cast<double>(used_multiprocessors(c, sizes.machine));
  const double most = most_blocks(c, mean), loaded = loaded_bytes(sizes, c, kBrokenLines);
  const double from_l2 = is_wgmma(c) ? loaded_bytes(sizes, c, kBrokenL2) : loaded;
  if (c.unit == MatmulUnit::simt) {
    const double step = step_cycles(sizes, c), warps = simt_threads(c) / 32;
    const double alone = step * std::max(1.0, simt_rate(sizes, c) / (simt_warp_rate(c) * warps));
    const double from_l2_all = 2 * loaded * static_cast<double>(running) / kL2Bytes;  // f32
    return std::max({step * most, alone, from_l2_all, load_latency(sizes, c, mean)});
  }
  // Few rows wait for the memory, whichever multiprocessor asks it.
  const double gain = most > 1 && is_wgmma(c) ? kSharedGain : 1;
  const double sharing = keeps_x(sizes, c) ? std::max(1.0, mean) : most / gain;
  // Steps of wgmma take as long as their loads, of mma.cuh in tf32 longer by what rounds the operands.
  // Of whole lines the copy engine keeps pace with wgmma: what a multicast saves there was no gain.
  const double least = multicast_blocks(c) > 1 ? 1 : 0;
  const double part = is_wgmma(c) && !keeps_x_stationary(c)
                          ? std::max(least, loaded / ((c.block_m + c.block_n) * kStepDepth * 2))
                      : family_of(c) == MatmulFamily::mma && sizes.f32 ? kTf32Step
                                                                       : 1;
  return std::max({step_cycles(sizes, c) * part * sharing, from_l2 * static_cast<double>(running) / kL2Bytes,
                   load_latency(sizes, c, mean), fetch_cycles(sizes, c, most)});
}

double sliced_cycles(const MatmulSizes& sizes, const MatmulWay& c) {
  const int64_t blocks = tile_count(sizes, c) * split_parts(c);
  const bool simt = family_of(c) == MatmulFamily::simt;
  const int64_t by_registers = simt ? sliced_min_blocks(c) : 48 / c.slices;
  const int64_t occupancy =
      std::max<int64_t>(1, std::min<int64_t>(kPipelineBytes / sliced_bytes(c), by_registers));
  const double waves =
      static_cast<double>(ceil_div(blocks, used_multiprocessors(c, sizes.machine) * occupancy));
  const auto sharing = static_cast<double>(ceil_div(blocks, sizes.machine.multiprocessors));  // in all waves
  const double depth = static_cast<double>(sliced_depth(sizes, family_of(c))) / split_parts(c);
  const double results = static_cast<double>(c.block_m) * c.block_n;
  const double full = simt            ? kSlicedSimt
                      : c.slices == 4 ? kShortTf32
                      : sharing > 1   ? kSharedTf32
                                      : kSlicedTf32;
  const double warps = std::min(sharing, static_cast<double>(occupancy)) * c.slices;
  const double products = sharing * results * depth / (full * std::min(1.0, warps / kWarpsEnough));
  const double loads = sharing * (c.block_m + c.block_n) * depth * 4 / kSlicedBytes;
  double cycles = kStart + std::max(products, loads) + waves * c.slices * kSliceSum +
                  sharing * results * kSlicedResult / split_parts(c);
  if (split_parts(c) > 1) cycles += waves * (kSlicedCluster + kSlicedPart * split_parts(c));
  cycles += (waves - 1) * (simt ? kSlicedSimtWave : kLoadLatency);  // a block has one tile
  // Rows that do not start at 16 bytes.
  const double waited = std::max(0.0, depth / c.slices - static_cast<double>(kLeastSlice));
  const double x = simt && !sizes.x_along_k ? kSlicedAcross : kSlicedX,
               y = simt && !sizes.y_along_k ? kSlicedAcross : kSlicedY;
  return cycles + ((sizes.x_fetched ? x : 0) + (sizes.y_fetched ? y : 0)) * sharing * waited;
}

// Of many small blocks, of which so many are resident: what a multiprocessor issues for all of them, `work`
// for each, or what they wait one after another for their loads and stores and for `own`, what a warp takes
// alone, or the time of the memory.
double small_blocks_cycles(const MatmulSizes& sizes, const MatmulWay& c, double work, double resident,
                           double own = 0) {
  constexpr double kBlockCycles = 300, kLatency = 4000;
  const double bytes = sizes.f32 ? 4 : 2;
  const auto m = static_cast<double>(sizes.m), n = static_cast<double>(sizes.n),
             k = static_cast<double>(sizes.k);
  const auto blocks = static_cast<double>(
      ceil_div(tile_count(sizes, c), sizes.machine.multiprocessors));  // of one multiprocessor
  // Those of the last round have more of the multiprocessor.
  const double mean =
      static_cast<double>(tile_count(sizes, c)) / static_cast<double>(sizes.machine.multiprocessors);
  const double issued = blocks * (work + kBlockCycles) + kLatency;
  const double waited = std::ceil(blocks / std::max(1.0, std::floor(resident))) * kLatency +
                        std::max(1.0, mean / std::max(1.0, std::floor(resident))) * own;
  const double touched = static_cast<double>(sizes.batch) * bytes * (m * k / sizes.repeats + k * n + m * n);
  return kStart + std::max({issued, waited, touched / kMemoryBytes + kBehindMemory * issued});
}

// A warp issues 16 multiply-adds for each k and reads four lines of shared memory, some of them twice; a
// dozen instructions load or store a piece of 16 bytes of each of its lanes. Numbers are counted from the
// code, those of the depth and of single elements then raised to what an H200 took for 49 x 64 x 49, 32 x 32
// x 32 and 8 x 8 x 8.
double batched_cycles(const MatmulSizes& sizes, const MatmulWay& c) {
  constexpr double kDepthCycles = 10, kPieceCycles = 3, kElementCycles = 5;
  const double vector = sizes.f32 ? 4 : 8, threads = batched_threads(c);
  const auto m = static_cast<double>(sizes.m), n = static_cast<double>(sizes.n),
             k = static_cast<double>(sizes.k);
  const auto moved = [](double elements, bool apart, double piece) {
    return elements / 32 * (apart ? kElementCycles : kPieceCycles / piece);
  };
  const double moves = c.batches * (moved(m * k, sizes.x_fetched, vector) +
                                    moved(n * k, sizes.y_fetched, vector) + moved(m * n, sizes.scattered, 4));
  const auto shared = static_cast<double>(batched_bytes(c, sizes.k, sizes.x_along_k, sizes.y_along_k, 4));
  const double resident =
      std::min(static_cast<double>(batched_min_blocks(c, 4)), static_cast<double>(kPipelineBytes) / shared);
  return small_blocks_cycles(sizes, c, threads / 32 * k * kDepthCycles + moves, resident);
}

// Counted from the code: 60 instructions load a piece of 16 bytes that starts anywhere for each lane of a
// warp, 20 store a row of 32 columns.
double all_of_k_cycles(const MatmulSizes& sizes, const MatmulWay& c) {
  constexpr double kFetchedPiece = 15, kCopiedPiece = 3, kScattered = 0.25, kStored = 0.1;
  const auto loads = [&](int extent, bool fetched) {
    return static_cast<double>(extent) * kStepDepth / 8 / 32 * (fetched ? kFetchedPiece : kCopiedPiece);
  };
  const double results = static_cast<double>(c.block_m) * c.block_n;
  const double work = step_cycles(sizes, c) + loads(c.block_m, sizes.x_fetched) +
                      loads(c.block_n, sizes.y_fetched) + results * (sizes.scattered ? kScattered : kStored);
  return small_blocks_cycles(sizes, c, work, mma_min_blocks(c, sizes.x_fetched || sizes.y_fetched));
}

// Counted from the code: a fragment's word takes four instructions, two of them reads of shared memory, a
// piece of 16 bytes that is copied six, a result that is stored by itself about as many as in batched.cuh. A
// warp alone waits for most of its instructions.
double warp_products_cycles(const MatmulSizes& sizes, const MatmulWay& c) {
  constexpr double kWord = 4, kProduct = 2, kPiece = 6, kSchedulers = 4;
  constexpr double kScatteredRow = 25, kStoredRow = 8;  // of 32 columns
  constexpr double kOwnCycles = 5;                      // of an instruction
  const double rows = c.block_m / 16.0, columns = c.block_n / 8.0,
               steps = static_cast<double>(ceil_div(sizes.k, 16));
  const double words = steps * (rows * 4 + columns * 2), products = steps * rows * columns;
  const double pieces = static_cast<double>((sizes.m + sizes.n) * sizes.k) / 8 / 32;
  const double stored = static_cast<double>(sizes.m) * std::ceil(static_cast<double>(sizes.n) / 32) *
                        (!sizes.scattered   ? kStoredRow
                         : sizes.n % 2 == 0 ? kScatteredRow / 2  // in pairs
                                            : kScatteredRow);
  const double of_warp = words * kWord + products * kProduct + pieces * kPiece + stored;
  constexpr double kThreads = 2048, kRegisters = 65536, kOther = 48;  // of a thread, beside its results
  const double threads = 32.0 * c.batches;
  const double registers = kOther + rows * 4 + rows * columns * 4;
  const auto bytes = static_cast<double>(warp_products_bytes(c, warp_products_depth(sizes.k), {}));
  const double resident = std::min(
      {static_cast<double>(kPipelineBytes) / bytes, kThreads / threads, kRegisters / (threads * registers)});
  return small_blocks_cycles(sizes, c, of_warp * c.batches / kSchedulers, resident, of_warp * kOwnCycles);
}

// Of direct.cuh: rounds of loads that a warp waits for, of all its blocks one after another; or what is
// loaded, x by every block; or the instructions of steps of 32 of k.
double direct_cycles(const MatmulSizes& sizes, const MatmulWay& c) {
  constexpr double kRegisters = 65536, kOfThread = 120, kSum = 900, kStep = 24, kPiece = 30, kSchedulers = 4;
  constexpr int64_t kDepth = 32;
  const bool fetched = sizes.x_fetched || sizes.y_fetched;
  const int64_t ahead = (c.block_m == 8 ? 8 : 6) / (fetched ? 2 : 1), steps = ceil_div(sizes.k, kDepth);
  const auto tiles = static_cast<double>(tile_count(sizes, c)),
             units = static_cast<double>(sizes.machine.multiprocessors),
             all_steps = static_cast<double>(steps);
  const double resident = std::max(1.0, std::floor(kRegisters / (kOfThread * 32 * c.slices)));
  const double waves = std::ceil(tiles / (units * resident));
  const double rounds = std::ceil(std::ceil(all_steps / c.slices) / static_cast<double>(ahead));
  const double waited = waves * (rounds * kIdleLatency + kSum);
  const double pieces = (sizes.x_fetched ? c.block_m / 8.0 : 0) + (sizes.y_fetched ? 1 : 0);
  const double issued =
      std::ceil(tiles / units) * all_steps * (kStep + pieces * kPiece) / kSchedulers + kIdleLatency;
  const double loaded = tiles * static_cast<double>((sizes.m + c.block_n) * sizes.k) * 2 / kL2Bytes;
  const double rest = std::max({waited, issued, loaded});
  return kStart + std::max(rest, touched_bytes(sizes, c) / kMemoryBytes + kBehindMemory * rest);
}

// Cycles of a stage of wgmma_tf32x3.cuh, 32 of k. Matrix units take 12 for a column, and shared memory, from
// which they read y for each product, 10 and those of x: with what waits between the stages it sets the pace.
double tf32x3_step_cycles(const MatmulSizes& sizes, const MatmulWay& c) {
  constexpr double kColumn = 12, kRows = 256, kWaits = 1.25, kTurned = 1;  // of a column that lies along n
  return kWaits * (kRows + (kColumn + (sizes.y_along_k ? 0 : kTurned)) * c.block_n);
}

double tf32x3_cycles(const MatmulSizes& sizes, const MatmulWay& c) {
  constexpr double kFloatBytes = 4, kDepth = 32,
                   kFirst = 2000;  // of a block's first stage: it is split alone
  const int64_t blocks = tile_count(sizes, c) * split_parts(c), most = concurrent_blocks(c, sizes.machine);
  const auto m = static_cast<double>(sizes.m), k = static_cast<double>(sizes.k),
             n = static_cast<double>(sizes.n);
  const auto waves = static_cast<double>(ceil_div(blocks, most)),
             running = static_cast<double>(std::min(blocks, most));
  const double results = static_cast<double>(c.block_m) * c.block_n;
  const double loaded = (c.block_m + c.block_n) * kDepth * kFloatBytes * running;
  const double step = std::max(tf32x3_step_cycles(sizes, c), loaded / kL2Bytes);
  const double steps = std::ceil(k / kDepth / split_parts(c));
  double cycles =
      waves *
          (steps * step +
           (splits_in_cluster(c) ? 0 : results * kResultCycles * (sizes.n % 4 != 0 ? kNarrowResult : 1))) +
      kFirst;
  const double touched = static_cast<double>(sizes.batch) * kFloatBytes * (m * k + k * n + m * n);
  cycles = std::max(cycles, touched / kMemoryBytes + kBehindMemory * cycles);
  if (splits_in_cluster(c)) {
    const double mean = running / static_cast<double>(sizes.machine.multiprocessors);
    const double sum =
        kClusterBase + kClusterSum * mean + kClusterPart * split_parts(c) + kClusterResult * results;
    cycles += waves * sum + (waves - 1) * (kStart + kLoadLatency + kFirst);
  }
  return kStart + kAlone + cycles;
}

// A second launch, and so many sums in f32 that are written and read.
double workspace_cycles(double sums) { return kWorkspaceSum + sums * 4 / kWorkspaceBytes; }

// What the memory moves for blocks that are at different k at a time: of operands beyond the L2 cache, what
// one block has read is gone in part when another reads it.
double stream_touched_bytes(const MatmulSizes& sizes, const MatmulWay& c, double steps) {
  const double once = touched_bytes(sizes, c), loaded = steps * loaded_bytes(sizes, c, kBrokenMemory);
  const double lost = std::max(0.0, 1 - kL2Capacity / once);
  return once + std::max(0.0, loaded - once) * lost;
}

// Stream-K: as many steps to every block, of one tile after another.
double stream_cycles(const MatmulSizes& sizes, const MatmulWay& c) {
  const int64_t steps = ceil_div(sizes.k, kStepDepth), tiles = tile_count(sizes, c);
  const int64_t blocks = std::min<int64_t>(stream_blocks(c), tiles * steps);
  if (blocks == 0) return kStart;
  const int64_t share = ceil_div(tiles * steps, blocks);
  const double results = static_cast<double>(c.block_m) * c.block_n;
  const auto parts = static_cast<double>(ceil_div(share, steps) + 1);  // of a block
  const double step =
      std::max(shared_step_cycles(sizes, c, blocks),
               loaded_bytes(sizes, c, kBrokenL2) * static_cast<double>(blocks) / kStreamL2Bytes);
  const double rest = static_cast<double>(share) * step + parts * results * kResultCycles;
  const double touched = stream_touched_bytes(sizes, c, static_cast<double>(tiles * steps));
  return kStart + kAlone + std::max(rest, touched / kMemoryBytes + kReduceScatterBehindMemory * rest) +
         workspace_cycles(static_cast<double>(blocks + tiles) * results);
}

}  // namespace

int64_t used_multiprocessors(const MatmulWay& c, const CudaMachine& machine) {
  const int blocks = row_blocks(c) > 0      ? row_blocks(c)
                     : splits_in_cluster(c) ? split_parts(c)
                                            : multicast_blocks(c);
  if (blocks < 3) return machine.multiprocessors;
  // Of 128 x 64 tiles 96 blocks in clusters of three ran at once, 120 took twice as long.
  // Small blocks find places beside others.
  const int used = blocks == 3 ? (has_tensor_maps(c) ? 96 : 126) : blocks == 4 ? 120 : 112;
  return used * machine.multiprocessors / kMultiprocessors;
}

int64_t concurrent_blocks(const MatmulWay& c, const CudaMachine& machine) {
  return used_multiprocessors(c, machine) * resident_blocks(c);
}

double matmul_cycles(const MatmulSizes& sizes, const MatmulWay& c) {
  if (is_sliced(c)) return sliced_cycles(sizes, c);
  if (is_direct(c)) return direct_cycles(sizes, c);
  if (stream_blocks(c) > 0) return stream_cycles(sizes, c);
  if (is_tf32x3(c)) return tf32x3_cycles(sizes, c);
  if (is_batched(c)) return batched_cycles(sizes, c);
  if (c.unit == MatmulUnit::warp) return warp_products_cycles(sizes, c);
  if (loads_all_of_k(c)) return all_of_k_cycles(sizes, c);
  const int64_t blocks = tile_count(sizes, c) * split_parts(c), most = concurrent_blocks(c, sizes.machine);
  const int64_t sharing_row = blocks_of_row(sizes, c);
  const int64_t rounds = sharing_row > 0 ? ceil_div(ceil_div(sizes.n, c.block_n), sharing_row)
                                         : std::max<int64_t>(1, ceil_div(blocks, most));
  const auto waves = static_cast<double>(rounds);
  const int64_t running = std::min(blocks, most);
  const int64_t last = sharing_row > 0 ? running : blocks - (rounds - 1) * most;  // of the last wave
  const double mean = static_cast<double>(running) / static_cast<double>(sizes.machine.multiprocessors);
  const bool scattered = sizes.scattered && family_of(c) == MatmulFamily::mma;
  const double sharing = rounds > 1 || scattered ? std::ceil(mean) : std::max(1.0, mean);
  const double steps = static_cast<double>(ceil_div(ceil_div(sizes.k, kStepDepth), split_parts(c)));
  const double results = static_cast<double>(c.block_m) * c.block_n;
  const bool large = is_wgmma(c) && c.occupancy == 1;
  const bool simt = family_of(c) == MatmulFamily::simt;
  const double result_cycles = scattered         ? kScatteredResult
                               : simt            ? kSimtResult
                               : is_ping_pong(c) ? kPingPongCycles
                               : large           ? kResultCycles
                                                 : kSmallResultCycles;
  const bool is_narrow = is_wgmma(c) && sizes.n % 4 != 0;
  const double broken_rows = is_narrow ? kNarrowResult : is_wgmma(c) && sizes.n % 64 != 0 ? kBrokenResult : 1;
  const double stored = results * broken_rows * result_cycles * sharing / (c.occupancy > 1 ? 2 : 1) /
                        (splits_in_cluster(c) ? split_parts(c) : 1);
  // Dedicated warps run an epilogue in the time of the next tile's products, warpgroups in ping-pong in that
  // of the other's, which does not hide the stores of narrow results.
  const auto tile_of = [&](int64_t some) {
    const double products = steps * shared_step_cycles(sizes, c, some);
    if (has_epilogue_warps(c))
      return std::max(products,
                      results * (has_three_epilogue_warps(c) ? kThreeWarpsCycles : kEpilogueWarpsCycles));
    return is_ping_pong(c) && is_narrow ? std::max(products, (products + stored) / 2) : products;
  };
  // Of warpgroups in ping-pong, only the last one's epilogue is not behind another's products.
  double cycles = (waves - 1) * tile_of(running) + tile_of(last) +
                  (has_epilogue_warps(c) ? 1
                   : is_ping_pong(c)     ? 2
                                         : waves) *
                      stored;
  // Behind the memory's time the rest does not hide entirely.
  cycles = std::max(cycles, touched_bytes(sizes, c) / kMemoryBytes +
                                (reduce_scatters(c) ? kReduceScatterBehindMemory : kBehindMemory) * cycles) +
           kStart + (large ? kAlone : 0) + (multicast_blocks(c) > 1 ? kMulticastStart : 0);
  const double result = simt                 ? kSimtClusterResult
                        : reduce_scatters(c) ? kReduceScatterResult
                                             : kClusterResult;
  // The blocks of a cluster have one tile: in each wave they start, load and add anew.
  if (split_parts(c) > 1 && splits_in_cluster(c)) {
    const double sum = keeps_x(sizes, c) ? kFewClusterSum + kFewClusterPart * split_parts(c)
                                         : kClusterBase +
                                               ((simt ? kSimtClusterSum : kClusterSum) * std::min(1.0, mean) +
                                                (simt ? kSimtClusterPart : kClusterPart) * split_parts(c)) *
                                                   std::min(sharing, kMostSharing) +
                                               result * results;
    cycles += waves * sum + std::max(waves - 1, 0.0) * (kStart + kLoadLatency);
  }
  if (splits_in_workspace(c)) cycles += workspace_cycles(static_cast<double>(blocks) * results);
  return cycles;
}

double matmul_epilogue_cycles(const MatmulSizes& sizes, const MatmulWay& c, int bytes) {
  const double waves =
      static_cast<double>(ceil_div(tile_count(sizes, c), concurrent_blocks(c, sizes.machine)));
  const double warps_cycles = static_cast<double>(c.block_m) * c.block_n * bytes * kByteCycles;
  const double own = warps_cycles / (4.0 * c.warpgroups);  // by the warps that multiply
  if (!has_epilogue_warps(c)) return waves * own;
  const double product = static_cast<double>(ceil_div(sizes.k, kStepDepth)) * step_cycles(sizes, c);
  const double stored = warps_cycles / (has_three_epilogue_warps(c) ? 3 : 4);
  return waves * std::max(stored - product, 0.0) + own;
}

double matmul_operand_cycles(const MatmulSizes& sizes, const MatmulWay& c, double waits) {
  const int64_t blocks = tile_count(sizes, c) * split_parts(c), most = concurrent_blocks(c, sizes.machine);
  const auto waves = static_cast<double>(ceil_div(blocks, most));
  const double waited = waits * kOperandWait;
  if (!is_ping_pong(c)) return waves * waited / c.occupancy;
  const double steps = static_cast<double>(ceil_div(sizes.k, kStepDepth));
  const double product = steps * shared_step_cycles(sizes, c, std::min(blocks, most));
  return waited + waves * std::max(0.0, waited - product) / 2;
}

double matmul_row_cycles(const MatmulSizes& sizes, const MatmulWay& way, int reductions) {
  const double exchange = kRowExchange * (row_blocks(way) - 1);
  const double results = static_cast<double>(way.block_m) * way.block_n;
  // The blocks of a cluster have one tile: in each wave they start, load and reduce anew.
  const auto waves =
      static_cast<double>(ceil_div(tile_count(sizes, way), concurrent_blocks(way, sizes.machine)));
  return matmul_cycles(sizes, way) + waves * reductions * (exchange + kRowResult * results) +
         std::max(waves - 1, 0.0) * (kStart + kLoadLatency);
}

}  // namespace aicf
