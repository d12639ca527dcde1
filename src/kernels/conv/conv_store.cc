#include "kernels/conv/conv_store.h"

#include <algorithm>

#include "kernels/tile/tile_rows.h"

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

}  // namespace aicf
