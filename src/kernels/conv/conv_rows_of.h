// Reaches the micro-kernels of packed convolutions of an ISA level.
#pragma once

#include "kernels/abi.h"
#include "kernels/conv/conv_rows.h"
#include "kernels/conv/windows.h"
#include "kernels/isa.h"

namespace aicf {

AICF_DECLARE_PER_ISA(extern const ConvRowsIsa kConvRowsIsa)

inline const ConvRowsIsa& conv_rows_isa(IsaLevel level) { return *AICF_PICK_ISA(level, kConvRowsIsa); }

}  // namespace aicf
