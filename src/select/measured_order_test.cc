// Which problems the order knows, what it may move, and, if asked, what it is fitted to.
#include "select/measured_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/mapped_file.h"
#include "kernels/common/cuda_kernel.h"
#include "kernels/common/library_call.h"
#include "select/records.h"
#include "select/testing/candidates_of_key.h"

namespace aicf {
namespace {

ProblemKey product_key(int64_t m, int64_t k, int64_t n, DType dtype = DType::f16) {
  const auto matrix = [&](int64_t rows, int64_t columns) {
    return KeyOperand{dtype, {}, {{rows, rows}, {columns, columns}}, {{columns, columns}, {1, 1}}, 16};
  };
  return {"sm_90", 132, "matmul", "a region", "-", {matrix(m, k), matrix(k, n)}, {matrix(m, n)}};
}

TEST(MeasuredOrder, MovesOneCandidateToTheFrontAtAPriceAndLeavesTheEstimates) {
  int moved = 0, cheaper = 0;
  for (const int64_t m : {3, 40, 300, 1000, 2000})
    for (const int64_t k : {72, 640, 4000})
      for (const int64_t n : {24, 136, 1000}) {
        const ProblemKey key = product_key(m, k, n);
        const std::vector<Candidate> before = select_testing::candidates_of(key);
        std::vector<Candidate> after = before;
        const bool is_moved = order_by_measurements(key, after);
        moved += is_moved;
        EXPECT_EQ(is_moved, after != before) << to_string(key);
        std::vector<Candidate> others = before;
        const std::string first = to_string(after[0]);
        const auto moved_from = std::find_if(others.begin(), others.end(),
                                             [&](const Candidate& c) { return to_string(c) == first; });
        ASSERT_NE(moved_from, others.end());
        EXPECT_EQ(after[0].estimate_us, moved_from->estimate_us) << to_string(key);
        EXPECT_EQ(after[0].price_us, std::min(moved_from->price_us, before[0].price_us)) << to_string(key);
        cheaper += after[0].price_us < after[0].estimate_us;
        others.erase(moved_from);
        EXPECT_EQ(std::vector<Candidate>(after.begin() + 1, after.end()), others) << to_string(key);
      }
  EXPECT_GT(moved, 0);
  EXPECT_GT(cheaper, 0);
}

TEST(MeasuredOrder, LeavesProblemsUnlikeTheMeasuredOnes) {
  ProblemKey other_machine = product_key(300, 640, 136);
  other_machine.target = "sm_80";
  ProblemKey transposed_conv = product_key(300, 640, 136);
  transposed_conv.op = "conv_transpose";
  for (const ProblemKey& key :
       {other_machine, transposed_conv, product_key(8192, 8192, 8192), product_key(300, 640, 136, DType::f64),
        product_key(0, 640, 136), product_key(300, 0, 136), product_key(300, 640, 0),
        product_key(300, 640, 136, DType::i8)}) {
    std::vector<Candidate> candidates{
        {"matmul_tensor_core", *parse_way("wgmma 64x64 stages 6 warpgroups 1"), 5}, {"matmul_simt", {}, 4}};
    EXPECT_FALSE(is_like_measured(key)) << to_string(key);
    EXPECT_FALSE(order_by_measurements(key, candidates)) << to_string(key);
  }
}

ProblemKey parsed(const std::string& params, const std::string& op, const std::string& operands) {
  ProblemKey key;
  EXPECT_TRUE(parse_key({"sm_90", "132", op, "-", params, operands}, key)) << operands;
  return key;
}

const std::string kQueries = "f16 2x4x300x64:76800x19200x64x1@16", kOne = "f16 2x4x1x64:256x64x64x1@16";

// Each differs in one thing from a problem that was measured.
TEST(MeasuredOrder, LeavesWindowsDilationsAndLargerWork) {
  const auto attention = [](const std::string& params) {
    return parsed(params, "attention", kQueries + " " + kQueries + " " + kQueries + " > " + kQueries);
  };
  EXPECT_TRUE(is_like_measured(attention("1 0 0x1p-3 0x0p+0")));
  EXPECT_FALSE(is_like_measured(attention("1 0 64 0x1p-3 0x0p+0"))) << "a window";
  const auto conv = [](const std::string& dilations) {
    const std::string image = "f16 2x32x20x20:12800x1x640x32@16";
    return parsed("2 1 0 1 1 1 1 1 1 " + dilations, "conv",
                  image + " f16 32x32x3x3:288x1x96x32@16 > " + image);
  };
  EXPECT_TRUE(is_like_measured(conv("1 1")));
  EXPECT_FALSE(is_like_measured(conv("1 2")));
  EXPECT_TRUE(is_like_measured(product_key(1000, 1000, 1000)));
  EXPECT_FALSE(is_like_measured(product_key(1000, 1000, 1000, DType::f32)));
  ProblemKey few_axes = product_key(300, 640, 136);
  few_axes.inputs[1].sizes.pop_back();
  EXPECT_FALSE(is_like_measured(few_axes));
}

// It rotates and appends its own keys in some ways only.
TEST(MeasuredOrder, LeavesAttentionOfOneQuery) {
  const std::string keys = " f16 2x4x900x64:230400x57600x64x1@16";
  const ProblemKey key = parsed("0 0 0x1p-3 0x0p+0", "attention", kOne + keys + keys + " > " + kOne);
  EXPECT_TRUE(is_like_measured(key));
  std::vector<Candidate> candidates = select_testing::candidates_of(key);
  // Whichever goes first.
  for (size_t i = 0; i < candidates.size(); ++i) {
    std::rotate(candidates.begin(), candidates.begin() + 1, candidates.end());
    EXPECT_FALSE(order_by_measurements(key, candidates)) << to_string(candidates[0]);
  }
}

// Products whose launch others may share.
TEST(MeasuredOrder, LeavesSlicedProducts) {
  const ProblemKey key = product_key(100, 700, 60, DType::f32);
  std::vector<Candidate> candidates = select_testing::candidates_of(key);
  ASSERT_TRUE(is_sliced(std::get<MatmulWay>(candidates[0].way)));
  EXPECT_FALSE(order_by_measurements(key, candidates));
}

// No test but a tool: writes a line for every candidate that the record files of a folder measured, for
// bench/fit_order.py.
TEST(MeasuredOrder, KnowsRowsByTheirFact) {
  const ProblemKey key = product_key(300, 640, 136);
  for (const CudaKernel& row : cuda_kernel_table())
    EXPECT_EQ(is_like_measured(key, {std::string(row.name)}), row.facts.measured_form != MeasuredForm::kNone)
        << row.name;
  EXPECT_FALSE(is_like_measured(key, {"conv_grouped"}));
  EXPECT_TRUE(is_like_measured(key, {"conv_mma"}));
}

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
              << candidates[i].estimate_us;
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
