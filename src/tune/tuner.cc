#include "tune/tuner.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "base/error.h"
#include "kernels/common/library_call.h"

namespace aicf {
namespace {

const Record* find_record(const std::vector<Record>& records, const ProblemKey& key) {
  const auto at = std::find_if(records.begin(), records.end(), [&](const Record& r) { return r.key == key; });
  return at == records.end() ? nullptr : &*at;
}

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  return n % 2 == 1 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
}

// A record that selection passes over, because its kernel has changed or has no such variant any more, is
// measured anew. One of a library that is not here, or of a joined kernel, is no candidate and stays.
bool is_outdated(const Record& record, const TuneProblem& problem) {
  if (is_stale(record)) return true;
  bool has_kernel = false;
  for (const Candidate& candidate : problem.candidates) {
    if (to_string(candidate) == record.choice) return false;
    has_kernel = has_kernel || candidate.kernel == kernel_of(record.choice);
  }
  return has_kernel;
}

std::vector<size_t> pick_candidates(const TuneProblem& problem, const Record* record, int most) {
  std::vector<size_t> order(problem.candidates.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return problem.candidates[a].estimate_us < problem.candidates[b].estimate_us;
  });
  std::set<size_t> picked = {0};
  std::set<std::string> kernels;
  size_t libraries = 0;  // beside the others, so that what --build-only compiles does not depend on them
  for (const size_t i : order) {
    if (is_library_kernel(problem.candidates[i].kernel)) {
      libraries += picked.insert(i).second;
      continue;
    }
    const bool is_record = record != nullptr && record->choice == to_string(problem.candidates[i]);
    // The estimates of different kernels come from different models: each has its best one in the race.
    const bool first_of_kernel = kernels.insert(problem.candidates[i].kernel).second;
    if (is_record || first_of_kernel || picked.size() - libraries < static_cast<size_t>(most))
      picked.insert(i);
  }
  return {picked.begin(), picked.end()};
}

// A candidate this much slower than the best after a first look leaves the race.
constexpr double kOutOfRace = 1.15;
constexpr int kFirstLook = 3;

// Problems whose candidates are built together where there is a limit of time.
constexpr size_t kBatch = 4;

void race(Bench& bench, const TuneTask& task, std::vector<Measured>& measured, int samples) {
  for (int round = 0; round < samples; ++round) {
    double best = -1;
    for (const Measured& m : measured)
      if (!m.samples.empty() && (best < 0 || median(m.samples) < best)) best = median(m.samples);
    for (size_t i = 0; i < measured.size(); ++i) {
      Measured& m = measured[i];
      if (!m.check.ok) continue;
      // What would run anyhow stays, because the winner is compared with it.
      if (round >= kFirstLook && task.candidates[i] != 0 && median(m.samples) > kOutOfRace * best) continue;
      m.samples.push_back(bench.time(task.candidates[i]));
    }
  }
  for (Measured& m : measured)
    if (!m.samples.empty()) m.microseconds = median(m.samples);
}

const Measured* find_measured(const std::vector<Measured>& measured, const std::string& name) {
  for (const Measured& m : measured)
    if (m.check.ok && !m.samples.empty() && to_string(m.candidate) == name) return &m;
  return nullptr;
}

TuneResult tune_problem(const TuneTask& task, const Record* known, Bench& bench, const TuneOptions& options) {
  TuneResult result{task.problem, {}, {}};
  bench.open(task);
  for (const size_t i : task.candidates)
    result.measured.push_back({task.problem->candidates[i], bench.check(i), {}, 0});
  race(bench, task, result.measured, options.samples);
  const Measured* best = nullptr;
  for (const Measured& m : result.measured)
    if (!m.samples.empty() && (best == nullptr || m.microseconds < best->microseconds)) best = &m;
  if (best == nullptr)
    throw InternalError(ErrorCode::kI_check_failed, "no candidate of a problem computes the right thing")
        .with_op(task.problem->origin)
        .with_value(to_string(task.problem->key))
        .with_actual(result.measured[0].check.why);
  const Measured* heuristic = find_measured(result.measured, to_string(task.problem->candidates[0]));
  const Measured* present = known != nullptr ? find_measured(result.measured, known->choice) : heuristic;
  if (present != nullptr && best->microseconds > (1 - options.margin) * present->microseconds) best = present;
  result.record = {task.problem->key, to_string(best->candidate), best->microseconds,
                   heuristic != nullptr ? heuristic->microseconds : 0,
                   record_versions(bench.versions(), to_string(best->candidate))};
  result.changed = best != present;
  return result;
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::vector<TuneTask> plan_tasks(const std::vector<TuneProblem>& problems, const std::vector<Record>& known,
                                 const TuneOptions& options) {
  std::vector<TuneTask> tasks;
  for (const TuneProblem& problem : problems) {
    const Record* record = find_record(known, problem.key);
    if (record != nullptr && !options.again && !is_outdated(*record, problem)) continue;
    tasks.push_back({&problem, pick_candidates(problem, record, options.candidates)});
  }
  const auto weight = [](const TuneTask& task) {
    return task.problem->uses * task.problem->candidates[0].price_us;
  };
  std::stable_sort(tasks.begin(), tasks.end(),
                   [&](const TuneTask& a, const TuneTask& b) { return weight(a) > weight(b); });
  return tasks;
}

TuneSummary tune(const std::vector<TuneProblem>& problems, const std::vector<Record>& known, Bench& bench,
                 const TuneOptions& options, const std::function<void(const TuneResult&)>& on_result) {
  const std::function<double()> now = options.now ? options.now : steady_seconds;
  const std::vector<TuneTask> tasks = plan_tasks(problems, known, options);
  TuneSummary summary;
  summary.known = static_cast<int>(problems.size() - tasks.size());
  const double start = now();
  // Where time may run out, what is built is soon measured, so that every call gets on.
  const size_t batch = options.seconds > 0 ? kBatch : std::max<size_t>(tasks.size(), 1);
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (i > 0 && options.seconds > 0 && now() - start > options.seconds) {
      summary.left = static_cast<int>(tasks.size() - i);
      break;
    }
    if (i % batch == 0)
      bench.build({tasks.begin() + static_cast<ptrdiff_t>(i),
                   tasks.begin() + static_cast<ptrdiff_t>(std::min(i + batch, tasks.size()))});
    const TuneTask& task = tasks[i];
    const TuneResult result = tune_problem(task, find_record(known, task.problem->key), bench, options);
    ++summary.tuned;
    summary.changed += result.changed;
    on_result(result);
  }
  return summary;
}

void put_record(std::vector<Record>& records, const Record& record) {
  for (Record& old : records)
    if (old.key == record.key) {
      old = record;
      return;
    }
  records.push_back(record);
}

}  // namespace aicf
