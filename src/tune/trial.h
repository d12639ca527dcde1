// What the tuner measures: the problems of a program that have more than one candidate, and the few calls
// that run one candidate, or a reference in higher precision, over operands of their own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "select/select.h"

namespace aicf {

// A problem of the program; steps with equal keys are one.
struct TuneProblem {
  ProblemKey key;
  std::string origin;  // of the first such step
  int uses = 0;
  std::vector<Candidate> candidates;  // as ranked without records
  KernelCall call;                    // as it would run without records
  std::optional<Region> region;       // of the call
};

bool multiplies_in_tf32(const TuneProblem& problem);

// By operand the dtype whose values it holds: its own, or f16 of what is multiplied in tf32, which has all of
// these values. So a reference that does not round is one, and a call may read what lies rounded already.
std::vector<DType> held_dtypes(const TuneProblem& problem);

// Calls over buffers of their own: window roots are numbers from 0. `init` fills packed operands and is not
// timed.
struct Trial {
  std::vector<KernelCall> init, calls;
  std::vector<Region> regions;
  std::vector<Window> operands, outputs;  // the problem's, wherever they lie
};

// Takes an optimised program. Problems in the order of their first steps. Products that share a kernel with
// their rows or their attention are none: by itself such a product says nothing about that kernel, and a
// record of it would keep the two apart.
std::vector<TuneProblem> list_problems(const Program& optimised, const Target& target);

class TrialMaker {
 public:
  // Both must outlive the maker.
  TrialMaker(const Program& optimised, const Target& target);
  Trial candidate(const TuneProblem& problem, const Candidate& candidate) const;
  // The same with half types as f32 and f32 as f64, by the plainest kernels there are; nullopt if the target
  // has none.
  std::optional<Trial> reference(const TuneProblem& problem) const;

 private:
  const Program& program_;
  const Target& target_;
  SelectOptions options_;
};

}  // namespace aicf
