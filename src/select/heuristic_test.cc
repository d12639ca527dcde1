// What selection takes without a record, against the times of all candidates of problems whose shapes no
// record has, on an H100 (bench/tune_unseen.py). The estimates were last fitted to those that they had
// missed. Nothing is timed here.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/mapped_file.h"
#include "kernels/library_call.h"
#include "select/records.h"
#include "select/testing/candidates_of_key.h"

namespace aicf {
namespace {

constexpr double kAllowed = 1.15;  // times the fastest own candidate

// Microseconds of each problem's own candidates, by the key's text. A library's calls need a record.
struct Measured {
  ProblemKey key;
  std::map<std::string, double> times;
};

std::vector<Measured> measured_problems() {
  const std::string path = std::string(AICF_SOURCE_DIR) + "/bench/results/tune_unseen_2026-11-22_times.csv";
  std::map<std::string, Measured> problems;
  for (const Record& record : parse_records(MappedFile::open(path)->text(), path)) {
    if (parse_library_candidate(record.choice)) continue;
    EXPECT_FALSE(is_stale(record)) << "measure again: " << record.choice;
    Measured& problem = problems[to_string(record.key)];
    problem.key = record.key;
    problem.times[record.choice] = record.microseconds;
  }
  std::vector<Measured> list;
  for (auto& [text, problem] : problems) list.push_back(std::move(problem));
  return list;
}

TEST(Heuristic, is_within_the_allowance_of_the_best_of_every_measured_problem) {
  const std::vector<Measured> problems = measured_problems();
  EXPECT_GE(problems.size(), 63u);
  for (const Measured& problem : problems) {
    const std::string choice = to_string(select_testing::candidates_of(problem.key).at(0));
    const auto best = std::min_element(problem.times.begin(), problem.times.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    const auto chosen = problem.times.find(choice);
    if (chosen == problem.times.end())
      ADD_FAILURE() << "never measured, so measure again: " << choice << " of " << to_string(problem.key);
    else
      EXPECT_LE(chosen->second, kAllowed * best->second)
          << to_string(problem.key) << "\n  " << choice << " takes " << chosen->second << " us, "
          << best->first << " " << best->second;
  }
}

}  // namespace
}  // namespace aicf
