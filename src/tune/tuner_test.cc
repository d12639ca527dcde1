// The tuner's decisions, on a machine that is made up.
#include "tune/tuner.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"

namespace aicf {
namespace {

// The ways of the made-up kernel.
Way way(size_t number) { return MatmulWay{.stages = 2 + static_cast<int>(number)}; }
std::string kernel_in(size_t number) { return "kernel/" + to_string(way(number)); }

TuneProblem problem(const std::string& name, std::vector<double> estimates, int uses = 1) {
  TuneProblem p;
  const KeyOperand four{DType::f32, {}, {{4, 4}}, {{1, 1}}, 4};
  p.key = {"fake", 1, name, "-", "-", {four}, {four}};
  p.origin = name;
  p.uses = uses;
  for (size_t i = 0; i < estimates.size(); ++i) p.candidates.push_back({"kernel", way(i), estimates[i]});
  return p;
}

class FakeBench final : public Bench {
 public:
  std::map<std::string, std::vector<double>> times;  // by problem's op: of each candidate
  std::map<std::string, size_t> wrong;               // by problem's op: a candidate that computes nonsense
  std::vector<std::string> opened;
  int built = 0, timed = 0;
  std::set<std::string> ready;

  void build(const std::vector<TuneTask>& tasks) override {
    built += static_cast<int>(tasks.size());
    ready.clear();
    for (const TuneTask& task : tasks) ready.insert(task.problem->key.op);
  }
  void open(const TuneTask& task) override {
    EXPECT_TRUE(ready.contains(task.problem->key.op));
    op_ = task.problem->key.op;
    opened.push_back(op_);
  }
  CheckResult check(size_t candidate) override {
    const auto at = wrong.find(op_);
    if (at != wrong.end() && at->second == candidate) return {false, 1.0, "wrong"};
    return {};
  }
  double time(size_t candidate) override {
    ++timed;
    const double noise = timed % 5 == 0 ? 1.5 : 1.0;  // now and then a slow sample
    return times.at(op_).at(candidate) * noise;
  }
  std::string versions() const override { return "fake 1"; }

 private:
  std::string op_;
};

std::vector<Record> tune_all(const std::vector<TuneProblem>& problems, std::vector<Record> known,
                             FakeBench& bench, const TuneOptions& options = {},
                             TuneSummary* summary = nullptr) {
  const TuneSummary done = tune(problems, known, bench, options,
                                [&](const TuneResult& result) { put_record(known, result.record); });
  if (summary != nullptr) *summary = done;
  return known;
}

TEST(Tuner, the_fastest_that_is_right_wins) {
  FakeBench bench;
  bench.times["a"] = {10, 7, 5};
  bench.wrong["a"] = 2;
  const std::vector<TuneProblem> problems = {problem("a", {1, 2, 3})};
  const std::vector<Record> records = tune_all(problems, {}, bench);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].choice, kernel_in(1));
  EXPECT_EQ(records[0].microseconds, 7);
  EXPECT_EQ(records[0].heuristic_microseconds, 10);
  EXPECT_EQ(records[0].versions, "fake 1");
  EXPECT_EQ(records[0].key, problems[0].key);
}

TEST(Tuner, a_small_gain_changes_nothing) {
  FakeBench bench;
  bench.times["a"] = {10, 9.9};
  EXPECT_EQ(tune_all({problem("a", {1, 2})}, {}, bench)[0].choice, kernel_in(0));
  TuneOptions options;
  options.margin = 0.005;
  EXPECT_EQ(tune_all({problem("a", {1, 2})}, {}, bench, options)[0].choice, kernel_in(1));
}

TEST(Tuner, known_problems_are_left_alone_unless_asked_for_again) {
  FakeBench bench;
  bench.times["a"] = {10, 5, 8};
  bench.times["b"] = {10, 5, 8};
  const std::vector<TuneProblem> problems = {problem("a", {1, 2, 3}), problem("b", {1, 2, 3})};
  const std::vector<Record> known = {{problems[0].key, kernel_in(2), 8, 10, "old"}};
  TuneSummary summary;
  std::vector<Record> records = tune_all(problems, known, bench, {}, &summary);
  EXPECT_EQ(bench.opened, std::vector<std::string>{"b"});
  EXPECT_EQ(summary.known, 1);
  EXPECT_EQ(summary.tuned, 1);
  EXPECT_EQ(records[0].versions, "old");
  TuneOptions options;
  options.again = true;
  records = tune_all(problems, known, bench, options, &summary);
  EXPECT_EQ(records[0].choice, kernel_in(1));
  EXPECT_EQ(summary.changed, 2);
}

TEST(Tuner, what_matters_most_comes_first_and_time_runs_out) {
  FakeBench bench;
  bench.times["cheap"] = bench.times["dear"] = bench.times["often"] = {2, 1};
  const std::vector<TuneProblem> problems = {problem("cheap", {1, 1}), problem("dear", {50, 60}),
                                             problem("often", {10, 10}, 20)};
  double clock = 0;
  TuneOptions options;
  options.seconds = 0.5;
  options.now = [&] { return clock++; };
  TuneSummary summary;
  const std::vector<Record> records = tune_all(problems, {}, bench, options, &summary);
  EXPECT_EQ(bench.opened, std::vector<std::string>{"often"});
  EXPECT_EQ(summary.left, 2);
  options.seconds = 0;
  bench.opened.clear();
  EXPECT_EQ(tune_all(problems, records, bench, options).size(), 3u);  // resumed
  EXPECT_EQ(bench.opened, (std::vector<std::string>{"dear", "cheap"}));
}

TEST(Tuner, a_short_time_builds_little_and_every_call_gets_on) {
  FakeBench bench;
  std::vector<TuneProblem> problems;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g"}) {
    problems.push_back(problem(name, {1, 1}));
    bench.times[name] = {2, 1};
  }
  double clock = 0;
  TuneOptions options;
  options.seconds = 1;
  options.now = [&] { return clock += 100; };  // what one call takes is more than there is
  std::vector<Record> records;
  for (size_t call = 1; call <= problems.size(); ++call) {
    bench.built = 0;
    records = tune_all(problems, records, bench, options);
    EXPECT_EQ(records.size(), call);
    EXPECT_LE(bench.built, 4);
  }
  options.seconds = 0;
  options.again = true;
  bench.built = 0;
  tune_all(problems, records, bench, options);
  EXPECT_EQ(bench.built, 7);
}

TEST(Tuner, records_that_no_longer_hold_are_measured_anew) {
  FakeBench bench;
  bench.times["a"] = bench.times["b"] = bench.times["c"] = bench.times["d"] = {10, 5};
  std::vector<TuneProblem> problems = {problem("a", {1, 2}), problem("b", {1, 2}), problem("c", {1, 2}),
                                       problem("d", {1, 2})};
  problems[3].candidates = {{"matmul_tensor_core", way(0), 1}, {"matmul_tensor_core", way(1), 2}};
  const std::vector<Record> known = {
      {problems[0].key, "kernel/gone", 8, 10, ""},             // no such variant
      {problems[1].key, kernel_in(0), 8, 10, ""},              // as it was
      {problems[2].key, "matmul_cublaslt/1 bias", 8, 10, ""},  // of a library that is not here
      {problems[3].key, "matmul_tensor_core/" + to_string(way(0)), 8, 10,
       "nvrtc 13.0 kernel 0"}};  // of another kernel
  TuneSummary summary;
  const std::vector<Record> records = tune_all(problems, known, bench, {}, &summary);
  EXPECT_EQ(summary.known, 2);
  EXPECT_EQ(bench.opened, (std::vector<std::string>{"a", "d"}));
  EXPECT_EQ(records[0].choice, kernel_in(1));
  EXPECT_EQ(records[1], known[1]);
  EXPECT_EQ(records[2], known[2]);
}

TEST(Tuner, the_best_estimated_and_what_would_run_are_measured) {
  TuneProblem p = problem("a", {9, 8, 7, 6, 5, 4});
  p.candidates.push_back({"other", {}, 100});
  TuneOptions options;
  options.candidates = 3;
  const Record known{p.key, kernel_in(1), 1, 1, ""};
  options.again = true;
  const std::vector<TuneProblem> problems = {p};
  const auto tasks = plan_tasks(problems, {known}, options);
  ASSERT_EQ(tasks.size(), 1u);
  // First in rank, best two by estimate, the record's, the other kernel's best.
  EXPECT_EQ(tasks[0].candidates, (std::vector<size_t>{0, 1, 4, 5, 6}));
}

// So a run with the libraries finds the code that --build-only made without them.
TEST(Tuner, a_librarys_calls_take_no_place_of_others) {
  TuneOptions options;
  options.candidates = 2;
  TuneProblem own = problem("a", {3, 1, 2, 4}), both = own;
  for (const uint64_t algorithm : {1, 2})
    both.candidates.push_back(
        {.kernel = "matmul_cublaslt", .estimate_us = 1, .library = CublasLtCall{.algorithm = {algorithm}}});
  const std::vector<TuneProblem> alone = {own}, problems = {both};
  EXPECT_EQ(plan_tasks(alone, {}, options)[0].candidates, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(plan_tasks(problems, {}, options)[0].candidates, (std::vector<size_t>{0, 1, 4, 5}));
}

TEST(Tuner, slow_candidates_leave_the_race) {
  FakeBench bench;
  bench.times["a"] = {10, 5, 50, 60, 70};
  TuneOptions options;
  options.samples = 20;
  tune_all({problem("a", {1, 1, 1, 1, 1})}, {}, bench, options);
  EXPECT_EQ(bench.timed, 20 + 20 + 3 * 3);
}

TEST(Tuner, nothing_right_is_an_internal_error) {
  FakeBench bench;
  bench.times["a"] = {1};
  bench.wrong["a"] = 0;
  EXPECT_THROW(tune_all({problem("a", {1})}, {}, bench), InternalError);
}

}  // namespace
}  // namespace aicf
