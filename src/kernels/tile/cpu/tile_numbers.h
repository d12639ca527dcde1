// TileOp, TileType and DType as plain enumerations of the ISA namespace, for *_isa.cc files: the real ones
// stand in headers whose inline functions must not be compiled for a higher ISA level than the rest of the
// program.
#pragma once

namespace aicf {
namespace AICF_ISA_NAMESPACE {

enum Op : int {
#define AICF_TILE_OP(name, arity, types) kOp_##name,
#include "kernels/common/tile_ops.def"
#undef AICF_TILE_OP
};

enum Type : int { kF32, kF64, kI32, kI64, kMask };

enum MemoryType : int {
#define AICF_DTYPE(name, ...) kMemory_##name,
#include "base/dtypes.def"
#undef AICF_DTYPE
};

}  // namespace AICF_ISA_NAMESPACE
}  // namespace aicf
