// Reaches the micro-kernels of an ISA level. See gemm_types.h for blocks, panels and the order of
// accumulation.
#pragma once

#include <algorithm>

#include "base/rounding.h"
#include "kernels/common/abi.h"
#include "kernels/common/isa.h"
#include "kernels/matmul/cpu/gemm_types.h"

namespace aicf {

AICF_DECLARE_PER_ISA(extern const GemmIsa kGemmIsa, kWideGemmIsa)

inline const GemmIsa& gemm_isa(IsaLevel level) { return *AICF_PICK_ISA(level, kGemmIsa); }
// Wider panels where the ISA level has the registers, in return for fewer rows.
inline const GemmIsa& wide_gemm_isa(IsaLevel level) { return *AICF_PICK_ISA(level, kWideGemmIsa); }
// Of packed convolutions: wide panels only for so many output channels as fill them and not the others.
inline const GemmIsa& conv_gemm_isa(IsaLevel level, int64_t maps) {
  const bool fills = maps % wide_gemm_isa(level).nr_f32 == 0 && maps % gemm_isa(level).nr_f32 != 0;
  return fills ? wide_gemm_isa(level) : gemm_isa(level);
}

template <class T>
int64_t panel_columns(const GemmIsa& isa) {
  return sizeof(T) == 4 ? isa.nr_f32 : isa.nr_f64;
}
// Columns of the panel of packed weights that has `column` of their `n`, zeros included: the last panel is no
// wider than micro-kernels need.
inline int64_t packed_panel_width(int64_t nr, int64_t column, int64_t n) {
  return std::min(nr, round_up(n - column / nr * nr, kFinishWidth));
}
inline void run_block(const GemmIsa& isa, const GemmBlock<float>& block) { isa.block_f32(block); }
inline void run_block(const GemmIsa& isa, const GemmBlock<double>& block) { isa.block_f64(block); }
inline void run_pack(const GemmIsa& isa, const GemmPack<float>& pack) { isa.pack_f32(pack); }
inline void run_pack(const GemmIsa& isa, const GemmPack<double>& pack) { isa.pack_f64(pack); }

}  // namespace aicf
