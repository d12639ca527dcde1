#include "kernels/matmul/cpu/tile_epilogue.h"

#include "kernels/common/step_check.h"
#include "kernels/matmul/cpu/gemm_finish.h"

namespace aicf {

TileEpilogue::TileEpilogue(const BoundCall& call, const GemmIsa& isa, const GemmTile& tile,
                           std::byte* scratch, void* c, int64_t ldc)
    : call_(call), tile_(tile) {
  const auto& plan = stored_plan<GemmPlan>(call);
  scratch_ = scratch + plan.program_offset;
  windows_[0] = {c, ldc, 1};
  count_ = static_cast<size_t>(plan.operands) + 1;
  for (size_t i = 1; i < count_; ++i) {
    const GemmView& view = plan.operand[i - 1];
    const int64_t offset = offset_of(plan, view, tile_, tile_.row, tile_.column);
    windows_[i] = {static_cast<std::byte*>(tensor(i).data) + offset * dtype_bytes(tensor(i).dtype), view.row,
                   view.column};
  }
  if (TileRowRunner::fits(*call_.program, tile_.columns))
    runner_.emplace(*call_.program, call_.isa, windows_, scratch_);
  const auto chain = runner_ && isa.finishes ? runner_->chain(tile_.columns) : std::nullopt;
  if (chain) finish_ = gemm_finish_of(*chain, nullptr, tile_.columns);
}

void TileEpilogue::prefetch(int64_t first, int64_t rows) const {
  constexpr int64_t kLine = 64;
  const size_t inputs = call_.program->inputs.size();
  for (size_t i = 1; i < count_; ++i) {
    if (windows_[i].row_stride == 0 || windows_[i].column_stride != 1) continue;
    const int64_t bytes = dtype_bytes(tensor(i).dtype);
    for (int64_t row = first; row < first + rows; ++row) {
      const std::byte* at =
          static_cast<const std::byte*>(windows_[i].data) + row * windows_[i].row_stride * bytes;
      for (int64_t byte = 0; byte < tile_.columns * bytes; byte += kLine)
        i < inputs ? __builtin_prefetch(at + byte) : __builtin_prefetch(at + byte, 1);
    }
  }
}

void TileEpilogue::run(int64_t first, int64_t rows) {
  if (runner_)
    runner_->run(first, rows, tile_.columns);
  else
    run_tile_rows(*call_.program, call_.isa, tile_.rows, tile_.columns, windows_, scratch_);
}

const TensorArg& TileEpilogue::tensor(size_t window) const {
  const size_t inputs = call_.inputs.size() - 2;
  return window <= inputs ? call_.inputs[window + 1] : call_.outputs[window - inputs - 1];
}

}  // namespace aicf
