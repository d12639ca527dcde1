// A step of control flow and its bodies at bound sizes. Shared by the drivers that run them.
#pragma once

#include <vector>

#include "kernels/common/abi.h"
#include "plan/control_layout.h"

namespace aicf {

struct BoundControl {
  struct Body {
    const EntryPlan* plan;
    std::vector<int64_t> input_bytes, output_bytes;
  };
  ControlLayout layout;
  std::vector<Body> bodies;  // those of the step, in order
  int64_t length = 0;        // of a scan
  bool reverse = false;

  size_t carried() const { return layout.next.size(); }
  size_t advancing() const { return static_cast<size_t>(layout.advancing); }
};

// `call` is the bound step. bad_artifact unless every operand is dense and has the bytes that the bodies read
// and write.
BoundControl bind_control(const Plan& plan, const Step& step, const BoundCall& call,
                          const SymbolValues& sizes);

int64_t bytes_of(const TensorArg& arg);

}  // namespace aicf
