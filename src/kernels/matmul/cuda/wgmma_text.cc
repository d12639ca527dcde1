#include "kernels/matmul/cuda/wgmma_text.h"

#include <algorithm>

#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/common/tile_program.h"
#include "kernels/matmul/cuda/matmul_cycles.h"
#include "kernels/matmul/cuda/matmul_ways.h"

namespace aicf {
namespace {

constexpr int64_t kRowBytes = 128;     // of a stage: 64 halves
constexpr int64_t kBarrierBytes = 16;  // of a stage
constexpr int64_t kReserved = 1024;    // of a block by the system

bool has_loader_group(const MatmulWay& c) { return c.warpgroups == 2 && c.occupancy == 1; }

// Columns of a chunk in wgmma_epilogue.cuh.
int64_t chunk_columns(const MatmulWay& c, bool half_tile) {
  return c.block_n % 64 == 0 && half_tile ? 64 : 32;
}

// Its bytes, 16 rows of each of eight warps.
int64_t epilogue_rows_bytes(const MatmulWay& c, bool half_tile) {
  constexpr int64_t kWarps = 8;
  return kWarps * 16 * (chunk_columns(c, half_tile) * (half_tile ? 2 : 4) + 16);
}

// Chunks in wgmma.cuh: 16 rows of each warp.
int64_t chunk_bytes(const MatmulWay& c, const WgmmaTile& tile) {
  const int64_t columns = chunk_columns(c, tile.half_tile);
  const int64_t warps = int64_t{4} * c.warpgroups;
  // ResultBuffers in wgmma_epilogue_warps.cuh: all columns of the rows.
  if (has_epilogue_warps(c))
    return warps * kBarrierBytes + c.block_m * (columns * 2 + 16) * (c.block_n / columns);
  // RowExchange in row_epilogue.cuh: 16 rows of each warp.
  const int64_t exchanges = warps * tile.reductions * (16 * row_blocks(c) * 4 + 8);
  // WgmmaReduceScatter in wgmma_cluster.cuh: a barrier and the parts.
  const int64_t parts = reduce_scatters(c) ? 16 + reduce_scatter_bytes(c) : 0;
  return warps * 16 * (columns * (tile.half_tile ? 2 : 4) + 16) + exchanges + parts;
}

// FewRows::kBytes in few_rows.cuh.
int64_t few_rows_bytes(const MatmulWay& c) {
  const int64_t quads = c.block_n / 32;
  return split_parts(c) * ((quads + split_parts(c) - 1) / split_parts(c)) * 1024 + 16;
}

// Stages and what the epilogue needs.
int64_t product_bytes(const MatmulWay& c, const WgmmaTile& tile) {
  const int64_t results = int64_t{c.block_m} * c.block_n * 4, stage = wgmma_stage_bytes(c, tile),
                stages = c.stages * stage, epilogue = wgmma_epilogue_bytes(c, tile);
  // Where fewer rows of x are loaded, the last stage's products read on behind it.
  const int64_t read = tile.x_rows > 0 ? stages - stage + c.block_m * kRowBytes : 0;
  return std::max({read, stages + epilogue, epilogue == 0 ? results : 0});
}

// The matrix instruction with x by `x_operand`, whose values `inputs` gives. f32: in tf32.
// `adds`: d += a · b, else d = a · b.
std::string multiply_text(const std::string& name, const std::string& parameters, DType dtype, int columns,
                          const std::string& x_operand, int x_count, const std::string& flags,
                          const std::string& inputs, bool adds = true) {
  const int registers = columns / 2;
  const bool tf32 = dtype == DType::f32;
  const std::string type(tf32 ? "tf32" : dtype_name(dtype)),
      size = "m64n" + std::to_string(columns) + (tf32 ? "k8" : "k16");
  std::string names, operands;
  for (int i = 0; i < registers; ++i) {
    const std::string number = std::to_string(i), comma = i == 0 ? "" : ", ";
    names += comma + "%" + number;
    operands += comma + (adds ? "\"+f\"(d[" : "\"=f\"(d[") + number + "])";
  }
  return "struct " + name + " {\n  static __device__ __forceinline__ void run(float (&d)[" +
         std::to_string(registers) + "], " + parameters +
         ", uint64_t b) {\n    asm volatile(\"{\\n.reg .pred add;\\nsetp." + (adds ? "eq" : "ne") +
         ".u32 add, 0, 0;\\n\"\n"
         "        \"wgmma.mma_async.sync.aligned." +
         size + ".f32." + type + "." + type + " {" + names + "}, " + x_operand + ", %" +
         std::to_string(registers + x_count) + ", add, 1, 1" + flags + ";\\n}\"\n        : " + operands +
         "\n        : " + inputs + ", \"l\"(b));\n  }\n};\n";
}

// The operand of the matrix instruction whose four registers stand behind those of the results.
std::string x_registers(int columns) {
  const auto number = [&](int i) { return "%" + std::to_string(columns / 2 + i); };
  return "{" + number(0) + ", " + number(1) + ", " + number(2) + ", " + number(3) + "}";
}

// Steps left to load when the next launch may start. Measured on H100 where x is kept: 64 x 32 of 4096 x 4096
// take 12.7 us with 4, 13.1 with 0, 13.5 with 12; where x comes early too, so that blocks of two launches
// multiply at a time, 11.6 with 4, 12.1 with 0, 11.4 with 12, 12.1 with 20. A decoder of 64 x 64 tiles takes
// 1,098 us with 12, 1,115 with 4, 1,146 with 0, 1,152 with all.
// Where x has stages and comes early, 64 x 4096 x 4096 take 12.0 us with 16, 12.5 with 8, 13.2 with 0, and
// 128 x 4096 x 4096 in tiles of 64 x 64, two to a multiprocessor, 13.8 with 24, 14.6 with 16, 15.1 with 8;
// but 256 x 4096 x 4096, whose blocks have no room beside them, 18.3 with 0, 18.8 with 8, 21.5 with 24.
int steps_left(const MatmulWay& c, const WgmmaTile& tile) {
  if (tile.kept_bytes > 0) return c.occupancy > 1 || tile.early_x ? 12 : 4;
  if (!tile.early_x || c.warpgroups > 1) return 0;
  return c.occupancy > 1 && split_parts(c) == 1 ? 24 : 16;
}

// Blocks of a cluster. Two with a tile each are neighbours so, and ask for their common operand at about the
// same time: with x early 256 x 4096 x 4096 took 18.7 us in turns with others on an H100, 19.2 without.
int blocks_together(const MatmulWay& c, const WgmmaTile& tile, const Dim& tiles) {
  if (row_blocks(c) > 0) return row_blocks(c);
  if (splits_in_cluster(c)) return split_parts(c);
  if (multicast_blocks(c) > 1) return multicast_blocks(c);
  if (stream_blocks(c) > 0) return 1;
  return tile.early_x && c.warpgroups == 2 && tiles.constant() && *tiles.constant() % 2 == 0 ? 2 : 1;
}

// Blocks of 64 rows of a warpgroup.
int row_blocks_of(const MatmulWay& c) {
  return (is_ping_pong(c) ? c.block_m : c.block_m / c.warpgroups) / 64;
}

// Registers of a thread that multiplies, as take_registers() in wgmma.cuh says, less its sums and addresses;
// in an epilogue of f32 also less what is between memory and its operations.
int registers_left(const MatmulWay& c, bool wide_epilogue) {
  constexpr int kAll = 232, kAddresses = 52, kBetween = 24;
  return kAll - kAddresses - (wide_epilogue ? kBetween : 0) - row_blocks_of(c) * c.block_n / 2;
}

// Chunks of the epilogue's operands that registers hold before their use, as kPrefetch of WgmmaMatmul says.
int chunks_ahead(const MatmulWay& c, const WgmmaTile& tile) {
  // Blocks on a multiprocessor, so that each has registers to spare: for so many bytes of a result of two
  // chunks, or of one.
  constexpr int kFewBlocks = 2, kTwoChunks = 4, kOneChunk = 8;
  if (c.occupancy > kFewBlocks || tile.own_bytes > kOneChunk) return 0;
  const int most = tile.own_bytes > kTwoChunks ? 1 : 2;
  // Of rows of halves that are neighbours, two chunks of two such operands found registers in every tile.
  if (!has_loader_group(c) || !(tile.rounds_x || tile.boxes)) return most;
  const int left = registers_left(c, tile.rounds_x), chunk = tile.chunk.all(),
            rows = row_blocks_of(c) * tile.chunk.rows;
  if (chunk + rows > left) return 0;
  // The first of two chunks is there while the product runs, and where its rows lie.
  constexpr int kXOfRowBlock = 32, kRowsOfRowBlock = 12;
  const int x = tile.rounds_x ? row_blocks_of(c) * kXOfRowBlock : 0;
  const bool two =
      2 * chunk + rows + row_blocks_of(c) * kRowsOfRowBlock <= left && chunk <= registers_left(c, false) - x;
  return two ? most : 1;
}

}  // namespace

double wgmma_operand_waits(const MatmulWay& c, const WgmmaTile& tile) {
  constexpr double kInMemory = 6;
  if (tile.chunk.all() == 0) return 0;
  const int columns = tile.half_tile && c.block_n % 64 == 0 ? 64 : 32;
  const double chunks = row_blocks_of(c) * ceil_div(c.block_n, columns);
  const int ahead = chunks_ahead(c, tile);
  if (ahead > 0) return ahead == 2 ? 1 : chunks;
  const bool spills =
      has_loader_group(c) && tile.chunk.shared + tile.chunk.own > registers_left(c, tile.rounds_x);
  return chunks * tile.chunk.vectors * (spills ? kInMemory : 1);
}

int64_t wgmma_stage_bytes(const MatmulWay& c, const WgmmaTile& tile) {
  return ((tile.x_rows + 7) / 8 * 8 + c.block_n) * kRowBytes + kBarrierBytes;
}

int64_t wgmma_epilogue_bytes(const MatmulWay& c, const WgmmaTile& tile) {
  if (sends_few_rows(tile.x_rows, c)) return few_rows_bytes(c);
  if (stream_blocks(c) > 0) return 0;
  return splits_in_cluster(c) && !reduce_scatters(c) ? 0 : chunk_bytes(c, tile);
}

// kKeptBarriers and kKeptBytes in wgmma.cuh.
int64_t stationary_x_bytes(const MatmulWay& c, const WgmmaTile& tile) {
  return keeps_x_stationary(c) ? 1024 + int64_t{tile.kept_steps} * c.block_m * kRowBytes : 0;
}

int epilogue_warps(const MatmulWay& way, const TileProgram& epilogue, const Dim& k) {
  if (has_three_epilogue_warps(way)) return 3;
  // Measured on H100: with GELU four warps take as long as eight steps of 64 of k; at 384 seven take 1.5 us
  // less of 8,192 x 1,536, at 768 they gain nothing, nor where sums are all there is.
  constexpr int64_t kLongest = 512;
  const auto depth = k.constant();
  const bool calls = std::any_of(epilogue.stages.begin(), epilogue.stages.end(), [](const auto& stage) {
    return std::any_of(stage.begin(), stage.end(), [](const TileInstr& i) { return is_tile_function(i.op); });
  });
  return depth && *depth <= kLongest && calls ? 7 : 4;
}

std::string wgmma_type_text(const MatmulWay& c, const WgmmaTile& tile, bool sums) {
  const auto number = [](int v) { return std::to_string(v) + ", "; };
  const auto flag = [](bool v) { return std::string(v ? "true, " : "false, "); };
  const int ahead = chunks_ahead(c, tile);
  const int sharers = multicast_blocks(c);
  const std::string split = row_blocks(c) > 0      ? "kRow, "
                            : sharers > 1          ? "kMulticast, "
                            : sums                 ? "kSum, "
                            : splits_in_cluster(c) ? "kCluster, "
                            : stream_blocks(c) > 0 ? "kStream, "
                                                   : "kNone, ";
  const std::string product =
      "aicf::WgmmaMatmul<Multiply, " + number(c.block_m) + number(c.block_n) + number(c.stages) +
      number(c.warpgroups) + flag(has_loader_group(c)) + flag(is_ping_pong(c)) + number(ahead) +
      flag(tile.x_along_k) + flag(tile.y_along_k) + number(tile.x_rows) + flag(tile.constant_y) +
      "aicf::Split::" + split + number(stream_blocks(c) > 0 ? stream_blocks(c) : split_parts(c) * sharers) +
      std::to_string(steps_left(c, tile)) + (tile.early_x ? ", true>" : ">");
  const std::string kept_steps = tile.kept_steps > 0 ? ", " + std::to_string(tile.kept_steps) : "";
  if (has_epilogue_warps(c))
    return "aicf::EpilogueWarpsMatmul<" + product + ", " + std::to_string(tile.epilogue_warps) + kept_steps +
           ">";
  if (tile.kept_bytes > 0)
    return "aicf::WgmmaRsMatmul<" + product + ", MultiplyRs, " +
           number(static_cast<int>(product_bytes(c, tile))) + (tile.own_part ? "true>" : "false>");
  return row_blocks(c) > 0
             ? "aicf::RowReductionMatmul<" + product + ", " + std::to_string(row_blocks(c)) + ">"
             : product;
}

int64_t tf32x3_stage_bytes(const MatmulWay& c, bool y_along_k) {
  constexpr int64_t kBarriers = 32;
  return (c.block_m + int64_t{c.block_n} * (y_along_k ? 2 : 3)) * kRowBytes + kBarriers;
}

int64_t tf32x3_bytes(const MatmulWay& c, bool y_along_k, bool half_tile) {
  return c.stages * tf32x3_stage_bytes(c, y_along_k) + epilogue_rows_bytes(c, half_tile);
}

int tf32x3_stages(const MatmulWay& c, bool y_along_k) {
  constexpr int64_t kMost = 6;
  const int64_t room =
      shared_limit(90) - kReserved - std::max(epilogue_rows_bytes(c, true), epilogue_rows_bytes(c, false));
  return static_cast<int>(std::min(room / tf32x3_stage_bytes(c, y_along_k), kMost));
}

std::string tf32x3_type_text(const MatmulWay& c, const WgmmaTile& tile) {
  // Registers of a thread as in wgmma_tf32x3.cuh, less its sums, addresses and what is between memory and the
  // operations of an epilogue of f32.
  constexpr int kAll = 224, kOther = 76;
  const bool fits = tile.chunk.all() <= kAll - kOther - c.block_n / 2;
  const auto number = [](int v) { return std::to_string(v) + ", "; };
  const auto flag = [](bool v) { return std::string(v ? "true" : "false"); };
  return "aicf::WgmmaTf32x3<Multiply, MultiplyFirst, " + number(c.block_m) + number(c.block_n) +
         number(c.stages) + number(fits ? 1 : 0) + flag(tile.x_along_k) + ", " + flag(tile.y_along_k) + ", " +
         flag(tile.constant_y) + ", aicf::Split::" + (splits_in_cluster(c) ? "kCluster, " : "kNone, ") +
         std::to_string(split_parts(c)) + ">";
}

CudaLaunch tf32x3_launch(const MatmulWay& c, const WgmmaTile& tile, const Dim& tiles) {
  CudaLaunch launch;
  launch.block = 384;
  launch.shared_bytes = tf32x3_bytes(c, tile.y_along_k, tile.half_tile);
  if (tile.constant_y) launch.early_inputs = {1};
  launch.cluster = split_parts(c);
  launch.grid[0] =
      splits_in_cluster(c) ? tiles * Dim(split_parts(c)) : min(tiles, Dim(tile.machine.multiprocessors));
  return launch;
}

int wgmma_most_stages(const MatmulWay& c, const WgmmaTile& tile) {
  return static_cast<int>((shared_limit(90) / c.occupancy - kReserved - chunk_bytes(c, tile)) /
                          wgmma_stage_bytes(c, tile));
}

CudaLaunch wgmma_launch(const MatmulWay& c, const WgmmaTile& tile, const Dim& tiles) {
  CudaLaunch launch;
  launch.block = has_epilogue_warps(c) ? (has_three_epilogue_warps(c) ? 384 : 512)
                                       : 128 * c.warpgroups + (has_loader_group(c) ? 128 : 32);
  launch.shared_bytes = product_bytes(c, tile) + tile.kept_bytes + stationary_x_bytes(c, tile);
  launch.cluster = blocks_together(c, tile, tiles);
  if (tile.constant_y) launch.early_inputs = {1};
  if (tile.early_x) launch.early_inputs = {0, 1};
  launch.grid[0] = row_blocks(c) > 0      ? tiles
                   : splits_in_cluster(c) ? tiles * Dim(split_parts(c))
                   : stream_blocks(c) > 0 ? min(tiles * Dim(stream_blocks(c)), Dim(stream_blocks(c)))
                   : multicast_blocks(c) > 1
                       ? min(tiles, Dim(concurrent_blocks(c, tile.machine) / multicast_blocks(c))) *
                             Dim(multicast_blocks(c))
                       : min(tiles, Dim(tile.machine.multiprocessors * c.occupancy));
  return launch;
}

std::string wgmma_multiply_tf32_text(int columns, bool adds) {
  return multiply_text(adds ? "Multiply" : "MultiplyFirst", "const uint32_t (&a)[4]", DType::f32, columns,
                       x_registers(columns), 4, "", "\"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3])",
                       adds);
}

std::string wgmma_multiply_text(DType dtype, int columns, bool x_along_k, bool y_along_k) {
  return multiply_text(
      "Multiply", "uint64_t a", dtype, columns, "%" + std::to_string(columns / 2), 1,
      dtype == DType::f32 ? "" : std::string(x_along_k ? ", 0" : ", 1") + (y_along_k ? ", 0" : ", 1"),
      "\"l\"(a)");
}

std::string wgmma_multiply_ones_text(DType dtype, bool x_along_k) {
  const std::string one = "{%12, %12, %12, %12}";
  return multiply_text("MultiplyOnes", "uint32_t one", dtype, 24, one, 1, x_along_k ? ", 0" : ", 1",
                       "\"r\"(one)");
}

std::string wgmma_multiply_rs_text(DType dtype, int columns, bool y_along_k) {
  return multiply_text("MultiplyRs", "uint32_t low, uint32_t high", dtype, columns, x_registers(columns), 4,
                       y_along_k ? ", 0" : ", 1", "\"r\"(low), \"r\"(0), \"r\"(high), \"r\"(0)");
}

}  // namespace aicf
