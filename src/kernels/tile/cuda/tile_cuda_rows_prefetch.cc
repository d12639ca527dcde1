// Walks over many rows, whose next ones are brought into shared memory meanwhile.
#include <algorithm>

#include "kernels/common/cuda_machine.h"
#include "kernels/tile/cuda/tile_cuda_rows.h"

namespace aicf {
namespace {

constexpr int64_t kSharedBytes = shared_limit(90);
constexpr int64_t kReservedBytes = 2 * 1024;  // of that: the system's, barriers and values of warps
constexpr int kMostPrefetch = 2;

}  // namespace

bool RowsWriter::fetchable(size_t view) const {
  const TileView& v = space_.views[view];
  const bool by_row =
      std::any_of(v.strides.begin(), v.strides.begin() + static_cast<std::ptrdiff_t>(space_.outer),
                  [](const Dim& stride) { return !is_number(stride, 0); });
  return problem_.arch >= 90 && by_row && one_inner_axis() && access(view, axis()) == Access::kContiguous &&
         view_alignment(v, axis()) == 16 && divisible(length_, 16 / dtype_bytes(v.dtype)) && !tail_;
}

bool RowsWriter::fetched(size_t view) const {
  return std::find(fetched_.begin(), fetched_.end(), view) != fetched_.end();
}

bool RowsWriter::choose_fetched_rows() {
  if (gathered_ != nullptr) return false;
  plan_stages(false, false);
  std::vector<int> readers(space_.views.size());
  for (const Stage& stage : stages_)
    for (size_t view : loaded_views(stage.elements)) ++readers[view];
  stages_.clear();
  for (size_t view = 0; view < readers.size(); ++view)
    if (readers[view] > 1 && fetchable(view)) fetched_.push_back(view);
  prefetch_ = 2;
  if (prefetch_ * fetched_row_bytes() > kSharedBytes - kReservedBytes) fetched_.clear();
  return !fetched_.empty();
}

void RowsWriter::choose_fetched_sums() {
  if (is_member(problem_)) return;
  for (size_t view = 0; view < input_count(); ++view)
    if (fetchable(view)) fetched_.push_back(view);
  const int64_t groups = threads_ / group_, parts = groups * items_ * group_ * vector_ * 4,
                left = kSharedBytes / sum_blocks() - kReservedBytes - parts,
                row = std::max<int64_t>(fetched_row_bytes(), 1);
  prefetch_ = static_cast<int>(std::clamp<int64_t>(left / (groups * row), 0, kMostPrefetch));
  if (prefetch_ < 2) fetched_.clear();
}

int64_t RowsWriter::fetched_bytes(size_t view) const {
  return (bound(length_) * dtype_bytes(space_.views[view].dtype) + 15) / 16 * 16;
}

int64_t RowsWriter::fetched_from(size_t view) const {
  int64_t from = 0;
  for (size_t other : fetched_) from += other < view ? fetched_bytes(other) : 0;
  return from;
}

int64_t RowsWriter::fetched_row_bytes() const { return fetched_from(space_.views.size()); }

int64_t RowsWriter::walk_blocks() const {
  const int64_t rows = std::max<int64_t>(bound(rows_), 1), at_once = threads_ / group_;
  return std::min((has_sums() ? sum_blocks() : 1) * problem_.machine.multiprocessors,
                  (rows + at_once - 1) / at_once);
}

std::string RowsWriter::walk_rows_text() {
  const std::string rows = "Size(" + offsets_.number(rows_) + ")";
  std::string text =
      "constexpr int kGroups = " + std::to_string(threads_ / group_) +
      ";\nconst int group = threadIdx.x / kGroup;\nconst Index length = " + offsets_.number(length_) +
      ";\nconst Size rows = " + rows + ";\nconstexpr Size kStep = Size(" + std::to_string(walk_blocks()) +
      ") * kGroups;\n" + prefetch_text() + cuda_wait_text(problem_);
  for (const TileStore& store : sums()) text += "float " + sum_name(store) + "[kItems][kVector] = {};\n";
  text += "const Size first = Size(block_index) * kGroups + group;\n" + fetch_text() +
          "for (Size place = first; place < rows; place += kStep) {\nSize row = place;\n" +
          row_offsets_text();
  for (size_t view : fetched_)
    text += "const " + memory_type(view) + "* const row" + std::to_string(view) + " = prefetch.row<" +
            memory_type(view) + ">(" + std::to_string(fetched_from(view)) + ");\n";
  if (!fetched_.empty()) text += row_loads_text() + "prefetch.wait();\n";
  text += stages_text();
  if (!fetched_.empty())
    text += "fetch(place + kPrefetch * kStep, prefetch.leave());\n";
  else if (group_ > 32)
    text += "aicf::sync_threads<kGroup>();\n";  // until all have read what reductions left
  return text + "}\n" + (has_sums() ? sums_text() : "");
}

std::string RowsWriter::row_loads_text() {
  std::string text;
  for (const Stage& stage : stages_)
    for (int id : stage.row_values)
      if (value(id).op == TileOp::load) text += row_load_text(id);
  return text;
}

std::string RowsWriter::prefetch_text() const {
  if (fetched_.empty()) return "";
  return "constexpr int kPrefetch = " + std::to_string(prefetch_) +
         ", kBytes = " + std::to_string(fetched_row_bytes()) +
         ";\nextern __shared__ __align__(16) char memory[];\n__shared__ uint64_t barriers[kGroups * "
         "kPrefetch];\n"
         "aicf::tile::RowPrefetch<kGroup, kPrefetch, kBytes> prefetch(memory + group * kPrefetch * kBytes, "
         "barriers + "
         "group * "
         "kPrefetch);\n";
}

std::string RowsWriter::fetch_text() {
  if (fetched_.empty()) return "";
  std::string copies;
  int64_t element_bytes = 0;
  for (size_t view : fetched_) {
    const int bytes = dtype_bytes(space_.views[view].dtype);
    copies += "prefetch.copy(stage, " + std::to_string(fetched_from(view)) + ", " + operand(view) + " + " +
              row_offset(view) + ", uint32_t(length) * " + std::to_string(bytes) + ");\n";
    element_bytes += bytes;
  }
  return "const auto fetch = [&](Size row, int stage) {\nif (row >= rows || !prefetch.leads()) return;\n" +
         row_offsets_text() + "prefetch.expect(stage, uint32_t(length) * " + std::to_string(element_bytes) +
         ");\n" + copies +
         "};\nfor (int stage = 0; stage < kPrefetch; ++stage) fetch(first + stage * kStep, stage);\n";
}

}  // namespace aicf
