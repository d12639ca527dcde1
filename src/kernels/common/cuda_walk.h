// The host side of indexing/walk.cuh: an index space over several windows, simplified before it becomes
// kernel text. Axes of size 1 go, neighbours that lie one behind the other in every window become one, runs
// of elements become wide units. Sizes and strides may be symbolic; what cannot be shown for every value is
// not done.
#pragma once

#include <string>
#include <vector>

#include "kernels/common/cuda_kernel.h"
#include "kernels/common/cuda_text.h"

namespace aicf {

struct CudaWalk {
  std::vector<Dim> sizes;
  std::vector<std::vector<Dim>> strides;  // [tensor][axis]

  explicit CudaWalk(size_t tensors) : strides(tensors) {}
  size_t rank() const { return sizes.size(); }
  Dim count() const { return element_count(sizes); }
  void add_axis(const Dim& size, const std::vector<Dim>& axis_strides);
  void merge_axes();
};

// The walk over whole windows of one shape.
CudaWalk walk_windows(const std::vector<const CudaWindow*>& windows);

// Upper bound over all sizes, INT64_MAX if it does not fit.
int64_t upper_bound(const Dim& dim, const SymbolRanges* ranges);
// What choices take a size for: its upper bound, or a usual size where that is of no use.
int64_t size_to_choose_by(const Dim& dim, const CudaProblem& problem);
bool is_multiple(const Dim& dim, int64_t of);

// "int32_t" if the offsets of all windows and the indices of `threads` threads fit, else "int64_t".
std::string_view index_type(const CudaProblem& problem, const Dim& threads);

// The most elements (1, 2, 4, … up to 16 bytes) that can be moved as one unit along the last axis of `walk`:
// contiguous in all its tensors, with sizes, other strides and the `bases` (in elements) multiples of it.
int64_t widest_unit(const CudaWalk& walk, const std::vector<Dim>& bases, int64_t element_bytes);
// Counts the last axis and all other strides in units of `unit` elements.
void use_units(CudaWalk& walk, int64_t unit);
Dim in_units(const Dim& elements, int64_t unit);

// "aicf::Walk<I, 2, 3>" and "{{sizes}, {{strides}, …}}", for text with a type I as index_type gives it.
std::string walk_type(const CudaWalk& walk);
std::string walk_value(const CudaWalk& walk, CudaParams& params);
// "{I(a), I(b)}"; one 0 if empty.
std::string braced(const std::vector<Dim>& dims, CudaParams& params);

// problem.params[0] as an axis of `window` counted from the front.
size_t cuda_axis(const CudaProblem& problem, const CudaWindow& window);

// Blocks that cover `threads` threads.
Dim blocks_for(const Dim& threads, int64_t block);

// A launch of a one-dimensional grid; its params are those that `params` collected.
CudaLaunch flat_launch(std::string function, const Dim& blocks, int32_t block, const CudaParams& params);
// Appends a kernel with this body, after the wait for its inputs, and its launch. The workspace of `code`
// must be known.
void add_kernel(CudaCode& code, const CudaProblem& problem, CudaLaunch launch, const std::string& body,
                int min_blocks = 0);
// "#include …" lines, prelude first.
std::string includes(const std::vector<std::string>& names);

}  // namespace aicf
