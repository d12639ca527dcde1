// What the CUDA kernels share that go through a convolution by boxes of windows
// (window_box.cuh): which problems they take, how many groups a block has, and
// boxes of results.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "kernels/common/cuda_kernel.h"
#include "kernels/conv/cuda/windows_cuda.h"

namespace aicf {

// Channels and windows of at most two axes, which are known when the text is
// written.
struct BoxedWindows {
  int64_t groups = 1, channels = 1, maps = 1;  // channels and maps of a group
  int64_t kernel[2] = {1, 1}, stride[2] = {1, 1}, dilation[2] = {1, 1};
  int64_t vector = 8;  // elements in 16 bytes
  int64_t taps() const { return kernel[0] * kernel[1]; }
};
// Channels of all groups, maps of all, sizes of the kernel, and params in the
// order of the rows of conv. None: another kernel takes it.
std::optional<BoxedWindows> boxed_windows(const Dim& channels, const Dim& maps, const Shape& kernel,
                                          const std::vector<Dim>& params);

// Groups of a block, of those for which `fits`: about a line of channels, and
// slices begin at whole vectors of channels and of maps.
std::optional<int64_t> groups_of_slice(const BoxedWindows& w, const std::function<bool(int64_t)>& fits);
// Chunks of `vector` channels of which those of a group, or its maps, are a
// part at most; bytes of a position of `groups` of them. As in window_box.cuh.
int64_t chunks_of_group(int64_t size, int64_t vector = 8);
int64_t position_bytes(int64_t groups, int64_t size, int64_t vector = 8);

inline constexpr int64_t kMostOfSlice = 64;  // channels or maps of a block
// Bytes of shared memory that a block has on every machine.
inline constexpr int64_t kLeastSharedLimit = 99 * 1024;

// Results that a block has at a time.
struct ResultBox {
  int64_t rows = 1, columns = 1;
  int64_t results() const { return rows * columns; }
  int64_t positions(const BoxedWindows& w) const;  // of x under their windows
};
inline constexpr ResultBox kLeastBox{4, 8};  // so many fit where a problem is taken

// What a block needs for boxes of a kind.
struct BoxWork {
  int64_t shared_bytes = 0;
  double bytes = 0, cycles = 0;  // of each: moved; of a multiprocessor's units
  double block_bytes = 0;        // moved once for all boxes of a block
};
// The blocks of a slice share its boxes.
struct BoxPlan {
  ResultBox box;
  int64_t occupancy = 1;  // blocks of a multiprocessor
  int64_t blocks = 1;     // of a slice, at most
  double cycles = 0;
};
// The cheapest for results of so many images and slices.
BoxPlan plan_boxes(const CudaProblem& problem, const Dim& images, const CudaWindowAxes& axes, int64_t slices,
                   int64_t most_occupancy, const std::function<BoxWork(const ResultBox&)>& work);
Dim box_count(const Dim& images, const CudaWindowAxes& axes, const ResultBox& box);

// "struct Shape { … };" of window_box.cuh.
std::string box_shape_text(const BoxedWindows& w, int64_t groups, const ResultBox& box);

// The elements of 16 bytes where channels are neighbours, as many in an aligned
// unit, else 1.
int64_t channel_unit(const CudaWindow& window);

}  // namespace aicf
