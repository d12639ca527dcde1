// What a step must do at bound sizes, whatever kernel does it: the floor that its time is compared with.
#pragma once

#include "plan/plan.h"

namespace aicf {

struct StepCost {
  int64_t bytes = 0;  // every element of a window read or written once
  int64_t flops = 0;  // multiplications and additions of contractions and attention; 0 for other steps
  double microseconds = 0;
};

StepCost step_cost(const Step& step, const SymbolValues& sizes);

}  // namespace aicf
