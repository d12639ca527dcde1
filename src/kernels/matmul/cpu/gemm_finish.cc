#include "kernels/matmul/cpu/gemm_finish.h"

namespace aicf {
namespace {

// Takes what stands at steps[at] if it is `op` with an operand of each column.
const float* take_column(const TileChain& chain, TileChainOp op, int32_t& at) {
  if (at == chain.count) return nullptr;
  const TileChainStep& step = chain.steps[at];
  const bool ordered = step.reversed == 0 || op == kChainAdd || op == kChainMul;
  if (step.op != op || step.row_stride != 0 || !ordered) return nullptr;
  ++at;
  return step.operand;
}

}  // namespace

std::optional<GemmFinish> gemm_finish_of(const TileChain& chain, const float* bias, int64_t columns) {
  if (columns % kFinishWidth != 0) return std::nullopt;
  GemmFinish finish = {};
  int32_t at = 0;
  finish.scale = bias != nullptr ? nullptr : take_column(chain, kChainMul, at);
  finish.shift = bias != nullptr ? bias : take_column(chain, kChainAdd, at);
  if (at < chain.count && chain.steps[at].op == kChainAdd && chain.steps[at].row_stride != 0) {
    finish.residual = chain.steps[at].operand;
    finish.residual_stride = chain.steps[at++].row_stride;
  }
  finish.low = take_column(chain, kChainMax, at);
  finish.high = take_column(chain, kChainMin, at);
  finish.out = chain.out;
  finish.out_stride = chain.out_stride;
  if (at != chain.count) return std::nullopt;
  return finish;
}

}  // namespace aicf
