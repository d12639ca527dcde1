// Random calls as selection and the rules over calls leave them: temps written whole, in parts (a concat) or
// in place, views of several dtypes, columns, reversed and broadcast windows, sizes that are not known,
// variables that are updated, calls of several members, and bodies of control flow. They hold together
// (calls/verify_calls.h), and what they write is read. Kernels and programs they have none.
#pragma once

#include <cstdint>

#include "select/call_program.h"

namespace aicf::testing {

// The last graph is the entry.
CallProgram random_calls(uint64_t seed);

}  // namespace aicf::testing
