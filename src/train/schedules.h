// Learning rate schedules. A schedule is a graph: its input is the number of optimizer steps finished so far
// (i64 scalar), its output the rate of the step at hand (a float scalar). The train step inlines it, so the
// rate is computed where the step counter lives and any traced function of the step will do.
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace aicf {

// Of the makers below: bad_option for rates that are negative or not finite and lengths below one step.
Graph constant_rate(double rate);
// From `first` at step 0 to `last` at step `total`, and `last` from there on.
Graph linear_rate(double first, double last, int64_t total);
// Half a cosine from `peak` at step 0 to `floor` at step `total`, and `floor` from there on (Loshchilov &
// Hutter 2017).
Graph cosine_rate(double peak, int64_t total, double floor = 0);
// rate * factor^(step / every), the quotient rounded down.
Graph step_rate(double rate, double factor, int64_t every);
// The first `steps` steps rise evenly to the first rate of `after` (1/steps of it, 2/steps, …); then `after`
// begins.
Graph with_warmup(const Graph& after, int64_t steps);

// UserError bad_graph unless `schedule` maps one i64 scalar to one float scalar and reads nothing else.
void check_schedule(const Graph& schedule);

}  // namespace aicf
