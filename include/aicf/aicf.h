// The C++ API of AICF, all of it. docs/embedding.md shows how to use it.
#pragma once

#include "aicf/compile.h"     // IWYU pragma: export
#include "aicf/error.h"       // IWYU pragma: export
#include "aicf/executable.h"  // IWYU pragma: export
#include "aicf/graph.h"       // IWYU pragma: export
#include "aicf/tensor.h"      // IWYU pragma: export
#include "aicf/train.h"       // IWYU pragma: export
#include "aicf/version.h"     // IWYU pragma: export
