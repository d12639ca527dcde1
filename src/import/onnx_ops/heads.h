// Attention heads packed into the last axis and apart: used by the converters of attention ops.
#pragma once

#include "import/onnx_ops/node_context.h"

namespace aicf::onnx {

// [B, T, H D] as [B, H, T, D]; rank 4 already is.
ValueId split_heads(NodeContext& n, ValueId x, int64_t heads);
// [B, H, T, D] as [B, T, H D].
ValueId merge_heads(NodeContext& n, ValueId x);
// Keys repeated so that every query head has its own: [B, Hk, T, D] to [B, Hq, T, D].
ValueId repeat_heads(NodeContext& n, ValueId x, const Dim& heads);

}  // namespace aicf::onnx
