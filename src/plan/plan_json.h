// The plan as JSON text, as it stands in the artifact. Reading accepts only what writing produces and throws
// UserError bad_artifact otherwise; check_plan must still pass before the plan is used.
#pragma once

#include <string>
#include <string_view>

#include "plan/plan.h"

namespace aicf {

std::string plan_to_json(const Plan& plan);
Plan plan_from_json(std::string_view text);

}  // namespace aicf
