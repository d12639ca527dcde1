// What the tuner asks of a machine: whether a candidate computes the right thing, and how long it takes.
// bench_device.h has the real one; tests have a fake.
#pragma once

#include <string>
#include <vector>

#include "tune/trial.h"

namespace aicf {

// The candidates, by index, of a problem that are to be measured.
struct TuneTask {
  const TuneProblem* problem;
  std::vector<size_t> candidates;
};

struct CheckResult {
  bool ok = true;
  double error = 0;  // ‖out − reference‖ / ‖reference‖
  std::string why;   // "" if ok
};

class Bench {
 public:
  virtual ~Bench() = default;
  // Makes the code of these tasks, in parallel, in place of that of earlier ones; before they are opened.
  virtual void build(const std::vector<TuneTask>& tasks) = 0;
  // From here on candidates are those of this task.
  virtual void open(const TuneTask& task) = 0;
  // Against a reference in higher precision, then against itself: the same bits again.
  virtual CheckResult check(size_t candidate) = 0;
  // One sample: microseconds of a call over operands that no cache holds.
  virtual double time(size_t candidate) = 0;
  // What fixes the measured code, for the record: "nvrtc 13.0".
  virtual std::string versions() const = 0;
};

}  // namespace aicf
