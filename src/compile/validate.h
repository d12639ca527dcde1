// Whether a compiled program computes what its model means, on a device: the outputs against the reference in
// f64, and every call of the optimised program against the reference over the operands that the call had.
// Both within running error bounds (ir/reference/error_estimate.h). The second check names the call that is
// wrong, and its bounds stay narrow however deep the model is.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compile/compile.h"
#include "ir/reference/compare.h"
#include "runtime/executable.h"

namespace aicf {

struct ValidateOptions {
  CompileOptions compile;
  // Puts the programs on the device that trace the calls.
  std::function<std::unique_ptr<Executable>(Artifact)> load;
  // Outputs by name to compare with in place of the reference's.
  std::optional<std::map<std::string, Array>> expected;
  // Of the outputs, in place of the bounds; the one that is not given is 0. Calls are then not checked.
  std::optional<double> rtol, atol;
  std::function<void(size_t done, size_t of)> progress;  // of the calls; may be empty
};

struct OutputCheck {
  std::string name;  // of an output, or "update:<state>"
  CompareReport report;
  double bound = 0;  // the largest that is finite
  // Beyond the bound though every call is right on the operands that it had, the calls together mean the
  // model and they give these bits: the model magnifies errors more than the estimate saw.
  bool explained = false;
  bool ok() const { return report.ok() || explained; }
};

// A call whose result is beyond its bound.
struct CallCheck {
  std::string op, origin, kernel;  // a region is named by its ops
  CompareReport report;
};

struct Validation {
  std::vector<OutputCheck> outputs;
  std::vector<CallCheck> failed_calls;  // in the order of the program
  size_t calls = 0;                     // that were checked
  int64_t undecided = 0;                // elements of their results
  bool passed() const;
};

// Of the first entry; `exe` is the program compiled with these options and not run yet. Errors: those of
// compiling and running; missing_input for an output that `expected` lacks.
Validation validate(const Program& program, Executable& exe, const std::map<std::string, Array>& inputs,
                    const ValidateOptions& options);

// A line for each output and failed call, and the verdict.
std::string to_string(const Validation& validation);

}  // namespace aicf
