// A tile program as JSON and back, a part of plan_json.h.
#pragma once

#include "plan/plan_json_values.h"

namespace aicf {

Json program_json(const TileProgram& program);
TileProgram program_from(const ParsedJson& json);

}  // namespace aicf
