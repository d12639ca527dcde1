// Launches that sort items by their keys (order/radix.cuh).
#pragma once

#include <functional>
#include <string>

#include "kernels/common/cuda_walk.h"

namespace aicf {

// How `count` items are sorted whose keys are at most `largest_key`, those left out being all ones.
struct RadixSort {
  Dim count;
  bool narrow = true;  // items and counts (is_narrow_item)
  int passes = 1, bits = 1;
  int64_t tile = 1024;  // items that a block places

  Dim blocks() const { return blocks_for(count, tile); }
  Dim item_bytes() const { return count * Dim(narrow ? 8 : 16); }
  // Beside the sorted items: what passes before the last leave, and what they count.
  Dim scratch_bytes() const;
};
RadixSort radix_sort(const CudaProblem& problem, const Dim& count, int64_t largest_key, bool narrow);

// Appends the launches. `memory` is text that defines pointers to memory of multiples of 16 bytes: `sorted`,
// to items, and `scratch`, to char. `reader` is text that defines `read`, which makes item i, and if it
// `reports` also `report`, which says why item i is left out, by `error`. The code must include
// order/radix.cuh.
void add_radix_sort(CudaCode& code, const CudaProblem& problem, const RadixSort& sort,
                    const std::function<std::string(CudaParams&)>& memory,
                    const std::function<std::string(CudaParams&, bool reports)>& reader);

}  // namespace aicf
