#include "plan/control_layout.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "plan/arena.h"

namespace aicf {
namespace {

void require(bool holds, const Step& step, const char* what) {
  if (holds) return;
  throw UserError(ErrorCode::kU_bad_artifact,
                  "the plan is not consistent: a step of control flow " + std::string(what))
      .with_op(step.kernel)
      .with_remedy("compile the model again");
}

int64_t param(const Step& step, size_t i) {
  require(i < step.params.size() && step.params[i].is_constant(), step, "lacks a param");
  return *step.params[i].constant();
}

}  // namespace

ControlLayout control_layout(const Step& step, const std::vector<EntryPlan>& bodies) {
  const bool scans = step.kernel == kScan, loops = step.kernel == kWhileLoop;
  require(scans || loops || step.kernel == kIfElse, step, "has an unknown kernel");
  require(step.bodies.size() == (scans ? 1 : 2), step, "has a wrong number of bodies");
  ControlLayout layout;
  for (int32_t body : step.bodies) {
    require(body >= 0 && body < static_cast<int32_t>(bodies.size()), step, "names no body");
    layout.bytes = std::max(layout.bytes, bodies[static_cast<size_t>(body)].arena_bytes);
  }
  const EntryPlan& body = bodies[static_cast<size_t>(step.bodies.back())];
  // Place for what a buffer of the body holds.
  const auto take = [&](const IoTensor& io) {
    require(io.buffer >= 0 && io.buffer < static_cast<int32_t>(body.buffers.size()), step,
            "has a body without a buffer");
    const int64_t bytes = align_up(body.buffers[static_cast<size_t>(io.buffer)].max_bytes);
    return std::exchange(layout.bytes, checked_add(layout.bytes, bytes));
  };
  layout.condition = align_up(layout.bytes);
  layout.bytes = checked_add(layout.condition, kBufferAlignment);
  if (!scans && !loops) return layout;
  const int64_t carried = scans ? param(step, 0) : static_cast<int64_t>(step.inputs.size());
  require(carried >= 0 && carried <= static_cast<int64_t>(std::min(step.inputs.size(), body.inputs.size())),
          step, "carries more than it has");
  for (int64_t i = 0; i < carried; ++i) {
    const int64_t next = param(step, static_cast<size_t>(scans ? i + 2 : i));
    const auto outputs = static_cast<int64_t>(body.outputs.size());
    require(next == -1 || (next == layout.advancing && next < outputs), step, "carries what its body lacks");
    layout.advancing += next < 0 ? 0 : 1;
    layout.next.push_back(next);
    for (auto& set : layout.carried) set.push_back(next < 0 ? -1 : take(body.inputs[static_cast<size_t>(i)]));
  }
  const bool runs_in_a_graph = step.module >= 0;
  if (!scans || !runs_in_a_graph) return layout;
  for (size_t i = layout.next.size(); i < body.inputs.size(); ++i)
    layout.rows.push_back(take(body.inputs[i]));
  for (auto i = static_cast<size_t>(layout.advancing); i < body.outputs.size(); ++i)
    layout.rows.push_back(take(body.outputs[i]));
  return layout;
}

}  // namespace aicf
