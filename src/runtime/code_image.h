// Machine code that travels beside a plan: a cubin or PTX text, from a file that may be anybody's.
#pragma once

#include "base/array.h"

namespace aicf {

// The CUDA driver is told where an image begins, not where it ends: bad_artifact unless a cubin's tables and
// sections lie inside its bytes, or the bytes are PTX text. What the code does is trusted or not as a whole.
void check_code_image(const Array& image);

}  // namespace aicf
