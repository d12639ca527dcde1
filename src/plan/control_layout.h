// What lies in the workspace of a step of control flow: the condition of a loop, two sets of what it carries
// (one is read while the other is written), and the arena of its bodies, which run one after the other. The
// planner and the CPU driver take it from here.
//
//   step         inputs                       params                            outputs
//   if_else      condition, captures          -                                 results
//   while_loop   carried                      next per carried                  carried at the end
//   scan         carried, then walked         carried, reverse, next per carried  carried at the end, stacked
//
// `next` is the output of the last body that gives a carried value's next contents, in order; -1 if it keeps
// them. The other outputs of a scan's body are the rows of its stacked results.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace aicf {

inline constexpr std::string_view kIfElse = "if_else", kWhileLoop = "while_loop", kScan = "scan";

struct ControlLayout {
  std::vector<int64_t> next;        // per carried value
  int64_t advancing = 0;            // carried values that do not keep their contents
  std::vector<int64_t> carried[2];  // offsets of the two sets, per carried value; -1: keeps its contents
  // Offset; the bodies' arena begins at 0. Of a scan on a GPU: the number of the trip.
  int64_t condition = 0;
  // Of a scan on a GPU, whose launches have fixed addresses: where a row of each walked operand, then of each
  // stacked result lies for the body.
  std::vector<int64_t> rows;
  int64_t bytes = 0;  // of the whole workspace
};

// Throws UserError bad_artifact if kernel, params or bodies of the step do not fit together.
ControlLayout control_layout(const Step& step, const std::vector<EntryPlan>& bodies);

}  // namespace aicf
