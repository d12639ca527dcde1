// A CPU on which one call of a program goes wrong, as calls of kernels with an error in their loops or
// offsets do. Takes plans like the CPU; a fault is drawn by a seed.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/device.h"

namespace aicf::testing {

enum class FaultKind : uint8_t {
  kLostTail,     // the last elements of rows are not written
  kLostTerm,     // an operand reads as 0 in the last places of an axis: a sum ends too soon
  kDroppedTerm,  // an operand reads as 0: no bias, no residual, no mask
  kOneOff,       // an operand is read one place off along an axis: one key, one row, one column
  kWrongScale,   // a result is 17/16 of what it should be
};

struct KernelFault {
  FaultKind kind = FaultKind::kLostTail;
  std::string step;  // which, by what is the same in every plan of the program (step_key)
  int operand = 0, axis = 0;
  bool copies = false;  // the step only moves a value
  std::string text() const;
};

// Kernel, sizes of operands and results, and the tile program.
std::string step_key(const Plan& plan, const Step& step);

// A fault of one step of the entry "main" of a plan; the same for the same seed.
KernelFault draw_fault(const Plan& plan, uint64_t seed);

// `changed` becomes true if the fault ever changed a bit of a result.
std::shared_ptr<Device> make_faulty_cpu(const KernelFault& fault, bool* changed);

}  // namespace aicf::testing
