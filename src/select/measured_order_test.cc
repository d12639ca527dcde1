// Which problems the order knows, what it may move, and, if asked, what it is fitted to.
#include "select/measured_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/mapped_file.h"
#include "kernels/library_call.h"
#include "select/records.h"
#include "select/testing/candidates_of_key.h"

namespace aicf {
namespace {

ProblemKey product(int64_t m, int64_t k, int64_t n, DType dtype = DType::f16) {
  const auto matrix = [&](int64_t rows, int64_t columns) {
    return KeyOperand{dtype, {Interval{rows, rows}, Interval{columns, columns}}, {columns, 1}, 16};
  };
  return {"sm_90", 132, "matmul", "a region", "-", {matrix(m, k), matrix(k, n)}, {matrix(m, n)}};
}

TEST(MeasuredOrder, MovesOneCandidateToTheFront) {
  int moved = 0;
  for (const int64_t m : {3, 40, 300, 2000})
    for (const int64_t k : {72, 640, 4000})
      for (const int64_t n : {24, 136, 1000}) {
        const ProblemKey key = product(m, k, n);
        const std::vector<Candidate> before = select_testing::candidates_of(key);
        std::vector<Candidate> after = before;
        const bool is_moved = order_by_measurements(key, after);
        moved += is_moved;
        EXPECT_EQ(is_moved, after != before) << to_string(key);
        std::vector<Candidate> others = before;
        const std::string first = to_string(after[0]);
        const auto moved_from = std::find_if(others.begin(), others.end(),
                                             [&](const Candidate& c) { return to_string(c) == first; });
        EXPECT_EQ(after[0].microseconds, std::min(moved_from->microseconds, before[0].microseconds));
        others.erase(moved_from);
        EXPECT_EQ(std::vector<Candidate>(after.begin() + 1, after.end()), others) << to_string(key);
      }
  EXPECT_GT(moved, 0);
}

TEST(MeasuredOrder, LeavesProblemsUnlikeTheMeasuredOnes) {
  ProblemKey other_machine = product(300, 640, 136);
  other_machine.target = "sm_80";
  ProblemKey transposed_conv = product(300, 640, 136);
  transposed_conv.op = "conv_transpose";
  for (const ProblemKey& key :
       {other_machine, transposed_conv, product(8192, 8192, 8192), product(300, 640, 136, DType::f64),
        product(0, 640, 136), product(300, 640, 136, DType::i8)}) {
    std::vector<Candidate> candidates{{"matmul_tensor_core", "wgmma 64x64 stages 6", 5},
                                      {"matmul_simt", "", 4}};
    EXPECT_FALSE(is_like_measured(key)) << to_string(key);
    EXPECT_FALSE(order_by_measurements(key, candidates)) << to_string(key);
  }
}

// Products whose launch others may share.
TEST(MeasuredOrder, LeavesSlicedProducts) {
  const ProblemKey key = product(100, 700, 60, DType::f32);
  std::vector<Candidate> candidates = select_testing::candidates_of(key);
  ASSERT_NE(candidates[0].variant.find(" slices "), std::string::npos);
  EXPECT_FALSE(order_by_measurements(key, candidates));
}

// No test but a tool: writes a line for every candidate that the record files of a folder measured, for
// bench/fit_order.py.
TEST(MeasuredOrder, WritesWhatItIsFittedTo) {
  const char* folder = std::getenv("AICF_ORDER_TIMES");
  if (folder == nullptr) GTEST_SKIP() << "AICF_ORDER_TIMES names no folder";
  std::ofstream out(std::filesystem::path(folder) / "features.tsv");
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const std::string path = file.path().string();
    if (file.path().extension() != ".csv") continue;
    std::map<std::string, std::vector<Record>> problems;
    for (Record& record : parse_records(MappedFile::open(path)->text(), path))
      if (!parse_library_candidate(record.choice))
        problems[to_string(record.key)].push_back(std::move(record));
    for (const auto& [text, records] : problems) {
      const std::vector<Candidate> candidates = select_testing::candidates_of(records[0].key);
      if (!is_like_measured(records[0].key)) continue;
      for (size_t i = 0; i < candidates.size(); ++i)
        for (const Record& record : records) {
          if (record.choice != to_string(candidates[i])) continue;
          out << records[0].key.op << "\t" << text << "\t" << i << "\t" << record.microseconds << "\t"
              << candidates[i].microseconds;
          for (const double x : order_features(records[0].key, candidates[i], candidates[0]))
            out << "\t" << x;
          out << "\n";
        }
    }
  }
  EXPECT_TRUE(out.flush().good());
}

}  // namespace
}  // namespace aicf
