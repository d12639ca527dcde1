// What a step must do at bound sizes, and how long it took.
#pragma once

#include "kernels/work.h"
#include "plan/plan.h"

namespace aicf {

struct StepCost : Work {
  double microseconds = 0;
};

StepCost step_cost(const Step& step, const SymbolValues& sizes);

}  // namespace aicf
