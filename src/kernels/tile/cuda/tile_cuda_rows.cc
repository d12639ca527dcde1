#include "kernels/tile/cuda/tile_cuda_rows.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/tile/cuda/tile_moments.h"

namespace aicf {
namespace {

constexpr int64_t kReductionBytes = 32 * 8;  // of shared memory: a value per warp and item, and 32 at least
constexpr int64_t kMaxBlockRow = 32768;  // elements: longer rows take several blocks, if blocks form clusters
constexpr int64_t kMaxClusterRow = 8 * 512 * 64;
constexpr int64_t kEarlyBytes = 4 * 32;  // of a thread's registers for constants read ahead
constexpr int64_t kBytesInFlight = 64;   // of a thread's loads, which keep the memory busy
constexpr int64_t kRunBytes = 64;        // of a row that neighbouring threads load at once: whole sectors
constexpr int kMostRowsAtOnce = 4;

}  // namespace

CudaCode RowsWriter::write() {
  choose();
  plan_stages(kept_, splits_ > 1);
  for (size_t i = 0; i < space_.views.size(); ++i) pattern_of(i);
  CudaCode code;
  code.source = kTileIncludes;
  if (!fetched_.empty()) code.source += "#include \"tile/cuda/tile_row_prefetch.cuh\"\n";
  if (!values_.moments.empty()) code.source += kMomentsInclude;
  if (gathered_ != nullptr) code.source += "#include \"indexing/walk.cuh\"\n";
  code.member = is_member(problem_) && fetched_.empty();
  code.static_shared_bytes =
      std::max(kReductionBytes, int64_t{items_} * threads_ / 32 * 8) * reduction_count() +
      shared_moments_bytes();
  if (splits_ > 1) code.workspace_bytes = partial_bytes(rows_, splits_);
  std::vector<std::string> bodies;
  for (size_t s = 0; s < (splits_ > 1 ? stages_.size() : 1); ++s) {
    bodies.push_back(body_text(s));
    code.launches.push_back(launch_of(s));
  }
  if (has_sums()) {
    bodies.push_back(adding_text());
    code.launches.push_back(adding_launch(code.launches[0]));
    code.workspace_bytes = length_ * Dim(static_cast<int64_t>(sums().size()) * walk_blocks() * 4);
  }
  for (size_t s = 0; s < bodies.size(); ++s) {
    code.launches[s].params = params_.dims();
    code.launches[s].reports_errors = gathered_ != nullptr;
    code.source += cuda_kernel_head(gathered_ != nullptr ? *gathered_->kernel : problem_, code.launches[s],
                                    splits_ > 1 || has_sums(), has_sums() && s == 0 ? sum_blocks() : 0) +
                   bodies[s] + "}\n";
  }
  return code;
}

bool RowsWriter::has_sums() const {
  return std::any_of(values_.stores.begin(), values_.stores.end(), [](const TileStore& s) { return s.sums; });
}

bool RowsWriter::in_order(int id) const {
  const TileValue& v = value(id);
  const bool rounds = v.result == TileType::f32 || v.result == TileType::f64;
  return kept_ && cluster_ == 1 && rounds && (v.op == TileOp::reduce_sum || v.op == TileOp::reduce_prod);
}

void RowsWriter::choose() {
  rows_ = space_count(space_, 0, space_.outer);
  length_ = space_count(space_, space_.outer, space_.rank());
  vector_ = !has_inner() ? 1 : has_sums() ? vector_width(axis()) : shifted_width(axis());
  while (vector_ > 1 &&
         (bound(length_) < vector_ || (!one_inner_axis() && !divisible(space_.sizes[axis()], vector_))))
    vector_ /= 2;
  if (!has_sums()) choose_shifted(axis(), vector_);
  tail_ = !divisible(length_, vector_);
  const int64_t length = bound(length_), vectors = length / vector_ + (length % vector_ != 0);
  const bool reduces = values_.stages > 1;
  const int64_t rows = std::max<int64_t>(bound(rows_), 1);
  const bool clusters =
      problem_.arch >= 90 && length > kMaxBlockRow && length <= kMaxClusterRow && rows >= 16;
  // Rows that no block or cluster of blocks holds are read again in every stage.
  if (length > kMaxBlockRow && !clusters && !has_sums()) join_moments(values_, length_);
  if (has_sums()) {
    choose_sums(vectors);
  } else if (length > kMaxBlockRow && rows >= problem_.machine.filling_blocks() && choose_fetched_rows()) {
    group_ = threads_ = kLongRowThreads, items_ = 1, kept_ = false;
  } else if (clusters) {
    choose_cluster(vectors);
  } else if (reduces && rows < problem_.machine.multiprocessors && length > kMaxBlockRow &&
             vectors * rows >= 4 * 4096) {
    group_ = threads_ = kLongRowThreads, items_ = 1, kept_ = false;
    splits_ =
        static_cast<int>(std::clamp<int64_t>(vectors / 1024, 1, problem_.machine.balanced_splits(rows)));
  } else {
    choose_group(std::max<int64_t>(vectors, 1), rows);
  }
}

void RowsWriter::choose_group(int64_t vectors, int64_t rows) {
  const int most = std::max(1, 32 / vector_);
  if (vectors <= 32 * most) {
    double best = 0;
    for (int group = 32; group >= 1; group /= 2) {
      const int64_t items = (vectors + group - 1) / group;
      const double used = static_cast<double>(vectors) / static_cast<double>(items * group);
      if (items > most || used < best + 0.15) continue;
      best = used, group_ = group, items_ = static_cast<int>(items);
    }
    choose_rows_at_once(vectors, rows);
  } else {
    kept_ = vectors * vector_ <= int64_t{1024} * kMaxKept;
    int64_t items = 2;
    while (vectors > items * 512 && items * vector_ < kMaxKept) items *= 2;
    group_ = static_cast<int>(std::min<int64_t>(1024, ((vectors + items - 1) / items + 31) / 32 * 32));
    items_ = static_cast<int>((vectors + group_ - 1) / group_);
    if (!kept_) group_ = kLongRowThreads, items_ = 1;
    threads_ = group_;
  }
  whole_ = kept_ && length_.constant().value_or(0) > 0 && !tail_ && vectors == int64_t{items_} * group_;
}

int64_t RowsWriter::row_bytes() const {
  int64_t bytes = 0;
  for (size_t view = 0; view < input_count(); ++view)
    if (!one_element(view, axis())) bytes += view_bytes(view);
  return bytes;
}

void RowsWriter::choose_rows_at_once(int64_t vectors, int64_t rows) {
  const int64_t filling = 2048 * problem_.machine.multiprocessors;
  const auto used = [&](int group) {
    return static_cast<double>(vectors) / static_cast<double>((vectors + group - 1) / group * group);
  };
  int narrowest = 16;
  for (size_t view = 0; view < input_count(); ++view)
    if (!one_element(view, axis())) narrowest = std::min(narrowest, dtype_bytes(space_.views[view].dtype));
  const double least = used(group_) - 0.15;
  for (int group = group_ / 2; group * vector_ * narrowest >= kRunBytes; group /= 2) {
    const int group_before = group_, items_before = items_;
    group_ = group, items_ = static_cast<int>((vectors + group - 1) / group);
    if (row_bytes() <= kBytesInFlight && items_ * vector_ <= kMaxKept && used(group) >= least &&
        rows * group >= filling)
      continue;
    group_ = group_before, items_ = items_before;
    break;
  }
  while (gathered_ == nullptr && rows_at_once_ < kMostRowsAtOnce &&
         2 * rows_at_once_ * row_bytes() <= kBytesInFlight && rows * group_ >= 2 * rows_at_once_ * filling)
    rows_at_once_ *= 2;
  const int64_t threads = rows * group_ / rows_at_once_;
  threads_ = std::max(group_, threads < problem_.machine.multiprocessors * 256 ? 64
                              : threads < 2 * filling                          ? 128
                                                                               : 256);
}

void RowsWriter::choose_cluster(int64_t vectors) {
  threads_ = 512;
  const int64_t items = std::max(1, 16 / vector_);
  cluster_ = static_cast<int>(std::min<int64_t>(8, (vectors + items * threads_ - 1) / (items * threads_)));
  group_ = cluster_ * threads_;
  items_ = static_cast<int>((vectors + group_ - 1) / group_);
  whole_ = length_.constant() && !tail_ && vectors == int64_t{items_} * group_;
}

CudaLaunch RowsWriter::launch_of(size_t stage) {
  CudaLaunch launch;
  launch.function =
      "tile_rows" + tile_program_name(values_) + (splits_ > 1 ? "_stage" + std::to_string(stage) : "");
  launch.block = threads_;
  launch.cluster = cluster_;
  launch.shared_bytes = prefetch_ * (threads_ / group_) * fetched_row_bytes();
  for (size_t view : early_reads()) launch.early_inputs.push_back(static_cast<int32_t>(view));
  launch.grid[0] = cluster_ > 1 ? rows_ * Dim(cluster_) : ceildiv(rows_, Dim(block_rows()));
  if (walks_rows()) launch.grid[0] = Dim(walk_blocks());
  if (splits_ > 1 && stages_[stage].walks()) launch.grid[0] = rows_ * Dim(splits_);
  return launch;
}

int64_t RowsWriter::shared_moments_bytes() const {
  return static_cast<int64_t>(values_.moments.size()) * moments_room() * moments_bytes();
}

std::vector<size_t> RowsWriter::first_reads(size_t stage) const {
  std::vector<size_t> views, before;
  for (size_t s = 0; s <= stage; ++s)
    for (size_t view : loaded_views(stages_[s].elements))
      if (std::find(before.begin(), before.end(), view) == before.end()) {
        before.push_back(view);
        if (s == stage) views.push_back(view);
      }
  return views;
}

std::vector<size_t> RowsWriter::early_reads() {
  std::vector<size_t> views;
  if (!kept_ || splits_ > 1 || is_member(problem_) || has_sums()) return views;
  int64_t bytes = 0;
  for (size_t s = 0; s < stages_.size(); ++s)
    for (size_t view : first_reads(s)) {
      const int64_t more = view_bytes(view);
      if (view >= problem_.inputs.size() || !problem_.inputs[view].constant || pattern_of(view) >= 0 ||
          bytes + more > kEarlyBytes)
        continue;
      views.push_back(view);
      bytes += more;
    }
  return views;
}

int64_t RowsWriter::view_bytes(size_t view) const {
  return int64_t{items_} * register_bytes(view, axis(), vector_);
}

std::vector<size_t> RowsWriter::late_reads(size_t stage) {
  const std::vector<size_t> early = early_reads();
  std::vector<size_t> views = first_reads(stage);
  std::erase_if(views, [&](size_t v) { return std::find(early.begin(), early.end(), v) != early.end(); });
  return views;
}

bool RowsWriter::loads_ahead() {
  int64_t bytes = 0;
  for (size_t s = 0; s < stages_.size(); ++s)
    for (size_t view : late_reads(s)) bytes += view_bytes(view);
  return bytes <= 4 * 32;
}
CudaCode generate_tile_rows(const CudaProblem& problem, const TileSpace& space,
                            const GatheredRows* gathered) {
  return RowsWriter(problem, space, gathered).write();
}

}  // namespace aicf
