#include "kernels/conv/cpu/conv_store.h"

#include <algorithm>
#include <cstring>

#include "kernels/matmul/cpu/gemm.h"
#include "kernels/tile/cpu/tile_rows.h"

namespace aicf {

void run_conv_epilogue(const BoundCall& call, const ConvPlan& plan, const ConvTile& tile, float* c,
                       int64_t ldc, std::byte* scratch) {
  const size_t first_operand = plan.has_bias ? 3 : 2;
  const size_t inputs = call.inputs.size() - first_operand;
  const int64_t width = plan.windows.axis[2].out, height = plan.windows.axis[1].out;
  bool collapsed = true;
  for (int64_t i = 0; i < plan.operands; ++i) collapsed = collapsed && plan.operand[i].collapsed;
  for (int64_t done = 0; done < tile.pixels;) {
    const int64_t p = tile.pixel + done, x = p % width;
    const int64_t count = collapsed ? tile.pixels : std::min(tile.pixels - done, width - x);
    TileWindow windows[kMaxTileOperands + 1];
    windows[0] = {c + done, ldc, 1};
    for (int64_t i = 0; i < plan.operands; ++i) {
      const auto number = static_cast<size_t>(i);
      const TensorArg& tensor =
          number < inputs ? call.inputs[first_operand + number] : call.outputs[number - inputs];
      const ConvView& view = plan.operand[i];
      const int64_t pixel = collapsed ? p * view.spatial[2]
                                      : p / width / height * view.spatial[0] +
                                            p / width % height * view.spatial[1] + x * view.spatial[2];
      const int64_t offset =
          tile.batch * view.batch + (tile.group * plan.group_maps + tile.row) * view.channel + pixel;
      windows[i + 1] = {static_cast<std::byte*>(tensor.data) + offset * dtype_bytes(tensor.dtype),
                        view.channel, view.spatial[2]};
    }
    run_tile_rows(*call.program, call.isa, tile.rows, count, windows, scratch + plan.program_offset);
    done += count;
  }
}

namespace {

int64_t pixel_offset(const ConvPlan& plan, const ConvView& view, int64_t p) {
  if (view.collapsed) return p * view.spatial[2];
  const int64_t width = plan.windows.axis[2].out, height = plan.windows.axis[1].out;
  return p / width / height * view.spatial[0] + p / width % height * view.spatial[1] +
         p % width * view.spatial[2];
}

}  // namespace

ConvRowStore::ConvRowStore(const BoundCall& call, const ConvPlan& plan, const ConvTile& tile, float* c,
                           int64_t ldc, const float* bias, std::byte* program_scratch)
    : call_(call), plan_(plan), tile_(tile), c_(c), ldc_(ldc), bias_(bias), scratch_(program_scratch) {
  for (int64_t i = 0; i < plan.operands; ++i) collapsed_ = collapsed_ && plan.operand[i].collapsed;
  point_windows(0);
  if (call.program && TileRowRunner::fits(*call.program, tile.rows))
    runner_.emplace(*call.program, call.isa, windows_, scratch_);
  const auto chain = collapsed_ && gemm_isa(call.isa).finishes ? this->chain() : std::nullopt;
  if (chain) finish_ = gemm_finish_of(*chain, bias, tile.rows);
  if (finish_) finish_->fetch_out = plan.fetches_out && finish_->residual != finish_->out;
}

// What happens after the bias.
std::optional<TileChain> ConvRowStore::chain() const {
  if (runner_) return runner_->chain(tile_.rows);
  if (call_.program || windows_[1].column_stride != 1) return std::nullopt;
  TileChain chain = {};
  chain.out = static_cast<float*>(windows_[1].data);
  chain.out_stride = windows_[1].row_stride;
  return chain;
}

void ConvRowStore::point_windows(int64_t pixel) {
  const size_t first_operand = plan_.has_bias ? 3 : 2, inputs = call_.inputs.size() - first_operand;
  windows_[0] = {c_ + pixel * ldc_, ldc_, 1};
  for (int64_t i = 0; i < plan_.operands; ++i) {
    const auto number = static_cast<size_t>(i);
    const TensorArg& tensor =
        number < inputs ? call_.inputs[first_operand + number] : call_.outputs[number - inputs];
    const ConvView& view = plan_.operand[i];
    const int64_t offset = tile_.batch * view.batch +
                           (tile_.group * plan_.group_maps + tile_.row) * view.channel +
                           pixel_offset(plan_, view, tile_.pixel + pixel);
    windows_[i + 1] = {static_cast<std::byte*>(tensor.data) + offset * dtype_bytes(tensor.dtype),
                       view.spatial[2], view.channel};
  }
}

void ConvRowStore::prefetch(int64_t first, int64_t count) const {
  constexpr int64_t kLine = 64;
  if (!call_.program || !collapsed_) return;
  for (int64_t i = 0; i < plan_.operands; ++i) {
    const TileWindow& w = windows_[i + 1];
    if (w.row_stride == 0 || w.column_stride != 1) continue;
    const DType dtype =
        static_cast<size_t>(i) + 1 < call_.program->inputs.size()
            ? call_.program->inputs[static_cast<size_t>(i) + 1]
            : call_.program->outputs[static_cast<size_t>(i) + 1 - call_.program->inputs.size()];
    const int64_t bytes = dtype_bytes(dtype);
    for (int64_t row = first; row < first + count; ++row) {
      const std::byte* at = static_cast<const std::byte*>(w.data) + row * w.row_stride * bytes;
      for (int64_t byte = 0; byte < tile_.rows * bytes; byte += kLine) __builtin_prefetch(at + byte);
    }
  }
}

void ConvRowStore::add_bias(int64_t first, int64_t count) const {
  for (int64_t i = first; i < first + count; ++i)
    for (int64_t j = 0; j < tile_.rows; ++j) c_[i * ldc_ + j] += bias_[j];
}

void ConvRowStore::run(int64_t first, int64_t count) {
  if (bias_ != nullptr) add_bias(first, count);
  if (!call_.program) return copy_rows(first, count);
  if (collapsed_ && runner_) {
    runner_->run(first, count, tile_.rows);
    return;
  }
  const int64_t width = plan_.windows.axis[2].out;
  for (int64_t done = 0, run = 0; done < count; done += run) {
    const int64_t pixel = first + done;
    run = collapsed_ ? count : std::min(count - done, width - (tile_.pixel + pixel) % width);
    point_windows(pixel);
    run_tile_rows(*call_.program, call_.isa, run, tile_.rows, windows_, scratch_);
  }
}

void ConvRowStore::copy_rows(int64_t first, int64_t count) const {
  const ConvView& view = plan_.operand[0];
  for (int64_t i = first; i < first + count; ++i) {
    float* to = static_cast<float*>(call_.outputs[0].data) + tile_.batch * view.batch +
                (tile_.group * plan_.group_maps + tile_.row) * view.channel +
                pixel_offset(plan_, view, tile_.pixel + i);
    const float* from = c_ + i * ldc_;
    if (view.channel == 1) {
      std::memcpy(to, from, static_cast<size_t>(tile_.rows) * sizeof(float));
      continue;
    }
    for (int64_t j = 0; j < tile_.rows; ++j) to[j * view.channel] = from[j];
  }
}

}  // namespace aicf
