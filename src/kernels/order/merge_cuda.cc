#include "kernels/order/merge_cuda.h"

namespace aicf {

namespace {

constexpr int32_t kMergeBlock = 256;
constexpr int64_t kMergedPerBlock = kMergeBlock * 8;  // kMergedPerThread of sort.cuh

}  // namespace

bool is_narrow_item(int64_t largest_key, int64_t largest_index) {
  constexpr int64_t kLimit = (int64_t{1} << 32) - 1;  // all ones pads
  return largest_key < kLimit && largest_index < kLimit;
}

Dim sort_buffer_bytes(const Dim& rows, const Dim& size, bool narrow) {
  return rows * size * Dim(narrow ? 16 : 32) + Dim(narrow ? 16 : 32);
}

void add_merges(CudaCode& code, const CudaProblem& problem, const Dim& rows, const Dim& size, int64_t tile,
                bool narrow) {
  const int64_t largest = upper_bound(size, problem.ranges);
  const std::string item = narrow ? "aicf::NarrowItem" : "aicf::WideItem";
  int pass = 0;
  for (int64_t width = tile; width < largest; width *= 2, ++pass) {
    const Dim per_row = blocks_for(size, kMergedPerBlock),
              needed = min(Dim(1), floordiv(size - Dim(1), Dim(width)));
    CudaParams params;
    const std::string count = params.expr(rows) + " * " + params.expr(size);
    const std::string from = pass % 2 == 0 ? "items" : "items + " + count,
                      to = pass % 2 == 0 ? "items + " + count : "items";
    const std::string body = "  " + item + "* items = static_cast<" + item +
                             "*>(workspace);\n  aicf::merge_runs(" + from + ", " + to + ", " +
                             params.expr(size) + ", int64_t(" + std::to_string(width) + "), " +
                             params.expr(per_row) + ");\n";
    add_kernel(code, problem,
               flat_launch("merge_runs_" + std::to_string(pass), rows * per_row * max(needed, Dim(0)),
                           kMergeBlock, params),
               body);
    if (width > largest / 2) break;
  }
}

}  // namespace aicf
