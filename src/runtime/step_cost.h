// What a step must do at bound sizes, and how long it took.
#pragma once

#include "kernels/common/work.h"
#include "plan/plan.h"

namespace aicf {

struct StepCost : Work {
  double microseconds = 0;
};

StepCost step_cost(const Step& step, const SymbolValues& sizes);

// The fastest that the step's kernel, or one of its members', multiplies on.
Units units_of(const Step& step);

}  // namespace aicf
