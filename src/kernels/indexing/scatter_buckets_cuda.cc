#include "kernels/indexing/scatter_buckets_cuda.h"

#include <algorithm>
#include <bit>

#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/indexing/copy_cuda.h"
#include "kernels/indexing/scatter_cuda.h"

namespace aicf {

namespace {

// Of scatter_buckets.cuh.
constexpr int32_t kBucketBlock = 256;
constexpr int64_t kCounters = 4096;  // of a block
constexpr int64_t kFewestLines = 4;  // read whole sectors of indices
constexpr int64_t kMostTargetBits = 8, kFewestTargetBits = 5;
constexpr int64_t kRunBytes = 1 << 15;  // of shared memory, of a block
constexpr int64_t kEnoughWarps = 16;    // of a multiprocessor
// What all blocks at work place stays in the L2 cache until its sectors are whole.
constexpr int64_t kLongestTile = 512, kShortestTile = 256;
constexpr int64_t kSortedByOne = 4096;  // that one block sorts

int64_t bucket_run_bytes(DType dtype) { return dtype_bytes(dtype) == 8 ? 32 : 16; }

// What all its kernels begin with.
struct BucketTexts {
  const CudaProblem& problem;
  const BucketScatter& scatter;
  size_t axis;

  Dim line_count() const { return scatter.lines.count(); }
  Dim buckets() const { return scatter.buckets(); }
  Dim tiles() const { return scatter.tiles(); }
  Dim offset_bytes() const {
    return ceildiv(line_count() * (buckets() * tiles() + Dim(1)) * Dim(4), Dim(16)) * Dim(16);
  }
  Dim item_bytes() const {
    const int64_t bytes = dtype_bytes(problem.outputs[0].dtype);
    return line_count() * scatter.updates * Dim(bytes <= 2 ? 4 : 2 * bytes);
  }
  Dim line_groups() const { return scatter.line_groups(); }

  std::string head(const std::string& type, bool from_out, CudaParams& params) const {
    const Dim threads = line_groups() * tiles() * Dim(kBucketBlock) + line_count() * buckets() * Dim(32);
    return bucket_lines_text(problem, scatter, axis, from_out, threads, params) + "  using T = " + type +
           ";\n  auto* offsets = static_cast<uint32_t*>(workspace);\n  auto* items = "
           "reinterpret_cast<aicf::BucketItem<sizeof(T)>*>(static_cast<char*>(workspace) + " +
           params.expr(offset_bytes()) + ");\n";
  }
  std::string tile_kinds() const {
    return "<" + std::to_string(scatter.lines_per_block) + ", " + std::to_string(scatter.buckets_per_line) +
           ", " + std::to_string(scatter.bits) + ", " + (scatter.across ? "true" : "false") + ", T>";
  }
};

}  // namespace

BucketScatter bucket_lines(const CudaProblem& problem, size_t axis) {
  const CudaWindow &x = problem.inputs[0], &indices = problem.inputs[1], &updates = problem.inputs[2],
                   &out = problem.outputs[0];
  BucketScatter s;
  s.updates = indices.sizes[axis];
  s.targets = out.sizes[axis];
  s.covers = true;
  for (size_t i = 0; i < out.sizes.size(); ++i) {
    if (i == axis) continue;
    s.covers = s.covers && indices.sizes[i] == out.sizes[i];
    s.lines.add_axis(indices.sizes[i],
                     {indices.strides[i], updates.strides[i], out.strides[i], x.strides[i]});
  }
  s.lines.merge_axes();
  const size_t rank = s.lines.rank();
  s.across = rank > 0 && s.lines.strides[0][rank - 1] == Dim(1);
  return s;
}

std::string bucket_lines_text(const CudaProblem& problem, const BucketScatter& scatter, size_t axis,
                              bool from_out, const Dim& threads, CudaParams& params) {
  const CudaWindow &indices = problem.inputs[1], &updates = problem.inputs[2], &out = problem.outputs[0];
  const CudaWindow& x = from_out ? out : problem.inputs[0];
  const auto number = [&](const Dim& dim) { return "I(" + params.expr(dim) + ")"; };
  return "  using I = " + std::string(index_type(problem, threads)) + ";\n  const aicf::BucketLines<I, " +
         std::to_string(scatter.lines.rank()) + "> s = {" + walk_value(scatter.lines, params) + ", " +
         number(scatter.updates) + ", " + number(indices.strides[axis]) + ", " +
         number(updates.strides[axis]) + ", " + number(out.strides[axis]) + ", " + number(x.strides[axis]) +
         ", " + params.expr(scatter.targets) + ", int(" + params.expr(scatter.buckets()) + "), " +
         number(scatter.tiles()) + ", " + number(Dim(scatter.tile)) + "};\n";
}

std::optional<BucketScatter> bucket_scatter(const CudaProblem& problem, size_t axis) {
  BucketScatter s = bucket_lines(problem, axis);
  const auto most = [&](const Dim& dim) { return upper_bound(dim, problem.ranges); };
  const auto usual = [&](const Dim& dim) { return size_to_choose_by(dim, problem); };
  const int64_t lines = usual(s.lines.count()), per_line = usual(s.updates), targets = usual(s.targets);
  constexpr int64_t kMost = int64_t{1} << 30;
  if (lines < kFewestLines || lines * per_line <= kSortedByOne || most(s.updates) >= kMost ||
      most(s.targets) >= kMost || per_line > kScatterChunk * targets)
    return std::nullopt;
  if (problem.replaces(0) && 4 * per_line < targets) return std::nullopt;  // it reads and writes all targets
  s.bits = kMostTargetBits;
  while (s.bits > kFewestTargetBits &&
         lines * ceil_div(targets, int64_t{1} << s.bits) < kEnoughWarps * problem.machine.multiprocessors)
    --s.bits;
  int64_t buckets = ceil_div(most(s.targets), int64_t{1} << s.bits);
  while (buckets > kCounters / kFewestLines && s.bits <= kMostTargetBits) {
    ++s.bits;
    buckets = ceil_div(most(s.targets), int64_t{1} << s.bits);
  }
  if (buckets > kCounters / kFewestLines) return std::nullopt;
  s.lines_per_block = kFewestLines;
  s.buckets_per_line = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(buckets)));
  s.tile = kLongestTile;
  while (s.tile > kShortestTile && ceil_div(lines, s.lines_per_block) * ceil_div(per_line, s.tile) <
                                       4 * problem.machine.multiprocessors)
    s.tile /= 2;
  return s;
}

CudaCode bucket_scatter_code(const CudaProblem& problem, size_t axis, const BucketScatter& given,
                             ScatterReduction reduction, const std::string& type) {
  BucketScatter scatter = given;
  const bool copies = !problem.replaces(0) && !scatter.covers, from_out = copies || problem.replaces(0);
  if (from_out) scatter.lines.strides[3] = scatter.lines.strides[2];
  const BucketTexts texts{problem, scatter, axis};
  CudaCode code;
  code.source = includes({"indexing/indexing.cuh", "indexing/scatter_buckets.cuh"});
  code.workspace_bytes = texts.offset_bytes() + texts.item_bytes();
  if (copies) add_copy(code, problem, 0, "copy");
  const auto add = [&](const std::string& name, const Dim& blocks, int32_t threads, bool reports,
                       const std::string& call) {
    CudaParams params;
    const std::string body = texts.head(type, from_out, params) + call;
    CudaLaunch launch = flat_launch(name, blocks, threads, params);
    launch.reports_errors = reports;
    add_kernel(code, problem, std::move(launch), body);
  };
  const Dim tiles = texts.line_groups() * texts.tiles();
  const std::string updates = "reinterpret_cast<const T*>(in2)";
  add("count_buckets", tiles, kBucketBlock, true,
      "  aicf::count_buckets" + texts.tile_kinds() + "(s, in1, offsets, error);\n");
  add("add_bucket_counts", texts.line_count(), kBucketBlock, false,
      "  aicf::add_bucket_counts(s, offsets);\n");
  add("place_updates", tiles, kBucketBlock, false,
      "  aicf::place_updates" + texts.tile_kinds() + "(s, in1, " + updates + ", offsets, items);\n");
  const int64_t warps = std::clamp<int64_t>(
      kRunBytes / (bucket_run_bytes(problem.outputs[0].dtype) << scatter.bits), 1, kBucketBlock / 32);
  add("combine_buckets", ceildiv(texts.line_count() * texts.buckets(), Dim(warps)),
      static_cast<int32_t>(32 * warps), false,
      "  aicf::combine_buckets<" + std::to_string(static_cast<int64_t>(reduction)) + ", " +
          std::to_string(scatter.bits) + ", " + std::to_string(warps) +
          ", T>(s, offsets, items, reinterpret_cast<const T*>(" + (from_out ? "out0" : "in0") +
          "), reinterpret_cast<T*>(out0));\n");
  return code;
}

}  // namespace aicf
