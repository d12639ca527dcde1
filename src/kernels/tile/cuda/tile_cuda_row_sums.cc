// Sums over the rows that are taken along with them.
#include <algorithm>

#include "base/error.h"
#include "kernels/tile/cuda/tile_cuda_rows.h"

namespace aicf {
namespace {

constexpr int kMaxSumThreads = 256;  // registers of as many serve a row's elements and sums
constexpr int kAddThreads = 512;     // of a block that adds the blocks' sums

}  // namespace

std::vector<TileStore> RowsWriter::sums() const {
  std::vector<TileStore> found;
  for (const Stage& stage : stages_) found.insert(found.end(), stage.sums.begin(), stage.sums.end());
  return found;
}

void RowsWriter::choose_sums(int64_t vectors) {
  group_ = 32, threads_ = kSumThreads;
  while (vectors > int64_t{group_} * (kMaxKept / vector_))
    group_ = threads_ = std::max(kSumThreads, 2 * group_);
  items_ = static_cast<int>(std::max<int64_t>(1, (vectors + group_ - 1) / group_));
  AICF_CHECK(one_inner_axis() && threads_ <= kMaxSumThreads, "rows are too long to be summed");
  whole_ = length_.constant().value_or(0) > 0 && !tail_ && vectors == int64_t{items_} * group_;
  choose_fetched_sums();
}

std::string RowsWriter::partial_sums(size_t number) {
  return "(static_cast<float*>(workspace) + " +
         params_.expr(length_ * Dim(static_cast<int64_t>(number) * walk_blocks())) + ")";
}

std::string RowsWriter::sums_text() {
  std::string text = "__shared__ float parts[kGroups][kItems * kGroup * kVector];\n";
  size_t number = 0;
  for (const TileStore& store : sums()) {
    text +=
        "#pragma unroll\nfor (int k = 0; k < kItems; ++k)\n#pragma unroll\nfor (int v = 0; v < kVector; "
        "++v)\n"
        "parts[group][(k * kGroup + lane) * kVector + v] = " +
        sum_name(store) + "[k][v];\n__syncthreads();\n";
    text += "for (int c = threadIdx.x; c < int(length); c += " + std::to_string(threads_) +
            ") {\nfloat sum = parts[0][c];\n#pragma unroll\nfor (int g = 1; g < kGroups; ++g) sum = "
            "aicf::tile::add(sum, parts[g][c]);\n" +
            partial_sums(number++) + "[Size(block_index) * Size(length) + c] = sum;\n}\n__syncthreads();\n";
  }
  return text;
}

CudaLaunch RowsWriter::adding_launch(const CudaLaunch& first) const {
  CudaLaunch launch;
  launch.function = first.function + "_sums";
  launch.block = kAddThreads;
  launch.grid[0] = adding_groups() * Dim(static_cast<int64_t>(sums().size()));
  return launch;
}

std::string RowsWriter::adding_text() {
  const std::string length = "Size(" + offsets_.number(length_) + ")",
                    count = "Size(" + offsets_.number(adding_groups()) + ")";
  std::string text =
      tile_index_types(space_) +
      "aicf::wait_for_inputs();\naicf::launch_dependents();\nconstexpr int kAcross = " +
      std::to_string(kAddAcross) + ", kDeep = " + std::to_string(kAddThreads / kAddAcross) +
      ", kBlocks = " + std::to_string(walk_blocks()) + ";\nconst Size number = Size(block_index) / " + count +
      ", c = Size(block_index) % " + count +
      " * kAcross + threadIdx.x % kAcross;\n"
      "const float sum = aicf::tile::sum_column<kAcross, kDeep>(static_cast<const float*>(workspace) + "
      "number "
      "* "
      "kBlocks * " +
      length + ", kBlocks, " + length + ", c);\nif (threadIdx.x >= kAcross || c >= " + length + ") return;\n";
  size_t number = 0;
  for (const TileStore& store : sums()) {
    const auto view = static_cast<size_t>(store.operand);
    text += "if (number == " + std::to_string(number++) + ") " + operand(view) + "[" + offset_text(view) +
            "] = aicf::tile::narrowed<" + memory_type(view) + ">(sum);\n";
  }
  return text;
}

}  // namespace aicf
