// What happens to a finished tile of a convolution: bias, epilogue, store.
#pragma once

#include <optional>

#include "kernels/common/element.h"
#include "kernels/common/step_check.h"
#include "kernels/conv/cpu/conv_plan.h"
#include "kernels/matmul/cpu/gemm_finish.h"
#include "kernels/tile/cpu/tile_rows.h"

namespace aicf {

struct ConvTile {
  int64_t batch, group, row, rows, pixel, pixels;  // rows: output channels inside the group
};

template <class T>
void add_conv_bias(const BoundCall& call, const ConvPlan& plan, const ConvTile& tile, T* c, int64_t ldc) {
  if (!plan.has_bias) return;
  const TensorArg& bias = call.inputs[2];
  for (int64_t i = 0; i < tile.rows; ++i) {
    const int64_t map = tile.group * plan.group_maps + tile.row + i;
    const T value = load_element<T>(bias.data, bias.dtype, map * plan.bias_stride);
    for (int64_t j = 0; j < tile.pixels; ++j) c[i * ldc + j] += value;
  }
}

// Runs the epilogue over the tile, or stores the tile as it is.
void run_conv_epilogue(const BoundCall& call, const ConvPlan& plan, const ConvTile& tile, float* c,
                       int64_t ldc, std::byte* scratch);

// The same for a tile whose rows are pixels and whose columns are output channels, c[pixel * ldc + map], a
// few rows at a time. `bias` is that of the tile's channels, or null.
class ConvRowStore {
 public:
  ConvRowStore(const BoundCall& call, const ConvPlan& plan, const ConvTile& tile, float* c, int64_t ldc,
               const float* bias, std::byte* program_scratch);
  // All of it, from the tile's first pixel on, if micro-kernels can do it; else null, and run() does it.
  const GemmFinish* finish() const { return finish_ ? &*finish_ : nullptr; }
  // Asks for the memory that run() of these rows will touch.
  void prefetch(int64_t first, int64_t count) const;
  void run(int64_t first, int64_t count);

 private:
  std::optional<TileChain> chain() const;
  void add_bias(int64_t first, int64_t count) const;
  void copy_rows(int64_t first, int64_t count) const;
  // Moves the windows to a pixel of the tile: row 0 from now on.
  void point_windows(int64_t pixel);

  const BoundCall& call_;
  const ConvPlan& plan_;
  const ConvTile& tile_;
  float* c_;
  int64_t ldc_;
  const float* bias_;
  std::byte* scratch_;
  bool collapsed_ = true;  // all windows: rows lie at one distance
  TileWindow windows_[kMaxTileOperands + 1];
  std::optional<TileRowRunner> runner_;
  std::optional<GemmFinish> finish_;
};

template <class T>
void store_conv_tile(const BoundCall& call, const ConvPlan& plan, const ConvTile& tile, T* c, int64_t ldc,
                     std::byte* scratch) {
  if constexpr (sizeof(T) == sizeof(float)) {
    if (call.program) return run_conv_epilogue(call, plan, tile, c, ldc, scratch);
  }
  const ConvView& view = plan.operand[0];
  const TensorArg& out = call.outputs[0];
  const int64_t width = plan.windows.axis[2].out, height = plan.windows.axis[1].out;
  for (int64_t j = 0; j < tile.pixels; ++j) {
    const int64_t p = tile.pixel + j;
    const int64_t pixel = view.collapsed
                              ? p * view.spatial[2]
                              : p / width / height * view.spatial[0] + p / width % height * view.spatial[1] +
                                    p % width * view.spatial[2];
    const int64_t first =
        tile.batch * view.batch + (tile.group * plan.group_maps + tile.row) * view.channel + pixel;
    for (int64_t i = 0; i < tile.rows; ++i)
      store_element(out.data, out.dtype, first + i * view.channel, c[i * ldc + j]);
  }
}

}  // namespace aicf
