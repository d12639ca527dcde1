// A convolution as its CUDA kernels see it: operands by meaning, the matrix product that it is, and the text
// that gives the operands to a kernel. Takes problems that a row of cuda_kernels.def can run.
#pragma once

#include <string>
#include <vector>

#include "kernels/common/cuda_kernel.h"
#include "kernels/common/cuda_text.h"
#include "kernels/conv/cuda/windows_cuda.h"

namespace aicf {

constexpr size_t kConvInputs = 2;  // x and w; a bias is the first operand of the epilogue

// A convolution's operands by meaning, and the domain in which its epilogue runs.
struct ConvProblem {
  bool transposed = false;
  Dim groups, channels, maps, images, pixels;  // channels and maps of a group
  CudaWindowAxes axes;
  std::vector<Dim> kernel, w_taps;
  Dim x_batch, x_channel, w_map, w_channel;
  bool pixel_rows = false;  // columns of the result are maps, else pixels
  CudaProblem epilogue;     // with its windows in the order of the contraction's result
  TileProgram program;
};

ConvProblem conv_problem(const CudaProblem& problem, bool transposed);

// Sizes of the product, for every group.
Dim depth_of(const ConvProblem& c);
Dim rows_of(const ConvProblem& c);
Dim columns_of(const ConvProblem& c);
Dim batches_of(const ConvProblem& c);

// Columns of a group of maps begin at multiples of a vector of 16 bytes of halves.
bool keeps_vectors(const ConvProblem& c);

// Bytes that the epilogue moves for each result: of operands as large as it, and of the results.
double conv_result_bytes(const CudaProblem& problem);
// Outputs of which neighbours in the epilogue's domain lie in sectors of their own.
int64_t scattered_outputs(const ConvProblem& c);

// "const aicf::ConvOperands<T, I> o = …;" with x and w at these expressions.
std::string operands_text(const CudaProblem& problem, const ConvProblem& c, const std::string& x,
                          const std::string& w, CudaParams& params);
// A copy of an operand in the workspace, from `offset` bytes on.
std::string workspace_copy(const CudaProblem& problem, const Dim& offset, CudaParams& params);
std::string flag(bool value);               // "true" or "false"
std::string conv_accumulator(DType dtype);  // of a convolution without matrix units

}  // namespace aicf
