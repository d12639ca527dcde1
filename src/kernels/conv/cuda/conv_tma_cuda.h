// Convolutions whose windows the copy engine of sm_90 reads by itself (conv_tma.cuh).
#pragma once

#include "kernels/common/cuda_kernel.h"
#include "kernels/conv/cuda/windows_cuda.h"

namespace aicf {

// Whether it can read boxes of positions: channels last in x and in the weights, spatial axes of constant
// sizes; in tf32 weights that lie rounded.
bool copies_boxes(const CudaProblem& problem, const CudaWindowAxes& axes);
// Whether channels are neighbours and a tensor map can have every other axis.
bool maps_channels_last(const CudaWindow& window, const SymbolRanges* ranges);
// Whether the weights' channels fill stages: of one tap in halves; of f32 more than half of what is loaded.
bool fills_stages(const CudaWindow& w);
// Channels in 128 bytes.
int64_t stage_channels(const CudaWindow& window);
// The weights' axes from the inside, but for windows of one tap, whose strides say nothing.
std::vector<int32_t> weight_axes(const CudaWindow& w, const CudaWindowAxes& axes);

// Whether windows can come tap by tap: boxes of one group, one or two spatial axes, of about a multiple of
// 128 bytes of channels.
bool conv_tma_fits(const CudaProblem& problem, const CudaWindowAxes& axes);
// Its ways, the fastest first. `epilogue`: as the problem, with the windows from operand 2 on as [N,
// spatial…, M], and with its program.
std::vector<KernelVariant> conv_tma_variants(const CudaProblem& problem, const CudaWindowAxes& axes,
                                             const CudaProblem& epilogue);
CudaCode conv_tma_code(const CudaProblem& problem, const CudaWindowAxes& axes, const CudaProblem& epilogue);

}  // namespace aicf
