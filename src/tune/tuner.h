// Measures candidates and keeps what is faster. Takes problems and a machine; gives records. A problem that
// the given records know already, as its kernel is now, is left alone unless asked for again, so that tuning
// can be cut off and resumed.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "select/records.h"
#include "tune/bench.h"

namespace aicf {

struct TuneOptions {
  double seconds = 0;           // after which no problem is begun but the first; 0: no limit
  int candidates = 12;          // of a problem, the best estimated; a library's come on top
  int samples = 9;              // of each candidate that stays in the race
  double margin = 0.02;         // of time that must be won for a change of what would run anyhow
  bool again = false;           // measures problems that have a record, too
  std::function<double()> now;  // seconds; the steady clock if empty
};

struct Measured {
  Candidate candidate;
  CheckResult check;
  std::vector<double> samples;  // microseconds, in the order taken
  double microseconds = 0;      // their median
};

struct TuneResult {
  const TuneProblem* problem;
  std::vector<Measured> measured;
  Record record;
  bool changed = false;  // another candidate than what would run without this tuning
};

struct TuneSummary {
  int known = 0, tuned = 0, changed = 0, left = 0;  // left: for want of time
};

// Which problems of the list are to be measured, those that matter most first, and which of their candidates:
// those estimated best of every kernel, what would run without records, and the choice of a record.
std::vector<TuneTask> plan_tasks(const std::vector<TuneProblem>& problems, const std::vector<Record>& known,
                                 const TuneOptions& options);

// `on_result` is called after each problem; a record is ready to be written then.
TuneSummary tune(const std::vector<TuneProblem>& problems, const std::vector<Record>& known, Bench& bench,
                 const TuneOptions& options, const std::function<void(const TuneResult&)>& on_result);

// `records` with this one added, or in place of that of the same key.
void put_record(std::vector<Record>& records, const Record& record);

}  // namespace aicf
