#include "kernels/matmul/cpu/gemm_next.h"

#include <algorithm>

#include "base/rounding.h"

namespace aicf {

FirstWeights weights_after(const BoundCall& call, int64_t tile) {
  const int64_t worker = share_ending_with(call, tile);
  if (worker < 0) return call.first_weights(call, tile + 1);
  const BoundCall* following = call.following;
  if (following == nullptr || following->tiles == 0) return {};
  const int64_t first = share_begin(following->tiles, call.workers, worker);
  return following->first_weights(*following, std::min(first, following->tiles - 1));
}

void fetch_next(const FirstWeights& next, int64_t nr, GemmBlock<float>& block) {
  const int64_t step = nr * static_cast<int64_t>(sizeof(float)), panels = ceil_div(block.n, nr);
  block.next = reinterpret_cast<const float*>(next.from);
  block.next_panels = std::min(next.pieces, panels);
  block.next_depth = next.bytes / step;
  block.next_stride = next.stride / static_cast<int64_t>(sizeof(float));
  if (next.stride != next.bytes) return;
  // Pieces without gaps between them are one, which the block's panels fetch in equal parts.
  block.next_panels = panels;
  block.next_depth = ceil_div(next.pieces * next.bytes, panels * step);
  block.next_stride = block.next_depth * nr;
}

}  // namespace aicf
