// About how long a bound call takes on one core: coarse, never too low by more than the slowest kernel is
// slower than assumed, and free of any measurement. It guards against plans that would run for days; it
// chooses nothing.
#pragma once

#include "kernels/common/kernel.h"

namespace aicf {

double estimate_seconds(const Kernel& kernel, const BoundCall& call);

}  // namespace aicf
