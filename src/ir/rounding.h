// The traits of ops.def that say where halves are rounded.
#pragma once

#include "ir/op.h"

namespace aicf {

inline constexpr OpTrait kExact = static_cast<OpTrait>(1 << 7);
inline constexpr OpTrait kStepwise = static_cast<OpTrait>(1 << 8);

// Whether results of the op need no rounding where its operands are rounded, and rounding may wait until
// then.
inline bool rounds_nothing(Op op) { return op_info(op).has(kExact) || op_info(op).has(kView); }

}  // namespace aicf
