// Ops of the user's through C and C++: functions that fail, by status and by exception.
#include "aicf/custom_op.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <stdexcept>
#include <string_view>

#include "test_models.h"

namespace {

// What the ops below do next.
enum class Mood { kFine, kStatus, kMute, kLongMessage, kThrows, kThrowsOurs, kThrowsInt };
Mood mood = Mood::kFine;

void act(const aicf_custom_tensor* in, const aicf_custom_tensor* out) {
  for (int64_t i = 0; i < 4; ++i)
    static_cast<float*>(out[0].data)[i] = 2 * static_cast<const float*>(in[0].data)[i];
  if (mood == Mood::kThrows) throw std::runtime_error("thrown in the op");
  if (mood == Mood::kThrowsOurs) (void)aicf::Executable::load("/nowhere.aicf");
  if (mood == Mood::kThrowsInt) throw 7;
}

void plain(const aicf_custom_tensor* in, int32_t, const aicf_custom_tensor* out, int32_t, const int64_t*,
           const double*, void*) {
  act(in, out);
}

aicf_status checked(const aicf_custom_tensor* in, int32_t, const aicf_custom_tensor* out, int32_t,
                    const int64_t*, const double*, void*, char* message, int32_t message_size) {
  act(in, out);
  if (mood == Mood::kStatus) std::snprintf(message, static_cast<size_t>(message_size), "the op's own words");
  if (mood == Mood::kLongMessage)
    for (int32_t i = 0; i < message_size; ++i) message[i] = 'x';  // no final 0
  return mood == Mood::kFine ? AICF_OK : 77;
}

// total += x, then `op` of it twice over, which goes into `last`.
aicf::Artifact model(const char* op) {
  aicf::Builder b;
  const aicf::Value x = b.input("x", aicf::DType::f32, {4});
  const aicf::Value total = b.state("total", aicf::Tensor(aicf::DType::f32, {4}));
  const aicf::Value last = b.state("last", aicf::Tensor(aicf::DType::f32, {4}));
  const aicf::Value sum = b.op("add", {total, x});
  const auto custom = [&](aicf::Value value) {
    return b.op("custom", {value},
                {{"name", op}, {"dtypes", "f32"}, {"ranks", {1}}, {"sizes", std::vector<aicf::Size>{4}}});
  };
  b.update(total, sum);
  const aicf::Value y = custom(b.op("relu", {sum}));
  b.output("y", b.op("neg", {y}));
  b.update(last, custom(b.op("add", {last, y})));
  return aicf::compile(b.finish());
}

class CustomOp : public ::testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() {
    ASSERT_EQ(aicf_register_op("api::plain", plain, nullptr), AICF_OK);
    ASSERT_EQ(aicf_register_checked_op("api::checked", checked, nullptr), AICF_OK);
  }
  void SetUp() override { mood = Mood::kFine; }
};

INSTANTIATE_TEST_SUITE_P(All, CustomOp, ::testing::Values("api::plain", "api::checked"));

TEST_P(CustomOp, WhatFailsIsACodedErrorAndStatesAreAsBefore) {
  const bool has_status = std::string_view(GetParam()) == "api::checked";
  aicf::Executable exe{aicf::Model(model(GetParam()))}, alone = exe.clone();
  const aicf::Tensor x = aicf_test::pattern({4}, 1);
  const std::map<Mood, std::string> said = {{Mood::kStatus, "status 77: the op's own words"},
                                            {Mood::kMute, "status 77"},
                                            {Mood::kLongMessage, "status 77: xxx"},
                                            {Mood::kThrows, "thrown in the op"},
                                            {Mood::kThrowsOurs, "AICF-U0003"},
                                            {Mood::kThrowsInt, "unknown type"}};
  for (const auto& [next, words] : said) {
    const bool throws = next >= Mood::kThrows;
    if (!throws && !has_status) continue;
    mood = next;
    const auto total = exe.state("total"), last = exe.state("last");
    try {
      (void)exe.run({x});
      ADD_FAILURE() << "did not fail: " << words;
    } catch (const aicf::UserError& error) {
      EXPECT_EQ(error.code(), "AICF-U0408");
      EXPECT_EQ(error.value(), GetParam());
      EXPECT_FALSE(error.op().empty());
      EXPECT_NE(error.actual().find(words), std::string::npos) << error.actual();
    }
    mood = Mood::kFine;
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(exe.state("total").as<float>()[i], total.as<float>()[i]);
      EXPECT_EQ(exe.state("last").as<float>()[i], last.as<float>()[i]);
    }
    const aicf::Tensor y = exe.run({x})[0], expected = alone.run({x})[0];
    for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(y.as<float>()[i], expected.as<float>()[i]);
  }
}

TEST_P(CustomOp, TheCApiGivesAStatusAndTheLastError) {
  const std::string path = ::testing::TempDir() + "/api_custom.aicf";
  model(GetParam()).save(path);
  aicf_executable* exe = nullptr;
  ASSERT_EQ(aicf_load(path.c_str(), 2, &exe), AICF_OK) << aicf_last_error();
  const int64_t sizes[] = {4};
  float x[4] = {1, 2, 3, 4}, y[4] = {};
  const aicf_tensor in{x, AICF_DTYPE_f32, 1, sizes, nullptr, AICF_HOST},
      out{y, AICF_DTYPE_f32, 1, sizes, nullptr, AICF_HOST};
  for (const Mood next : {Mood::kThrows, Mood::kFine, Mood::kThrowsInt, Mood::kFine}) {
    mood = next;
    const aicf_status status = aicf_run(exe, 0, &in, 1, &out, 1);
    if (next == Mood::kFine) {
      EXPECT_EQ(status, AICF_OK) << aicf_last_error();
      continue;
    }
    EXPECT_EQ(status, AICF_USER_ERROR);
    EXPECT_STREQ(aicf_last_error_code(), "AICF-U0408");
    EXPECT_NE(std::string_view(aicf_last_error()).find(GetParam()), std::string_view::npos);
  }
  EXPECT_EQ(y[0], -4);  // twice the total of the two runs that ended
  EXPECT_EQ(aicf_free(exe), AICF_OK);
}

TEST(CustomOpNames, AreRegisteredOnce) {
  EXPECT_EQ(aicf_register_op("api::once", plain, nullptr), AICF_OK);
  EXPECT_EQ(aicf_register_op("api::once", plain, nullptr), AICF_OK);  // the same is no mistake
  int user = 0;
  EXPECT_EQ(aicf_register_op("api::once", plain, &user), AICF_USER_ERROR);
  EXPECT_EQ(aicf_register_checked_op("api::once", checked, nullptr), AICF_USER_ERROR);
  EXPECT_EQ(aicf_register_checked_op("api::none", nullptr, nullptr), AICF_USER_ERROR);
  EXPECT_EQ(aicf_register_checked_op(nullptr, checked, nullptr), AICF_USER_ERROR);
}

}  // namespace
