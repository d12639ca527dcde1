#include "select/records.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"

namespace aicf {
namespace {

KeyOperand matrix(int64_t rows, int64_t columns) {
  return {DType::bf16, {}, {{rows, rows}, {columns, columns}}, {{columns, columns}, {1, 1}}, 16};
}

ProblemKey recorded_product(int64_t m, int64_t n, int64_t k) {
  return {"sm_90", 132, "matmul", "abc", "-", {matrix(m, k), matrix(k, n)}, {matrix(m, n)}};
}

Record record(const ProblemKey& key, const std::string& choice) { return {key, choice, 12.5, 14.25, "v1"}; }

bool always(const Record&, Records::Match) { return true; }

TEST(ProblemKey, text_and_back) {
  ProblemKey key = recorded_product(16, 64, 128);
  key.inputs[0].sizes[0] = {0, 16};
  key.inputs[1].strides = {{1, 1}, {-128, -128}};
  key.inputs.push_back({DType::f32, {}, {}, {}, 4});
  const std::string text = to_string(key);
  EXPECT_EQ(text,
            "sm_90,132,matmul,abc,-,bf16 0..16x128:128x1@16 bf16 128x64:1x-128@16 f32 -:-@4 > bf16 "
            "16x64:64x1@16");
  std::vector<std::string_view> fields;
  for (size_t start = 0, end = 0; end < text.size(); start = end + 1) {
    end = std::min(text.find(',', start), text.size());
    fields.push_back(std::string_view(text).substr(start, end - start));
  }
  ProblemKey back;
  ASSERT_TRUE(parse_key(fields, back));
  EXPECT_EQ(back, key);
}

TEST(ProblemKey, sizes_are_padded_to_three_significant_bits) {
  for (const auto& [size, padded] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 0}, {1, 1}, {8, 8}, {9, 10}, {17, 20}, {100, 112}, {128, 128}, {129, 160}, {4096, 4096}}) {
    EXPECT_EQ(padded_size(size), padded) << size;
    EXPECT_EQ(padded_size(padded), padded) << size;
  }
}

TEST(Records, a_file_and_back) {
  const std::vector<Record> records = {
      record(recorded_product(1, 2, 3), "matmul_simt/simt 32x32 stages 2"),
      record(recorded_product(4, 5, 6), "matmul_tensor_core/mma"),
      record(recorded_product(7, 8, 9), "conv_cudnn/91400 conv engine 41 knobs 2:18,13:1")};
  EXPECT_EQ(parse_records(to_string(records), "test"), records);
}

TEST(Records, times_of_more_than_thousandths_are_written_and_read_the_same) {
  std::vector<Record> given = {record(recorded_product(1, 2, 3), "a")};
  std::string text = to_string(given);
  const size_t at = text.find(",a,") + 3;
  text.replace(at, text.find(',', at) - at, "315.58823315");
  const std::vector<Record> read = parse_records(text, "test");
  EXPECT_EQ(read[0].microseconds, 315.588);
  EXPECT_EQ(parse_records(to_string(read), "again"), read);
}

TEST(Records, malformed_files_name_the_line) {
  const std::string header = to_string(std::vector<Record>{});
  const std::string good =
      to_string(std::vector<Record>{record(recorded_product(1, 2, 3), "a")}).substr(header.size());
  for (const std::string& text :
       {std::string("nonsense\n"), header + "a,b\n", header + good + "x" + good.substr(1) + ",\n",
        header + "sm_90,132,matmul,abc,-,bf16 1x2:1@16 > bf16 1:1@2,a,1,1,v\n",
        header + "sm_90,132,matmul,abc,-,bf16 1:1@16,a,1,1,v\n",
        header + "sm_90,132,matmul,abc,-,bf16 1:1@16 > ,a,-1,1,v\n",
        header + "sm_90,9999999999999999999,matmul,abc,-,> bf16 1:1@16,a,1,1,v\n"})
    EXPECT_THROW(parse_records(text, "test"), UserError) << text;
  EXPECT_TRUE(parse_records(header + "# a remark\n\n", "test").empty());
}

// Files of before hold words of before (kernels/common/way.cc).
TEST(Records, names_of_before_are_read_in_todays_words) {
  const auto choice_of = [](const std::string& written) {
    return parse_records(to_string(std::vector<Record>{record(recorded_product(1, 2, 3), written)}),
                         "test")[0]
        .choice;
  };
  EXPECT_EQ(choice_of("matmul_tensor_core/wgmma 128x192 stages 4 warpgroups 2 handed"),
            "matmul_tensor_core/wgmma 128x192 stages 4 warpgroups 2 epilogue-warps");
  EXPECT_EQ(choice_of("conv_mma/boxes wgmma 128x64 stages 3 warpgroups 2 resident 3"),
            "conv_mma/tma wgmma 128x64 stages 3 warpgroups 2 occupancy 3");
  for (const char* name : {"matmul_tensor_core/wgmma 128x64 stages 8 warpgroups 2", "matmul_simt",
                           "own/handed", "matmul_cublaslt/130101 bias 2 workspace 4096"})
    EXPECT_EQ(choice_of(name), name);
}

TEST(Records, exact_before_padded_before_nearest) {
  Records records;
  records.add_layer("user", {record(recorded_product(96, 512, 512), "near"),
                             record(recorded_product(100, 512, 512), "padded"),
                             record(recorded_product(112, 512, 512), "exact")});
  const auto found = records.find(recorded_product(112, 512, 512), always);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->record->choice, "exact");
  const auto padded = records.find(recorded_product(110, 512, 512), always);
  ASSERT_TRUE(padded);
  EXPECT_EQ(padded->match, Records::Match::kPadded);
  EXPECT_EQ(padded->record->choice, "exact");  // the nearest of the padded ones
  const auto nearest = records.find(recorded_product(80, 512, 512), always);
  ASSERT_TRUE(nearest);
  EXPECT_EQ(nearest->match, Records::Match::kNearest);
  EXPECT_EQ(nearest->record->choice, "near");
  EXPECT_FALSE(records.find(recorded_product(40, 512, 512), always));
}

TEST(Records, other_layouts_do_not_answer) {
  Records records;
  records.add_layer("user", {record(recorded_product(128, 512, 512), "a")});
  ProblemKey key = recorded_product(128, 512, 512);
  EXPECT_TRUE(records.find(key, always));
  key.region = "other";  // the region may differ, but then it is no more than near
  EXPECT_EQ(records.find(key, always)->match, Records::Match::kNearest);
  for (auto change : std::vector<void (*)(ProblemKey&)>{
           [](ProblemKey& k) { k.target = "sm_80"; }, [](ProblemKey& k) { k.params = "1"; },
           [](ProblemKey& k) { k.op = "conv"; }, [](ProblemKey& k) { k.inputs[0].dtype = DType::f16; },
           [](ProblemKey& k) { k.inputs[0].alignment = 2; },
           [](ProblemKey& k) { std::swap(k.inputs[1].strides[0], k.inputs[1].strides[1]); },
           [](ProblemKey& k) { k.inputs.pop_back(); }}) {
    ProblemKey other = recorded_product(128, 512, 512);
    change(other);
    EXPECT_FALSE(records.find(other, always)) << to_string(other);
  }
}

TEST(Records, later_layers_go_first_and_unusable_choices_are_passed_over) {
  Records records;
  records.add_layer("shipped", {record(recorded_product(64, 64, 64), "old")});
  records.add_layer("user", {record(recorded_product(64, 64, 64), "new")});
  EXPECT_EQ(records.find(recorded_product(64, 64, 64), always)->record->choice, "new");
  const auto found = records.find(recorded_product(64, 64, 64),
                                  [](const Record& r, Records::Match) { return r.choice != "new"; });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->record->choice, "old");
  EXPECT_EQ(found->layer, "shipped");
}

TEST(Records, of_records_equally_near_the_one_of_the_later_layer_is_taken) {
  Records records;
  records.add_layer("shipped", {record(recorded_product(128, 512, 512), "shipped")});
  records.add_layer("user", {record(recorded_product(128, 512, 512), "user")});
  ProblemKey key = recorded_product(120, 512, 512);
  EXPECT_EQ(records.find(key, always)->record->choice, "user");
  key.region = "other";
  const auto near = records.find(key, always);
  EXPECT_EQ(near->match, Records::Match::kNearest);
  EXPECT_EQ(near->record->choice, "user");
}

TEST(Records, shipped_files_are_sound) {
  unsetenv("AICF_CACHE_DIR");
  EXPECT_NO_THROW(load_records({}));
  EXPECT_FALSE(load_records({"none"}).find(recorded_product(1, 1, 1), always));
  EXPECT_THROW(load_records({"/does/not/exist.csv"}), UserError);
}

}  // namespace
}  // namespace aicf
