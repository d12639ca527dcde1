#include "kernels/matmul/matmul_cuda_config.h"

#include <algorithm>
#include <cmath>

namespace aicf {
namespace {

constexpr int64_t kMultiprocessors = 132;  // H100; smaller chips run more waves of the same tiles
constexpr int kClusterArch = 90;
constexpr int kDepth = 64;                      // of K in a step
constexpr int64_t kPipelineBytes = 200 * 1024;  // of a multiprocessor, for stages of wgmma

// Clock cycles of an H100 and bytes per cycle, fitted to measurements of the tiles below; only ratios matter.
constexpr double kStart = 3400;          // launch, first loads, last stores
constexpr double kMemoryBytes = 1750;    // device memory, whole chip
constexpr double kL2Bytes = 7000;        // L2 cache, whole chip
constexpr double kSharedBytes = 128;     // shared memory, one multiprocessor
constexpr double kLoadLatency = 2600;    // from a load's start until its stage is full, while memory is busy
constexpr double kSimtLatency = 7500;    // of a step of simt.cuh, which looks only one small step ahead
constexpr double kSingleLatency = 2000;  // and of single.cuh
constexpr double kStepOverhead = 50;     // barriers between stages
// Of a result in the epilogue; half where another block can multiply meanwhile.
constexpr double kResultCycles = 0.08, kSmallResultCycles = 0.4;
constexpr double kTurnCycles = 0.10;        // where the products of another warpgroup go on
constexpr double kHandedCycles = 0.2;       // by the warps that only store,
constexpr double kFewHandedCycles = 0.6;    //   where they are three
constexpr double kBehindMemory = 0.1;       // share of other work that adds to the time of the memory
constexpr double kClusterSum = 2400;        // barriers,
constexpr double kClusterPart = 400;        //   reads of each part of a cluster's sum
constexpr double kClusterResult = 0.35;     //   and of each result;
constexpr double kFewClusterSum = 1200;     // of few rows (few_rows.cuh), whose blocks do not meet,
constexpr double kFewClusterPart = 50;      //   of each part
constexpr double kSimtClusterResult = 2.5;  //   the groups of simt.cuh are smaller
constexpr double kMostSharing = 1.5;        //   more blocks wait together
constexpr double kWorkspaceSum = 6000;      // a second launch
constexpr double kRowExchange = 600;  // of a statistic of rows, for every block of a cluster but the first,
constexpr double kRowResult = 0.05;   //   and of each result

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Of sliced.cuh: elements of K in a stage and at least in a slice, and the multiply-adds of one
// multiprocessor per cycle with warps enough, in f32 and tf32.
constexpr int kSlicedSide = 32;
constexpr int64_t kSliceStage = 32, kLeastSlice = 16, kMostSlicedTiles = 6 * kMultiprocessors;
constexpr double kSlicedSimt = 75, kSlicedTf32 = 250, kWarpsEnough = 4;
constexpr double kSliceSum = 60, kSlicedResult = 0.15;  // a slice's sums; a result in the epilogue
constexpr double kSlicedBytes = 60;                     // from the L2 cache, one multiprocessor per cycle
constexpr double kSlicedCluster = 300;  // blocks that send their parts; and each part, kClusterPart
constexpr double kSlicedElement = 60;   // of K in a slice beyond the least, if y comes an element at a time

// Blocks that run at a time. Clusters of three and more leave multiprocessors of a processing cluster idle.
int64_t capacity(const MatmulConfig& c) {
  const int64_t resident = c.family == MatmulFamily::wgmma ? c.resident
                           : c.family == MatmulFamily::mma ? 2
                           : is_single(c)                  ? 8
                                                           : 256 / c.block_m;
  const int blocks = c.row_blocks > 0 ? c.row_blocks : c.cluster ? c.splits : 1;
  if (blocks < 3) return kMultiprocessors * resident;
  return (blocks == 3 ? 126 : blocks == 4 ? 120 : 112) * resident;
}

// Measured in long products and in short ones with few blocks.
double wgmma_step_cycles(const MatmulConfig& c) {
  switch (c.block_m * 1000 + c.block_n) {
    case 256128:
      return 1110;
    case 128256:
      return c.handed ? 1077 : 1110;
    case 128192:
      return c.handed && !c.stays ? 870 : 850;  // with fewer stages
    case 128128:
      return c.alternate ? 615 : 700;
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

// Cycles of a step of one block that has its multiprocessor for itself.
double step_cycles(const MatmulConfig& c) {
  if (c.family == MatmulFamily::wgmma) return wgmma_step_cycles(c);
  const double results = static_cast<double>(c.block_m) * c.block_n;
  // Each of eight warps reads one and a half lines of shared memory for an element of K.
  if (is_single(c)) return 8 * kDepth * 1.5;
  if (c.family == MatmulFamily::simt) return results * kDepth / 55;
  // Each warp reads its rows and columns from shared memory.
  const double reads = results / c.warp_m / c.warp_n * (c.warp_m + c.warp_n) + c.block_m + c.block_n;
  return std::max(results * kDepth / 1300, reads * kDepth * 2 / kSharedBytes) + kStepOverhead;
}

// Splitting buys parallelism for a cost that does not pay for short K.
std::vector<int> splits_of(const MatmulConfig& c, int64_t k, int arch) {
  std::vector<int> splits{1};
  if (is_single(c) || c.alternate || c.handed || (c.warpgroups > 1 && c.resident > 1)) return splits;
  const int most = arch >= kClusterArch ? 8 : 32;
  const int steps = c.family == MatmulFamily::simt ? 1 : 2;  // that a part has at least
  for (const int s : {2, 3, 4, 8, 16, 32})
    if (s <= most && ceil_div(k, kDepth) >= steps * s) splits.push_back(s);
  return splits;
}

// Rows of x that wgmma loads into stages: along m only whole panels.
int64_t loaded_rows(const MatmulSizes& sizes, const MatmulConfig& c) {
  if (keeps_x(sizes, c)) return 0;
  return sizes.x_along_k ? std::min<int64_t>(ceil_div(sizes.m, 8) * 8, c.block_m) : c.block_m;
}

// Where the tile of single.cuh is worth a look: long products and many results want larger tiles, which read
// less per result.
bool wants_single(const MatmulSizes& sizes) {
  const double tiles = static_cast<double>(ceil_div(sizes.m, kSingleSide)) *
                       static_cast<double>(ceil_div(sizes.n, kSingleSide));
  return sizes.k <= 2 * kDepth && tiles * static_cast<double>(sizes.batch) <= 2 * kMultiprocessors;
}

int64_t tiles_of(const MatmulSizes& sizes, const MatmulConfig& c) {
  return sizes.batch * ceil_div(sizes.m, c.block_m) * ceil_div(sizes.n, c.block_n);
}

// So many that blocks take several.
bool has_several_tiles(const MatmulSizes& sizes, const MatmulConfig& c) {
  return tiles_of(sizes, c) > capacity(c);
}

// Stages of wgmma beyond those of its tile, or fewer.
void set_stages(const MatmulSizes& sizes, MatmulConfig& c) {
  const int64_t tiles = tiles_of(sizes, c) * c.splits;
  if (tiles > capacity(c)) return;
  // Few rows: the time is that of the weights, of which enough must be under way, whatever x takes beside
  // them: half the memory of one row's stages. The rest the next launch fills with its own weights meanwhile.
  constexpr int64_t kHalfMemory = 96 * 1024, kMostStages = 24, kStepBytes = kDepth * 2;
  if (keeps_x(sizes, c)) {
    // One block of each multiprocessor leaves half of the memory to the next launch. Several take all of it,
    // so that they spread evenly (five stages of 64 x 64 let four blocks crowd on half of the machine); the
    // next launch's blocks then take the places of those that end.
    constexpr int64_t kHalfOfAll = 113 * 1024, kOther = 12 * 1024;  // other: the system's, the epilogue's
    const int64_t blocks = std::max<int64_t>(1, ceil_div(tiles, kMultiprocessors));
    const int64_t room =
        2 * kHalfOfAll / std::max<int64_t>(blocks, 2) - kOther - kept_x_bytes(sizes, c, true);
    c.stages = static_cast<int>(std::clamp<int64_t>(room / (c.block_n * kStepBytes), 2, kMostStages));
  } else if (sizes.m <= 64) {
    const int64_t blocks = std::max<int64_t>(1, ceil_div(tiles, kMultiprocessors));  // of one multiprocessor
    const int64_t wanted = kHalfMemory / blocks / ((8 + c.block_n) * kStepBytes);
    const int64_t room = kPipelineBytes / std::max<int64_t>(blocks, c.resident) /
                         ((loaded_rows(sizes, c) + c.block_n) * kStepBytes);
    c.stages = static_cast<int>(std::clamp<int64_t>(std::min(wanted, room), 2, kMostStages));
  }
  // A block with one tile has no use for more stages than steps.
  c.stages =
      static_cast<int>(std::clamp<int64_t>(ceil_div(ceil_div(sizes.k, kDepth), c.splits), 2, c.stages));
}

// The best of them with half and with twice the stages: how far a launch should load ahead depends on what
// runs before and after it, of which the estimate knows nothing.
void add_other_stages(const MatmulSizes& sizes, std::vector<MatmulConfig>& configs) {
  constexpr size_t kBest = 6;
  std::vector<MatmulConfig> others;
  for (size_t i = 0; i < std::min(kBest, configs.size()); ++i) {
    const int64_t stage = (loaded_rows(sizes, configs[i]) + configs[i].block_n) * kDepth * 2;
    const int64_t kept = keeps_x(sizes, configs[i]) ? kept_x_bytes(sizes, configs[i], true)
                         : deals_chunks(configs[i]) ? dealt_bytes(configs[i])
                                                    : 0;
    const int64_t most = (kPipelineBytes / configs[i].resident - kept) / stage;
    const int64_t steps = ceil_div(ceil_div(sizes.k, kDepth), configs[i].splits);
    for (const int64_t stages :
         {configs[i].stages / int64_t{2}, std::min(configs[i].stages * int64_t{2}, most)}) {
      if (stages < 2 || stages == configs[i].stages || configs[i].handed ||
          stages > std::max<int64_t>(steps, 2))
        continue;
      others.push_back(configs[i]);
      others.back().stages = static_cast<int>(stages);
    }
  }
  configs.insert(configs.end(), others.begin(), others.end());
}

int64_t sliced_depth(const MatmulSizes& sizes, MatmulFamily family) {
  return family == MatmulFamily::mma ? sizes.k / 2 : sizes.k;  // in tf32 k counts twice
}

double sliced_cycles(const MatmulSizes& sizes, const MatmulConfig& c) {
  const int64_t blocks = tiles_of(sizes, c) * c.splits;
  const int64_t resident =
      std::max<int64_t>(1, std::min<int64_t>(kPipelineBytes / sliced_bytes(c), 48 / c.slices));
  const double waves = static_cast<double>(ceil_div(blocks, kMultiprocessors * resident));
  const auto sharing = static_cast<double>(ceil_div(blocks, kMultiprocessors));  // in all waves
  const double depth = static_cast<double>(sliced_depth(sizes, c.family)) / c.splits;
  const double results = static_cast<double>(c.block_m) * c.block_n;
  const double full = c.family == MatmulFamily::mma ? kSlicedTf32 : kSlicedSimt;
  const double warps = std::min(sharing, static_cast<double>(resident)) * c.slices;
  const double products = sharing * results * depth / (full * std::min(1.0, warps / kWarpsEnough));
  const double loads = sharing * (c.block_m + c.block_n) * depth * 4 / kSlicedBytes;
  double cycles = kStart + std::max(products, loads) + waves * c.slices * kSliceSum +
                  sharing * results * kSlicedResult / c.splits;
  if (c.splits > 1) cycles += waves * (kSlicedCluster + kClusterPart * c.splits);
  // Rows of y that do not start at 16 bytes.
  if (!sizes.y_along_k && sizes.n % 4 != 0)
    cycles += kSlicedElement * std::max(0.0, depth / c.slices - static_cast<double>(kLeastSlice));
  return cycles;
}

}  // namespace

int64_t dealt_bytes(const MatmulConfig& c) {
  return int64_t{c.block_m} * c.block_n * 4 / c.splits * (c.splits - 1);
}

bool deals_chunks(const MatmulConfig& c) {
  constexpr int64_t kMostBytes = 32 * 1024;
  return c.family == MatmulFamily::wgmma && c.cluster && c.warpgroups == 2 && c.block_n % 64 == 0 &&
         c.block_m / 128 * (c.block_n / 64) % c.splits == 0 && dealt_bytes(c) <= kMostBytes;
}

int64_t blocks_of_row(const MatmulSizes& sizes, const MatmulConfig& c) {
  constexpr int64_t kMostSteps = 6;  // of x in shared memory, beside three stages of y and what is handed on
  const int64_t rows = ceil_div(sizes.m, c.block_m), columns = ceil_div(sizes.n, c.block_n);
  if (!c.stays || sizes.batch != 1 || !sizes.x_along_k || ceil_div(sizes.k, kDepth) > kMostSteps ||
      rows < 1 || rows > kMultiprocessors)
    return 0;
  const int64_t blocks = kMultiprocessors / rows;
  return columns >= 2 * blocks ? blocks : 0;
}

bool keeps_x(const MatmulSizes& sizes, const MatmulConfig& c) {
  constexpr int64_t kMostRows = 8, kMostBytes = 16 * 1024;
  return c.family == MatmulFamily::wgmma && c.warpgroups == 1 && sizes.batch == 1 && sizes.m >= 1 &&
         sizes.m <= kMostRows && sizes.x_along_k && sizes.k % kDepth == 0 &&
         kept_x_bytes(sizes, c, false) <= kMostBytes;
}

int64_t kept_x_bytes(const MatmulSizes& sizes, const MatmulConfig& c, bool own_part) {
  const int64_t steps = ceil_div(sizes.k, kDepth);
  return sizes.m * (own_part ? ceil_div(steps, c.splits) : steps) * kDepth * 2;
}

std::vector<MatmulConfig> matmul_tiles(MatmulFamily family, int element_bytes) {
  const auto simt = [](int m, int n) {
    return MatmulConfig{.family = MatmulFamily::simt, .block_m = m, .block_n = n};
  };
  const auto mma = [](int m, int n, int warp_m, int warp_n, int stages) {
    return MatmulConfig{.family = MatmulFamily::mma,
                        .block_m = m,
                        .block_n = n,
                        .warp_m = warp_m,
                        .warp_n = warp_n,
                        .stages = stages};
  };
  const auto wgmma = [](int m, int n, int warpgroups, int stages, int resident) {
    return MatmulConfig{.family = MatmulFamily::wgmma,
                        .block_m = m,
                        .block_n = n,
                        .stages = stages,
                        .warpgroups = warpgroups,
                        .resident = resident};
  };
  const auto alternate = [&](int m, int n, int stages) {
    MatmulConfig config = wgmma(m, n, 2, stages, 1);
    config.alternate = true;
    return config;
  };
  const auto staying = [&](int m, int n, int stages) {
    MatmulConfig config = wgmma(m, n, 2, stages, 1);
    config.handed = config.stays = true;
    return config;
  };
  const auto handed = [&](int m, int n, int stages) {
    MatmulConfig config = wgmma(m, n, 2, stages, 1);
    config.handed = true;
    return config;
  };
  switch (family) {
    case MatmulFamily::simt:
      if (element_bytes == 8) return {simt(64, 64), simt(32, 32), simt(kSingleSide, kSingleSide)};
      return {simt(128, 128), simt(64, 64), simt(32, 32), simt(kSingleSide, kSingleSide)};
    case MatmulFamily::mma:
      // At most 96 KiB of stages: what a block of sm_86 and sm_89 can have.
      return {mma(128, 128, 64, 32, 3), mma(128, 64, 32, 32, 4), mma(64, 64, 32, 32, 4),
              mma(64, 32, 16, 32, 5),   mma(16, 128, 16, 32, 5), mma(16, 64, 16, 32, 6)};
    default:
      // Pipelines of at most 200 KiB, of 100 KiB where two blocks share a multiprocessor: the rest is the
      // epilogue's.
      return {staying(128, 192, 3),     wgmma(256, 128, 2, 4, 1), wgmma(128, 192, 2, 5, 1),
              wgmma(128, 128, 2, 6, 1), handed(128, 256, 3),      handed(128, 192, 4),
              handed(128, 128, 5),      alternate(128, 128, 6),   wgmma(128, 96, 2, 7, 1),
              wgmma(128, 64, 2, 8, 1),  wgmma(64, 64, 1, 6, 2),   wgmma(64, 32, 1, 16, 1),
              wgmma(64, 32, 1, 8, 2)};
  }
}

int64_t sliced_bytes(const MatmulConfig& c) {
  const int64_t stages = c.stages * (c.block_m + c.block_n) * kSliceStage * 4;
  // Sent by the cluster's blocks, and a barrier.
  const int64_t parts = int64_t{c.block_m} * c.block_n * 4 + 16;
  return c.slices * stages + (c.cluster ? parts : 0);
}

std::vector<MatmulConfig> matmul_sliced_configs(const MatmulSizes& sizes, MatmulFamily family, int arch) {
  std::vector<MatmulConfig> configs;
  const int64_t tiles = sizes.batch * ceil_div(sizes.m, kSlicedSide) * ceil_div(sizes.n, kSlicedSide);
  if (!sizes.f32 || family == MatmulFamily::wgmma || tiles > kMostSlicedTiles) return configs;
  // So short a K has nothing to slice: on an H100 a step of such products took 7.5 us with single.cuh, 12 so.
  if (family == MatmulFamily::simt && sizes.k <= kDepth && wants_single(sizes)) return configs;
  const int64_t depth = sliced_depth(sizes, family);
  MatmulConfig config{.family = family, .block_m = kSlicedSide, .block_n = kSlicedSide};
  // Short products of different sizes are alike, so that they can share a launch.
  const bool is_short = depth <= 4 * kSliceStage;
  config.slices = is_short ? 4 : 8;
  for (const int splits : {1, 2, 4, 8}) {
    const bool splittable =
        arch >= kClusterArch && !is_short && depth >= splits * config.slices * kLeastSlice;
    if (splits > 1 && !splittable) continue;
    config.splits = splits;
    config.cluster = splits > 1;
    const int64_t room = arch >= kClusterArch ? kPipelineBytes : 96 * 1024;
    const int64_t steps = ceil_div(depth, splits * config.slices * kSliceStage);
    for (config.stages = 4; config.stages > 1 && (config.stages > steps || sliced_bytes(config) > room);)
      --config.stages;
    configs.push_back(config);
  }
  return configs;
}

double matmul_cycles(const MatmulSizes& sizes, const MatmulConfig& c) {
  if (c.slices > 0) return sliced_cycles(sizes, c);
  const int64_t blocks = tiles_of(sizes, c) * c.splits;
  const double running = static_cast<double>(std::min(blocks, capacity(c)));
  const int64_t sharing_row = blocks_of_row(sizes, c);
  const double waves = static_cast<double>(
      sharing_row > 0 ? ceil_div(ceil_div(sizes.n, c.block_n), sharing_row) : ceil_div(blocks, capacity(c)));
  // Blocks on a multiprocessor.
  const double mean = running / kMultiprocessors;
  const double sharing = waves > 1 ? std::ceil(mean) : std::max(1.0, mean);
  const double steps = static_cast<double>(ceil_div(ceil_div(sizes.k, kDepth), c.splits));
  const double loaded = ((c.stays ? 0 : c.block_m) + c.block_n) * kDepth * 2;
  const double latency = is_single(c)                     ? kSingleLatency
                         : c.family == MatmulFamily::simt ? kSimtLatency
                                                          : kLoadLatency / (c.stages + (c.stays ? 1 : 0));
  const double step = std::max({step_cycles(c) * sharing, loaded * running / kL2Bytes, latency});
  const double results = static_cast<double>(c.block_m) * c.block_n;
  const bool large = c.family == MatmulFamily::wgmma && c.resident == 1;
  const double result_cycles = c.alternate ? kTurnCycles : large ? kResultCycles : kSmallResultCycles;
  const double stored =
      results * result_cycles * sharing / (c.resident > 1 ? 2 : 1) / (c.cluster ? c.splits : 1);
  // Of warpgroups that take turns, only the last one's epilogue is not behind another's products; what is
  // handed on has the time of the next tile's.
  const double tile =
      c.handed ? std::max(steps * step, results * (has_few_storers(c) ? kFewHandedCycles : kHandedCycles))
               : steps * step;
  double cycles = waves * tile + (c.handed ? 1 : c.alternate ? 2 : waves) * stored;
  const double touched = static_cast<double>(sizes.batch) * 2 *
                         (static_cast<double>(sizes.m) * sizes.k + static_cast<double>(sizes.k) * sizes.n +
                          static_cast<double>(sizes.m) * sizes.n);
  // Behind the memory's time the rest does not hide entirely.
  cycles = kStart + std::max(cycles, touched / kMemoryBytes + kBehindMemory * cycles);
  const double result = c.family == MatmulFamily::simt ? kSimtClusterResult : kClusterResult;
  // The blocks of a cluster have one tile: in each wave they start, load and add anew.
  if (c.splits > 1 && c.cluster) {
    const double sum =
        keeps_x(sizes, c)
            ? kFewClusterSum + kFewClusterPart * c.splits
            : (kClusterSum + kClusterPart * c.splits) * std::min(sharing, kMostSharing) + result * results;
    cycles += waves * sum + std::max(waves - 1, 0.0) * (kStart + kLoadLatency);
  }
  if (c.splits > 1 && !c.cluster) cycles += kWorkspaceSum;
  return cycles;
}

std::vector<MatmulConfig> matmul_configs(const MatmulSizes& sizes, MatmulFamily family, int arch,
                                         int element_bytes) {
  std::vector<std::pair<double, MatmulConfig>> found;
  for (const MatmulConfig& tile : matmul_tiles(family, element_bytes)) {
    // Rows of y along n come in panels of 64.
    if (family == MatmulFamily::wgmma && !sizes.y_along_k && tile.block_n % 64 != 0) continue;
    if (is_single(tile) && !wants_single(sizes)) continue;
    if (tile.handed && !has_several_tiles(sizes, tile)) continue;
    if (tile.stays && blocks_of_row(sizes, tile) == 0) continue;
    for (const int splits : splits_of(tile, sizes.k, arch)) {
      MatmulConfig config = tile;
      config.splits = splits;
      config.cluster = splits > 1 && arch >= kClusterArch;
      if (deals_chunks(config))
        config.stages = static_cast<int>((kPipelineBytes - dealt_bytes(config)) /
                                         ((config.block_m + config.block_n) * kDepth * 2));
      found.emplace_back(matmul_cycles(sizes, config), config);
    }
  }
  for (const MatmulConfig& config : matmul_sliced_configs(sizes, family, arch))
    found.emplace_back(matmul_cycles(sizes, config), config);
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<MatmulConfig> configs;
  for (auto& [cycles, config] : found) {
    if (family == MatmulFamily::wgmma) set_stages(sizes, config);
    configs.push_back(config);
  }
  if (family == MatmulFamily::wgmma) add_other_stages(sizes, configs);
  return configs;
}

std::vector<MatmulConfig> matmul_row_configs(const MatmulSizes& sizes) {
  constexpr int kMostBlocks = 8;  // of a cluster
  std::vector<MatmulConfig> configs;
  for (const int columns : {64, 128, 192, 256}) {
    const int64_t blocks = sizes.n / columns;
    if (sizes.n % columns != 0 || blocks < 1 || blocks > kMostBlocks) continue;
    configs.push_back({.family = MatmulFamily::wgmma,
                       .block_m = 128,
                       .block_n = columns,
                       .warpgroups = 2,
                       .row_blocks = static_cast<int>(blocks)});
  }
  return configs;
}

double matmul_row_cycles(const MatmulSizes& sizes, const MatmulConfig& config, int reductions) {
  const double exchange = kRowExchange * (config.row_blocks - 1);
  const double results = static_cast<double>(config.block_m) * config.block_n;
  // The blocks of a cluster have one tile: in each wave they start, load and reduce anew.
  const auto waves = static_cast<double>(ceil_div(tiles_of(sizes, config), capacity(config)));
  return matmul_cycles(sizes, config) + waves * reductions * (exchange + kRowResult * results) +
         std::max(waves - 1, 0.0) * (kStart + kLoadLatency);
}

MatmulConfig choose_matmul(const MatmulSizes& sizes, MatmulFamily family, int arch, int element_bytes) {
  return matmul_configs(sizes, family, arch, element_bytes).front();
}

std::string to_string(const MatmulConfig& c) {
  static constexpr const char* kNames[] = {"simt", "mma", "wgmma"};
  std::string text = std::string(kNames[static_cast<int>(c.family)]) + " " + std::to_string(c.block_m) + "x" +
                     std::to_string(c.block_n) + " stages " + std::to_string(c.stages);
  if (c.slices > 0) text += " slices " + std::to_string(c.slices);
  if (c.splits > 1) text += " splits " + std::to_string(c.splits) + (c.cluster ? " cluster" : " workspace");
  if (c.warpgroups > 0) text += " warpgroups " + std::to_string(c.warpgroups);
  if (c.resident > 1) text += " resident " + std::to_string(c.resident);
  if (c.alternate) text += " alternate";
  if (c.handed) text += " handed";
  if (c.stays) text += " x stays";
  if (c.row_blocks > 0) text += " rows of " + std::to_string(c.row_blocks);
  return text;
}

}  // namespace aicf
