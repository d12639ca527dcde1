#include "kernels/indexing/scatter_exact_cuda.h"

#include <algorithm>

#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/indexing/copy_cuda.h"
#include "kernels/indexing/scatter_text.h"

namespace aicf {

namespace {

// Of scatter_exact.cuh.
constexpr int32_t kSumBlock = 512;
constexpr int64_t kSumTile = 8192;
constexpr int64_t kMostSlots = 8192, kFewestSlots = 128;  // of a bucket
constexpr int64_t kMostSummed = int64_t{1} << 22;         // updates of a place

constexpr int64_t kLinesAcross = 8;      // read whole sectors of indices, and of f32
constexpr int64_t kMostLines = 64;       // of a group
constexpr int64_t kMostBuckets = 4096;   // of a group
constexpr int64_t kFewestSummed = 4096;  // updates that fewer launches sort, or look through
constexpr int64_t kStaticBytes = 1024;   // of shared memory, at most
constexpr int64_t kRounds = 8;           // of buckets, on each multiprocessor

int64_t item_bytes(DType dtype) { return is_half(dtype) ? 4 : 8; }

// Of shared memory, for so many buckets of a group, or slots of a bucket.
int64_t placing_bytes(DType dtype, int64_t buckets) {
  return kSumTile * (item_bytes(dtype) + 2) + buckets * 8;
}
int64_t sum_bytes(DType dtype, int64_t slots) {
  return slots * 8 + (dtype == DType::f16 ? slots / 2 : slots * 4);
}

struct SumTexts {
  const CudaProblem& problem;
  const BucketScatter& scatter;
  size_t axis;
  bool from_out;
  std::string type;

  static Dim padded(const Dim& bytes) { return ceildiv(bytes, Dim(16)) * Dim(16); }
  Dim groups() const { return scatter.line_groups(); }
  Dim count_bytes() const { return groups() * scatter.buckets() * Dim(4); }
  Dim start_bytes() const { return padded(groups() * (scatter.buckets() + Dim(1)) * Dim(4)); }
  Dim cleared_bytes() const { return padded(count_bytes() * Dim(2)); }
  DType dtype() const { return problem.outputs[0].dtype; }
  Dim bytes() const {
    return cleared_bytes() + start_bytes() +
           scatter.lines.count() * scatter.updates * Dim(item_bytes(dtype()));
  }
  // So that an empty tile says where nothing begins.
  Dim tiles() const { return groups() * max(scatter.tiles(), Dim(1)); }
  Dim all_buckets() const { return groups() * scatter.buckets(); }

  std::string head(CudaParams& params) const {
    const auto at = [&](const Dim& bytes) {
      return "static_cast<char*>(workspace) + " + params.expr(bytes) + ");\n";
    };
    return bucket_lines_text(problem, scatter, axis, from_out, max(tiles(), all_buckets()) * Dim(kSumBlock),
                             params) +
           "  using T = " + type + ";\n  using Shape = aicf::SumShape<" +
           std::to_string(scatter.lines_per_block) + ", " + std::to_string(scatter.bits) + ", " +
           (scatter.across ? "true" : "false") +
           ">;\n  auto* counts = static_cast<uint32_t*>(workspace);\n  auto* placed = "
           "reinterpret_cast<uint32_t*>(" +
           at(count_bytes()) + "  auto* starts = reinterpret_cast<uint32_t*>(" + at(cleared_bytes()) +
           "  auto* items = reinterpret_cast<aicf::BucketItem<sizeof(T)>*>(" +
           at(cleared_bytes() + start_bytes());
  }
};

}  // namespace

std::optional<BucketScatter> exact_sums(const CudaProblem& problem, size_t axis) {
  BucketScatter s = bucket_lines(problem, axis);
  const auto most = [&](const Dim& dim) { return upper_bound(dim, problem.ranges); };
  const auto usual = [&](const Dim& dim) { return size_to_choose_by(dim, problem); };
  const int64_t lines = usual(s.lines.count()), updates = usual(s.updates), targets = usual(s.targets);
  const DType dtype = problem.outputs[0].dtype;
  const int64_t shared = shared_limit(problem.arch) - kStaticBytes;
  const int64_t most_buckets = std::min(kMostBuckets, (shared - placing_bytes(dtype, 0)) / 8);
  if (lines < 2 || lines * updates <= kFewestSummed || updates > kScatterChunk * targets ||
      most(s.updates) > kMostSummed || most(s.targets) > most_buckets * kMostSlots)
    return std::nullopt;
  // Short lines fill a tile together.
  int64_t& group = s.lines_per_block;
  group = s.across ? kLinesAcross : 1;
  while (group < kMostLines && kSumTile / group >= 2 * updates) group *= 2;
  while (group >= 2 * lines) group /= 2;
  s.tile = kSumTile / group;
  const int64_t groups = ceil_div(lines, group);
  const auto buckets = [&](int64_t all) { return ceil_div(all, int64_t{1} << s.bits); };
  while (group << (s.bits + 1) <= kMostSlots && sum_bytes(dtype, group << (s.bits + 1)) <= shared) ++s.bits;
  while (group << (s.bits - 1) >= kFewestSlots && buckets(most(s.targets)) * 2 <= most_buckets &&
         groups * buckets(targets) < kRounds * problem.machine.multiprocessors)
    --s.bits;
  s.buckets_per_line = buckets(most(s.targets));
  if (s.buckets_per_line > most_buckets) return std::nullopt;
  return s;
}

CudaCode exact_sums_code(const CudaProblem& problem, size_t axis, const BucketScatter& given) {
  BucketScatter scatter = given;
  const bool in_place = problem.replaces(0), copies = !in_place && !scatter.covers,
             from_out = in_place || copies, one = is_one_element(problem.inputs[0]);
  if (from_out) scatter.lines.strides[3] = scatter.lines.strides[2];
  const SumTexts texts{problem, scatter, axis, from_out,
                       element_type(problem.outputs[0].dtype, ScatterReduction::add)};
  CudaCode code;
  code.source = includes({"indexing/indexing.cuh", "indexing/scatter_exact.cuh"});
  code.workspace_bytes = texts.bytes();
  if (copies) add_copy(code, problem, 0, "copy");
  const auto add = [&](const std::string& name, const Dim& blocks, int64_t shared, int min_blocks,
                       const std::string& call) {
    CudaParams params;
    const std::string body = texts.head(params) + "  aicf::" + name + "<Shape" + call;
    CudaLaunch launch = flat_launch(name, blocks, kSumBlock, params);
    launch.shared_bytes = shared;
    launch.reports_errors = name == "count_bucket_updates";
    add_kernel(code, problem, std::move(launch), body, min_blocks);
  };
  CudaParams params;
  const Dim units = floordiv(texts.cleared_bytes(), Dim(16));
  const std::string clear =
      "  aicf::clear_bucket_counts(static_cast<uint4*>(workspace), " + params.expr(units) + ");\n";
  add_kernel(code, problem,
             flat_launch("clear_bucket_counts", blocks_for(units, kScatterBlock), kScatterBlock, params),
             clear);
  add("count_bucket_updates", texts.tiles(), scatter.buckets_per_line * 4, 0, ">(s, in1, counts, error);\n");
  const std::string updates = pointer_text(texts.type, "in2", true);
  add("place_bucket_updates", texts.tiles(), placing_bytes(texts.dtype(), scatter.buckets_per_line), 2,
      ", T>(s, in1, " + updates + ", counts, placed, starts, items);\n");
  const std::string start = from_out ? "kInPlace" : one ? "kFromOne" : "kFromX";
  add("sum_buckets", texts.all_buckets(), sum_bytes(texts.dtype(), scatter.lines_per_block << scatter.bits),
      0,
      ", aicf::" + start + ">(s, starts, items, " +
          pointer_text(texts.type, from_out ? "out0" : "in0", true) + ", " +
          pointer_text(texts.type, "out0", false) + ");\n");
  return code;
}

}  // namespace aicf
