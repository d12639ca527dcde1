#include "base/jit.h"

#include "base/limits.h"

namespace aicf {

bool jit_allowed() { return number_from_environment("AICF_JIT", 0, 1).value_or(1) != 0; }

}  // namespace aicf
