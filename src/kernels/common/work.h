// What a call must do, whatever kernel does it: the floor that its time is compared with, and what the cost
// model of selection starts from.
#pragma once

#include <vector>

#include "kernels/common/abi.h"
#include "kernels/common/kernel.h"

namespace aicf {

// Exact up to 2^53; sizes may be the bounds of wide ranges, whose product fits no integer.
struct Work {
  double bytes =
      0;  // every element that is needed read or written once; rows that indices name count as different ones
  double flops = 0;       // multiplications and additions of contractions and attention; 0 for other calls
  double sure_bytes = 0;  // of `bytes`, those that no data can avoid: indices may all name one row
};

// Elements at addresses of their own of windows of one memory that are alike but for where they begin.
double distinct_elements(const TensorArg& window, const std::vector<int64_t>& offsets);

// `form`: of the row (facts_of); `params` are those of its list; addresses are not looked at.
Work work_of(WorkForm form, const std::vector<TensorArg>& inputs, const std::vector<TensorArg>& outputs,
             const std::vector<int64_t>& params);

}  // namespace aicf
