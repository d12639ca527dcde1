// For tests of the CUDA rows of convolutions: random problems, and the rows of sm_90 that take one.
#pragma once

#include <string>
#include <vector>

#include "kernels/common/cuda_kernel.h"
#include "kernels/testing/cuda_texts.h"

namespace aicf::cuda_testing {

struct ConvCase {
  size_t spatial = 2;
  int64_t groups = 1, channels = 8, maps = 16;  // of a group
  bool bias = false, last = true, transposed = false;
  int64_t kernel = 3, stride = 2, dilation = 1;
  bool tf32 = false;
};

inline CudaProblem conv_problem(RandomWindows& random, DType dtype, const ConvCase& c) {
  constexpr int64_t kPad = 1;
  Shape x = {random.size(1, 4), Dim(c.groups * c.channels)}, w, out = {x[0], Dim(c.groups * c.maps)};
  w = {c.transposed ? x[1] : out[1], Dim(c.transposed ? c.maps : c.channels)};
  CudaProblem p;
  p.params = {Dim(static_cast<int64_t>(c.spatial)), Dim(c.groups), Dim(c.bias ? 1 : 0)};
  for (int64_t number : {c.stride, kPad, kPad, c.dilation})
    p.params.insert(p.params.end(), c.spatial, Dim(number));
  if (c.transposed) p.params.insert(p.params.end(), c.spatial, Dim(0));
  if (c.tf32) p.params.emplace_back(1);
  for (size_t i = 0; i < c.spatial; ++i) {
    x.push_back(random.size(5, 12));
    w.emplace_back(c.kernel);
    const int64_t reach = c.dilation * (c.kernel - 1) + 1;
    out.push_back(c.transposed ? (x.back() - Dim(1)) * Dim(c.stride) + Dim(reach - 2 * kPad)
                               : floordiv(x.back() + Dim(2 * kPad - reach), Dim(c.stride)) + Dim(1));
  }
  p.inputs = {random.window(dtype, x), random.window(dtype, w)};
  p.outputs = {random.window(dtype, out)};
  if (c.bias) p.inputs.push_back(random.window(dtype, {out[1]}));
  if (c.last)
    for (CudaWindow* window : {&p.inputs[0], &p.inputs[1], &p.outputs[0]}) {
      *window = channels_last(*window);
      window->offset = Dim(0);
    }
  return p;
}

// So many square images, row-major, for sm_90.
inline CudaProblem plain_problem(RandomWindows& random, const ConvCase& c, int64_t images, int64_t size) {
  CudaProblem p = conv_problem(random, DType::f32, c);
  p.inputs[0].sizes = {Dim(images), p.inputs[0].sizes[1], Dim(size), Dim(size)};
  const Dim out((size + 2 - c.dilation * (c.kernel - 1) - 1) / c.stride + 1);
  p.outputs[0].sizes = {Dim(images), p.outputs[0].sizes[1], out, out};
  for (CudaWindow* window : {&p.inputs[0], &p.inputs[1], &p.outputs[0]}) {
    window->strides = row_major_strides(window->sizes);
    window->offset = Dim(0);
  }
  p.arch = 90;
  p.ranges = &random.ranges();
  return p;
}

inline std::vector<const CudaKernel*> hopper_rows(const CudaProblem& p) {
  Problem problem;
  problem.family = "conv";
  for (const CudaWindow& w : p.inputs) problem.inputs.push_back({w.dtype, w.sizes});
  problem.outputs = {{p.outputs[0].dtype, p.outputs[0].sizes}};
  problem.params = p.params;
  return cuda_candidates(problem, 90);
}

}  // namespace aicf::cuda_testing
