#include "kernels/matmul/cuda/matmul_ways.h"

#include <algorithm>

#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/matmul/cuda/matmul_cycles.h"
#include "kernels/matmul/cuda/wgmma_text.h"

namespace aicf {
namespace {

constexpr int kClusterArch = 90;
constexpr int kSlicedSide = 32;      // of a tile of sliced.cuh
constexpr int64_t kSliceStage = 32;  // elements of K

MatmulSplit in_cluster(int parts) {
  return parts > 1 ? MatmulSplit{SplitKind::cluster, parts} : MatmulSplit();
}

constexpr int kMostOfCluster = 8;

// Splitting buys parallelism for a cost that does not pay for short K. More parts than a cluster has blocks
// go through the workspace, where clusters would leave multiprocessors without work.
std::vector<int> split_counts(const MatmulSizes& sizes, const MatmulWay& c, int arch) {
  std::vector<int> splits{1};
  if (c.unit == MatmulUnit::single || loads_all_of_k(c) || is_ping_pong(c) || has_epilogue_warps(c) ||
      (c.warpgroups > 1 && c.occupancy > 1))
    return splits;
  const bool fills = tile_count(sizes, c) * kMostOfCluster >= sizes.machine.multiprocessors;
  const int most = arch < kClusterArch ? 32 : has_tensor_maps(c) || fills ? kMostOfCluster : 64;
  const bool simt = family_of(c) == MatmulFamily::simt;
  const int steps = simt ? 1 : 2;  // that a part has at least
  std::vector<int> counts{2, 3, 4, 8, 16, 32, 64};
  // As many as give every multiprocessor one block, two, …
  constexpr int kMostBlocks = 4;
  for (int blocks = 1; simt && blocks <= kMostBlocks; ++blocks)
    if (const int64_t s = blocks * sizes.machine.multiprocessors / std::max<int64_t>(tile_count(sizes, c), 1);
        s > kMostOfCluster && s <= most)
      counts.push_back(static_cast<int>(s));
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  for (const int s : counts)
    if (s <= most && ceil_div(sizes.k, kStepDepth) >= steps * s) splits.push_back(s);
  return splits;
}

// Steps of K of all tiles.
int64_t all_steps(const MatmulSizes& sizes, const MatmulWay& c) {
  return tile_count(sizes, c) * ceil_div(sizes.k, kStepDepth);
}

// The tile's stream-K: a block for every place. Blocks of a cluster are at most eight, and find places on
// some of the multiprocessors only; whole tiles fill the last round in part only.
std::vector<MatmulWay> stream_ways(const MatmulSizes& sizes, const MatmulWay& tile) {
  constexpr int64_t kLeastSteps = 2;
  if (!is_wgmma(tile) || tile.schedule != MatmulSchedule::cooperative || sizes.dual || keeps_x(sizes, tile))
    return {};
  const int64_t blocks = concurrent_blocks(tile, sizes.machine);
  if (all_steps(sizes, tile) < kLeastSteps * blocks) return {};
  MatmulWay way = tile;
  way.split = {SplitKind::stream, static_cast<int>(blocks)};
  return {way};
}

// A tile's multicasts, of blocks that have a row of tiles each. Of whole lines the L2 cache keeps pace
// without.
std::vector<MatmulWay> multicast_ways(const MatmulSizes& sizes, const MatmulWay& tile) {
  std::vector<MatmulWay> ways;
  if (!is_wgmma(tile) || tile.warpgroups != 2 || tile.occupancy != 1 || keeps_x_stationary(tile) ||
      sizes.dual || sizes.f32 || (sizes.x_lines && sizes.y_lines))
    return ways;
  for (const int sharers : {2, 4})
    if (ceil_div(sizes.m, tile.block_m) >= sharers) {
      ways.push_back(tile);
      ways.back().split = {SplitKind::multicast, sharers};
    }
  return ways;
}

// Rows of x that wgmma loads into stages: along m only whole panels.
int64_t loaded_rows(const MatmulSizes& sizes, const MatmulWay& c) {
  if (keeps_x(sizes, c)) return 0;
  return sizes.x_along_k ? std::min<int64_t>(ceil_div(sizes.m, 8) * 8, c.block_m) : c.block_m;
}

// Where the tile of single.cuh is worth a look: long products and many results want larger tiles, which read
// less per result.
bool wants_single(const MatmulSizes& sizes) {
  const double tiles = static_cast<double>(ceil_div(sizes.m, kSingleSide)) *
                       static_cast<double>(ceil_div(sizes.n, kSingleSide));
  return sizes.k <= 2 * kStepDepth &&
         tiles * static_cast<double>(sizes.batch) <= 2 * static_cast<double>(sizes.machine.multiprocessors);
}

// Dedicated warps get halves (wgmma_epilogue_warps.cuh). Of f32 the widest of their tiles is another without
// them.
std::vector<MatmulWay> tiles_for(const MatmulSizes& sizes, MatmulFamily family, int element_bytes) {
  std::vector<MatmulWay> tiles;
  for (MatmulWay tile : matmul_tiles(family, element_bytes)) {
    if (sizes.f32 && has_epilogue_warps(tile)) {
      if (tile.block_n < 256) continue;
      tile.schedule = MatmulSchedule::cooperative;
      ++tile.stages;
    }
    tiles.push_back(tile);
  }
  return tiles;
}

// So many that blocks take several.
bool has_several_tiles(const MatmulSizes& sizes, const MatmulWay& c) {
  return tile_count(sizes, c) > concurrent_blocks(c, sizes.machine);
}

// Stages of wgmma beyond those of its tile, or fewer.
void set_stages(const MatmulSizes& sizes, MatmulWay& c) {
  const int64_t tiles = tile_count(sizes, c) * split_parts(c);
  if (stream_blocks(c) > 0 || tiles > concurrent_blocks(c, sizes.machine)) return;
  // Few rows: the time is that of the weights, of which enough must be under way, whatever x takes beside
  // them: half the memory of one row's stages. The rest the next launch fills with its own weights meanwhile.
  constexpr int64_t kHalfMemory = 96 * 1024, kMostStages = 24, kStepBytes = kStepDepth * 2;
  constexpr int64_t kHalfOfAll = 113 * 1024, kEpilogue = 6 * 1024;
  if (keeps_x(sizes, c)) {
    // One block of each multiprocessor leaves half of the memory to the next launch. Several take all of it,
    // so that they spread evenly (five stages of 64 x 64 let four blocks crowd on half of the machine); the
    // next launch's blocks then take the places of those that end.
    constexpr int64_t kOther = 2 * kEpilogue;  // the system's, too
    const int64_t blocks = std::max<int64_t>(1, ceil_div(tiles, sizes.machine.multiprocessors));
    const int64_t room =
        2 * kHalfOfAll / std::max<int64_t>(blocks, 2) - kOther - kept_x_bytes(sizes, c, true);
    c.stages = static_cast<int>(std::clamp<int64_t>(room / (c.block_n * kStepBytes), 2, kMostStages));
  } else if (sizes.m <= 64) {
    const int64_t blocks =
        std::max<int64_t>(1, ceil_div(tiles, sizes.machine.multiprocessors));  // of one multiprocessor
    const int64_t wanted = kHalfMemory / blocks / ((8 + c.block_n) * kStepBytes);
    const int64_t room = kPipelineBytes / std::max<int64_t>(blocks, c.occupancy) /
                         ((loaded_rows(sizes, c) + c.block_n) * kStepBytes);
    // A few less, if the next launch's block then fits beside this one's: 16 x 4096 x 4096 took 11.1 us on an
    // H100 with 17 stages, 11.6 with 19. With half as many stages 64 x 4096 x 4096 took 12.6 in place
    // of 12.0.
    const int64_t stage = (loaded_rows(sizes, c) + c.block_n) * kStepBytes;
    const int64_t beside = c.occupancy == 1 && split_parts(c) == 1 ? (kHalfOfAll - kEpilogue) / stage : 0;
    const int64_t stages = std::min(wanted, room);
    c.stages = static_cast<int>(
        std::clamp<int64_t>(8 * beside >= 7 * stages ? std::min(stages, beside) : stages, 2, kMostStages));
  }
  // A block with one tile has no use for more stages than steps.
  c.stages = static_cast<int>(
      std::clamp<int64_t>(ceil_div(ceil_div(sizes.k, kStepDepth), split_parts(c)), 2, c.stages));
}

// The best of them with half and with twice the stages: how far a launch should load ahead depends on what
// runs before and after it, of which the estimate knows nothing.
void add_other_stages(const MatmulSizes& sizes, std::vector<MatmulWay>& ways) {
  constexpr size_t kBest = 6;
  std::vector<MatmulWay> others;
  for (size_t i = 0; i < std::min(kBest, ways.size()); ++i) {
    const int64_t stage = (loaded_rows(sizes, ways[i]) + ways[i].block_n) * kStepDepth * 2;
    const int64_t kept = keeps_x(sizes, ways[i])    ? kept_x_bytes(sizes, ways[i], true)
                         : reduce_scatters(ways[i]) ? reduce_scatter_bytes(ways[i])
                                                    : 0;
    const int64_t most = (kPipelineBytes / ways[i].occupancy - kept) / stage;
    const int64_t steps = ceil_div(ceil_div(sizes.k, kStepDepth), split_parts(ways[i]));
    for (const int64_t stages : {ways[i].stages / int64_t{2}, std::min(ways[i].stages * int64_t{2}, most)}) {
      if (stages < 2 || stages == ways[i].stages || has_epilogue_warps(ways[i]) ||
          stages > std::max<int64_t>(steps, 2))
        continue;
      others.push_back(ways[i]);
      others.back().stages = static_cast<int>(stages);
    }
  }
  ways.insert(ways.end(), others.begin(), others.end());
}

// Many, whose matrices have a block at once.
bool has_small_products(const MatmulSizes& sizes) {
  const int64_t most = std::max({sizes.m, sizes.n, sizes.k}), least = std::min({sizes.m, sizes.n, sizes.k});
  return sizes.batch > 1 && least > 0 && most <= kBatchedSide;
}

// Of many small products one stage, which has all of K: the less shared memory a block takes, the more blocks
// wait together.
void add_single_stage(const MatmulSizes& sizes, std::vector<MatmulWay>& tiles) {
  if (sizes.f32 || sizes.dual || !has_small_products(sizes)) return;
  const size_t count = tiles.size();
  for (size_t i = 0; i < count; ++i) {
    tiles.push_back(tiles[i]);
    tiles.back().stages = 1;
  }
}

// What comes by way of registers is one step ahead, however many stages there are; with fewer, more blocks
// share a multiprocessor.
void add_two_stages(std::vector<MatmulWay>& ways) {
  const size_t count = ways.size();
  for (size_t i = 0; i < count; ++i) {
    if (ways[i].slices > 0 || loads_all_of_k(ways[i])) continue;
    ways.push_back(ways[i]);
    ways.back().stages = 2;
  }
}

}  // namespace

// Warps of dual GEMMs are as large as others, with 32 columns of each product.
WarpTile warp_tile(const MatmulWay& way, bool dual) {
  if (dual) return {32, 64};
  if (way.block_m == 128) return way.block_n == 128 ? WarpTile{64, 32} : WarpTile{32, 32};
  return {way.block_m == 64 && way.block_n >= 64 ? 32 : 16, 32};
}

int mma_min_blocks(const MatmulWay& way, bool fetched) {
  constexpr int kRegisters = 65536;
  const int kOther = fetched ? 84 : 52;  // of a thread, beside its results
  const WarpTile warp = warp_tile(way, false);
  const int threads = way.block_m / warp.m * (way.block_n / warp.n) * 32;
  return kRegisters / (threads * (warp.m * warp.n / 32 + kOther));
}

// Large ones read less of shared memory for each product, of small ones more warps hide the wait for it.
ThreadTile simt_thread(const MatmulWay& way) {
  const bool is_small = way.block_m == 32 && way.block_n == 32;
  return {is_small ? 4 : 8, way.block_n == 128 ? 8 : 4};
}

int simt_threads(const MatmulWay& way) {
  const ThreadTile thread = simt_thread(way);
  return way.block_m / thread.m * (way.block_n / thread.n);
}

SimtLoad simt_load(const MatmulWay& way, bool along_k, bool vector_rows) {
  constexpr int kFewColumns = 4;
  if (!vector_rows) return SimtLoad::element;
  if (!along_k) return SimtLoad::vector;
  return simt_thread(way).n <= kFewColumns ? SimtLoad::quad : SimtLoad::element;
}

int simt_min_blocks(const MatmulWay& way, SimtLoad x, SimtLoad y) {
  constexpr int kRegisters = 65536, kOther = 44;  // of a thread, beside its results and fragments
  if (way.block_n == 128) return simt_blocks(way);
  if (x == SimtLoad::element && y == SimtLoad::element) return 0;
  const ThreadTile thread = simt_thread(way);
  const auto held = [](SimtLoad load) { return load == SimtLoad::quad ? 4 : 2; };  // of k
  return kRegisters /
         (simt_threads(way) * (thread.m * thread.n + held(x) * thread.m + held(y) * thread.n + kOther));
}

int simt_blocks(const MatmulWay& way) {
  constexpr int kRegisters = 65536, kOther = 32;  // of a thread, beside its results and two fragments
  const ThreadTile thread = simt_thread(way);
  return kRegisters / (simt_threads(way) * (thread.m * thread.n + 2 * (thread.m + thread.n) + kOther));
}

int64_t tile_count(const MatmulSizes& sizes, const MatmulWay& c) {
  const int64_t sharers = multicast_blocks(c);
  if (has_whole_products(c)) return ceil_div(sizes.batch, c.batches);
  return sizes.batch * ceil_div(sizes.m, c.block_m * sharers) * sharers * ceil_div(sizes.n, c.block_n);
}

int64_t sliced_depth(const MatmulSizes& sizes, MatmulFamily family) {
  return family == MatmulFamily::mma ? sizes.k / 2 : sizes.k;  // in tf32 k counts twice
}

int sum_warps(const MatmulSizes& sizes, const MatmulWay& c) {
  constexpr int64_t kPartsOfWarp = 8, kMostWarps = 16;
  int64_t parts = c.split.parts;
  if (stream_blocks(c) > 0) {
    const int64_t share = std::max<int64_t>(all_steps(sizes, c) / stream_blocks(c), 1);
    parts = ceil_div(ceil_div(sizes.k, kStepDepth), share) + 1;
  }
  return static_cast<int>(std::clamp<int64_t>(ceil_div(parts, kPartsOfWarp), 1, kMostWarps));
}

int64_t reduce_scatter_bytes(const MatmulWay& c) {
  return int64_t{c.block_m} * c.block_n * 4 / split_parts(c) * (split_parts(c) - 1);
}

bool reduce_scatters(const MatmulWay& c) {
  constexpr int64_t kMostBytes = 32 * 1024;
  return is_wgmma(c) && splits_in_cluster(c) && c.warpgroups == 2 && c.block_n % 64 == 0 &&
         c.block_m / 128 * (c.block_n / 64) % split_parts(c) == 0 && reduce_scatter_bytes(c) <= kMostBytes;
}

int64_t blocks_of_row(const MatmulSizes& sizes, const MatmulWay& c) {
  constexpr int64_t kMostSteps =
      6;  // of x in shared memory, beside three stages of y and the buffers of the results
  const int64_t rows = ceil_div(sizes.m, c.block_m), columns = ceil_div(sizes.n, c.block_n);
  if (!keeps_x_stationary(c) || sizes.batch != 1 || !sizes.x_along_k ||
      ceil_div(sizes.k, kStepDepth) > kMostSteps || rows < 1 || rows > sizes.machine.multiprocessors)
    return 0;
  const int64_t blocks = sizes.machine.multiprocessors / rows;
  return columns >= 2 * blocks ? blocks : 0;
}

bool keeps_x(const MatmulSizes& sizes, const MatmulWay& c) {
  constexpr int64_t kMostRows = 8, kMostBytes = 16 * 1024;
  return is_wgmma(c) && !sizes.f32 && c.warpgroups == 1 && stream_blocks(c) == 0 && sizes.batch == 1 &&
         sizes.m >= 1 && sizes.m <= kMostRows && sizes.x_along_k && sizes.k % kStepDepth == 0 &&
         kept_x_bytes(sizes, c, false) <= kMostBytes;
}

int64_t kept_x_bytes(const MatmulSizes& sizes, const MatmulWay& c, bool own_part) {
  const int64_t steps = ceil_div(sizes.k, kStepDepth);
  return sizes.m * (own_part ? ceil_div(steps, split_parts(c)) : steps) * kStepDepth * 2;
}

std::vector<MatmulWay> matmul_tiles(MatmulFamily family, int element_bytes) {
  const auto simt = [](int m, int n, int stages) {
    return MatmulWay{.unit = MatmulUnit::simt, .block_m = m, .block_n = n, .stages = stages};
  };
  const MatmulWay single{.unit = MatmulUnit::single, .block_m = kSingleSide, .block_n = kSingleSide};
  const auto mma = [](int m, int n, int stages) {
    return MatmulWay{.unit = MatmulUnit::mma, .block_m = m, .block_n = n, .stages = stages};
  };
  const auto tf32x3 = [](int n) {
    return MatmulWay{.unit = MatmulUnit::tf32x3, .block_m = 128, .block_n = n};
  };
  const auto wgmma = [](int m, int n, int warpgroups, int stages, int occupancy) {
    return MatmulWay{.unit = MatmulUnit::wgmma,
                     .block_m = m,
                     .block_n = n,
                     .stages = stages,
                     .warpgroups = warpgroups,
                     .occupancy = occupancy};
  };
  const auto scheduled = [&](MatmulSchedule schedule, int m, int n, int stages) {
    MatmulWay way = wgmma(m, n, 2, stages, 1);
    way.schedule = schedule;
    return way;
  };
  constexpr auto kPingPong = MatmulSchedule::ping_pong, kEpilogueWarps = MatmulSchedule::epilogue_warps,
                 kStationary = MatmulSchedule::stationary_x;
  switch (family) {
    case MatmulFamily::simt:
      if (element_bytes == 8) return {simt(64, 64, 3), simt(32, 32, 4), single};
      return {simt(128, 128, 4), simt(64, 128, 4), simt(64, 64, 4), simt(32, 64, 6), simt(32, 32, 6), single};
    case MatmulFamily::mma:
      // At most 96 KiB of stages: what a block of sm_86 and sm_89 can have.
      return {mma(128, 128, 3), mma(128, 64, 4), mma(64, 64, 4),
              mma(64, 32, 5),   mma(16, 128, 5), mma(16, 64, 6)};
    case MatmulFamily::tf32x3:
      return {tf32x3(128), tf32x3(96), tf32x3(64), tf32x3(32)};
    case MatmulFamily::batched:
    case MatmulFamily::warp:
    case MatmulFamily::direct:
      return {};  // of sizes: matmul_batched_ways, matmul_warp_ways, matmul_direct_ways
    default:
      // Pipelines of at most 200 KiB, of 100 KiB where two blocks share a multiprocessor: the rest is the
      // epilogue's.
      return {scheduled(kStationary, 128, 192, 3),
              wgmma(256, 128, 2, 4, 1),
              wgmma(128, 192, 2, 5, 1),
              wgmma(128, 128, 2, 6, 1),
              scheduled(kEpilogueWarps, 128, 256, 3),
              scheduled(kEpilogueWarps, 128, 192, 4),
              scheduled(kEpilogueWarps, 128, 128, 5),
              scheduled(kPingPong, 128, 128, 6),
              wgmma(128, 96, 2, 7, 1),
              wgmma(128, 64, 2, 8, 1),
              wgmma(64, 64, 1, 6, 2),
              wgmma(64, 32, 1, 16, 1),
              wgmma(64, 32, 1, 8, 2)};
  }
}

int64_t sliced_bytes(const MatmulWay& c) {
  const int64_t stages = c.stages * (c.block_m + c.block_n) * kSliceStage * 4;
  // Sent by the cluster's blocks, and a barrier.
  const int64_t parts = int64_t{c.block_m} * c.block_n * 4 + 16;
  return c.slices * stages + (splits_in_cluster(c) ? parts : 0);
}

std::vector<MatmulWay> matmul_sliced_ways(const MatmulSizes& sizes, MatmulFamily family, int arch) {
  std::vector<MatmulWay> ways;
  const int64_t tiles = sizes.batch * ceil_div(sizes.m, kSlicedSide) * ceil_div(sizes.n, kSlicedSide);
  if (!sizes.f32 || (family != MatmulFamily::simt && family != MatmulFamily::mma) ||
      tiles > 6 * sizes.machine.multiprocessors)
    return ways;
  // So short a K has nothing to slice: on an H100 a step of such products took 7.5 us with single.cuh, 12 so.
  if (family == MatmulFamily::simt && sizes.k <= kStepDepth && wants_single(sizes)) return ways;
  const int64_t depth = sliced_depth(sizes, family);
  MatmulWay way{.unit = family == MatmulFamily::mma ? MatmulUnit::sliced_mma : MatmulUnit::sliced_simt,
                .block_m = kSlicedSide,
                .block_n = kSlicedSide};
  // Short products of different sizes are alike, so that they can share a launch.
  const bool is_short = depth <= 4 * kSliceStage;
  way.slices = is_short ? 4 : 8;
  for (const int splits : {1, 2, 4, 8}) {
    const bool splittable = arch >= kClusterArch && !is_short && depth >= splits * way.slices * kLeastSlice;
    if (splits > 1 && !splittable) continue;
    way.split = in_cluster(splits);
    const int64_t room = arch >= kClusterArch ? kPipelineBytes : 96 * 1024;
    const int64_t steps = ceil_div(depth, splits * way.slices * kSliceStage);
    for (way.stages = 4; way.stages > 1 && (way.stages > steps || sliced_bytes(way) > room);) --way.stages;
    ways.push_back(way);
  }
  return ways;
}

int batched_threads(const MatmulWay& c) {
  return static_cast<int>(ceil_div(int64_t{c.block_m / 4} * (c.block_n / 4) * c.batches, 32)) * 32;
}

int batched_min_blocks(const MatmulWay& c, int element_bytes) {
  constexpr int kRegisters = 65536, kOfThread = 18;  // for each byte of an element
  return std::max(1, kRegisters / (batched_threads(c) * kOfThread * element_bytes));
}

// As batched.cuh lays them out.
int64_t batched_bytes(const MatmulWay& c, int64_t k, bool x_along_k, bool y_along_k, int element_bytes) {
  constexpr int64_t kPad = 4, kBanks = 32;
  const int64_t depth = ceil_div(k, 4) * 4;
  const auto part = [&](int64_t extent, bool along_k) {
    const int64_t used = along_k ? extent / 4 * (4 * depth + kPad) : depth * (extent + kPad);
    return used + (kBanks + extent % kBanks - used % kBanks) % kBanks;
  };
  const int64_t operands = part(c.block_m, x_along_k) + part(c.block_n, y_along_k);
  return c.batches * element_bytes * std::max(operands, c.block_m * (c.block_n + kPad));
}

std::vector<MatmulWay> matmul_batched_ways(const MatmulSizes& sizes, int element_bytes) {
  constexpr int64_t kMostBytes = 64 * 1024, kMostThreads = 512;
  std::vector<MatmulWay> ways;
  if (!has_small_products(sizes)) return ways;
  MatmulWay way{.unit = MatmulUnit::batched,
                .block_m = static_cast<int>(ceil_div(sizes.m, 4) * 4),
                .block_n = static_cast<int>(ceil_div(sizes.n, 4) * 4),
                .stages = 1};
  for (const int threads : {64, 128, 256}) {
    const int of_product = way.block_m / 4 * (way.block_n / 4), before = way.batches;
    way.batches = std::max(1, threads / of_product);
    while (way.batches > 1 &&
           batched_bytes(way, sizes.k, sizes.x_along_k, sizes.y_along_k, element_bytes) > kMostBytes)
      --way.batches;
    if (way.batches != before && batched_threads(way) <= kMostThreads) ways.push_back(way);
  }
  return ways;
}

// As warp_products.cuh lays them out.
int64_t warp_products_bytes(const MatmulWay& c, int64_t depth, const SharedOperands& shared) {
  constexpr int64_t kVector = 16;
  const auto operand = [&](int64_t extent, bool is_shared) {
    return (extent * depth * 2 * (is_shared ? 1 : c.batches) + 2 * kVector - 1) / kVector * kVector;
  };
  const int64_t columns = c.block_n <= 8 ? 8 : c.block_n <= 16 ? 16 : c.block_n <= 32 ? 32 : 64;
  return operand(c.block_m, shared.x) + operand(c.block_n, shared.y) + c.batches * 16 * (columns + 8) * 4;
}

std::vector<MatmulWay> matmul_direct_ways(const MatmulSizes& sizes) {
  constexpr int64_t kMostRows = 16, kDepth = 32;
  std::vector<MatmulWay> ways;
  if (sizes.f32 || sizes.dual || sizes.m > kMostRows || !sizes.x_along_k || !sizes.y_along_k) return ways;
  for (const int warps : {4, 8, 16})
    if (sizes.k > kDepth * warps / 2)
      ways.push_back({.unit = MatmulUnit::direct,
                      .block_m = sizes.m <= 8 ? 8 : 16,
                      .block_n = kDirectColumns,
                      .stages = 1,
                      .slices = warps});
  return ways;
}

std::vector<MatmulWay> matmul_warp_ways(const MatmulSizes& sizes) {
  std::vector<MatmulWay> ways;
  // Rows of whole vectors are copied to where ldmatrix reads them (mma.cuh), and as they lie meet in banks.
  const bool is_odd = sizes.x_fetched && sizes.y_fetched;
  if (sizes.f32 || sizes.dual || !is_odd || !has_small_products(sizes)) return ways;
  for (const int warps : {4, 8})
    ways.push_back({.unit = MatmulUnit::warp,
                    .block_m = static_cast<int>(round_up(sizes.m, 16)),
                    .block_n = static_cast<int>(round_up(sizes.n, 8)),
                    .stages = 1,
                    .batches = warps});
  return ways;
}

std::vector<MatmulWay> matmul_ways(const MatmulSizes& sizes, MatmulFamily family, int arch,
                                   int element_bytes) {
  std::vector<std::pair<double, MatmulWay>> found;
  std::vector<MatmulWay> tiles = tiles_for(sizes, family, element_bytes);
  if (family == MatmulFamily::mma) add_single_stage(sizes, tiles);
  for (const MatmulWay& tile : tiles) {
    // Rows of y along n come in panels of 64.
    if (family == MatmulFamily::wgmma && !sizes.y_along_k && tile.block_n % 64 != 0) continue;
    if (tile.unit == MatmulUnit::single && !wants_single(sizes)) continue;
    if (has_epilogue_warps(tile) && !has_several_tiles(sizes, tile)) continue;
    if (keeps_x_stationary(tile) && blocks_of_row(sizes, tile) == 0) continue;
    for (const int splits : split_counts(sizes, tile, arch)) {
      MatmulWay way = tile;
      way.split = in_cluster(splits);
      if (splits > 1 && (arch < kClusterArch || splits > kMostOfCluster))
        way.split.kind = SplitKind::workspace;
      if (reduce_scatters(way))
        way.stages = static_cast<int>((kPipelineBytes - reduce_scatter_bytes(way)) /
                                      ((way.block_m + way.block_n) * kStepDepth * 2));
      found.emplace_back(matmul_cycles(sizes, way), way);
    }
    for (const MatmulWay& way : stream_ways(sizes, tile)) found.emplace_back(matmul_cycles(sizes, way), way);
    for (const MatmulWay& way : multicast_ways(sizes, tile))
      found.emplace_back(matmul_cycles(sizes, way), way);
  }
  if (family == MatmulFamily::batched)
    for (const MatmulWay& way : matmul_batched_ways(sizes, element_bytes))
      found.emplace_back(matmul_cycles(sizes, way), way);
  if (family == MatmulFamily::direct)
    for (const MatmulWay& way : matmul_direct_ways(sizes)) found.emplace_back(matmul_cycles(sizes, way), way);
  if (family == MatmulFamily::warp)
    for (const MatmulWay& way : matmul_warp_ways(sizes)) found.emplace_back(matmul_cycles(sizes, way), way);
  for (const MatmulWay& way : matmul_sliced_ways(sizes, family, arch))
    found.emplace_back(matmul_cycles(sizes, way), way);
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<MatmulWay> ways;
  for (auto& [cycles, way] : found) {
    if (family == MatmulFamily::wgmma) set_stages(sizes, way);
    if (is_tf32x3(way)) way.stages = tf32x3_stages(way, sizes.y_along_k);
    ways.push_back(way);
  }
  if (family == MatmulFamily::wgmma) add_other_stages(sizes, ways);
  if (family == MatmulFamily::mma && (sizes.x_fetched || sizes.y_fetched)) add_two_stages(ways);
  return ways;
}

std::vector<MatmulWay> matmul_pair_ways(const MatmulSizes& sizes, MatmulFamily family) {
  std::vector<MatmulWay> tiles;
  if (family == MatmulFamily::mma) {
    for (const auto& [rows, stages] : {std::pair(128, 3), std::pair(64, 4)})
      tiles.push_back({.unit = MatmulUnit::mma, .block_m = rows, .block_n = 128, .stages = stages});
  } else if (family == MatmulFamily::wgmma) {
    for (const MatmulWay& tile : tiles_for(sizes, family, 4))
      if (tile.block_n % 128 == 0 && !keeps_x_stationary(tile) &&
          (!has_epilogue_warps(tile) || has_several_tiles(sizes, tile)))
        tiles.push_back(tile);  // chunks of 64 columns of each product
  }
  if (family == MatmulFamily::wgmma)
    for (MatmulWay& tile : tiles) set_stages(sizes, tile);
  std::stable_sort(tiles.begin(), tiles.end(), [&](const MatmulWay& a, const MatmulWay& b) {
    return matmul_cycles(sizes, a) < matmul_cycles(sizes, b);
  });
  return tiles;
}

std::vector<MatmulWay> matmul_row_ways(const MatmulSizes& sizes) {
  constexpr int kMostBlocks = 8;  // of a cluster
  std::vector<MatmulWay> ways;
  for (const int columns : {64, 128, 192, 256}) {
    const int64_t blocks = sizes.n / columns;
    if (sizes.n % columns != 0 || blocks < 1 || blocks > kMostBlocks) continue;
    ways.push_back({.unit = MatmulUnit::wgmma,
                    .block_m = 128,
                    .block_n = columns,
                    .split = {SplitKind::row, static_cast<int>(blocks)},
                    .warpgroups = 2});
  }
  return ways;
}

MatmulWay choose_matmul(const MatmulSizes& sizes, MatmulFamily family, int arch, int element_bytes) {
  return matmul_ways(sizes, family, arch, element_bytes).front();
}

}  // namespace aicf
