// A step of a plan, with its launches and members, as JSON and back, a part of plan_json.h.
#pragma once

#include "plan/plan_json_values.h"

namespace aicf {

Json step_json(const Step& step);
Step step_from(const ParsedJson& json);

}  // namespace aicf
