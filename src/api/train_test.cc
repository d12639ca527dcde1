// Training through the public C++ and C API: the library and its headers, nothing else.
#include "aicf/train.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "aicf/aicf_c.h"

namespace {

using aicf::DType;
using aicf::Tensor;

Tensor ramp(std::vector<int64_t> sizes, float scale) {
  Tensor tensor(DType::f32, std::move(sizes));
  for (int64_t i = 0; i < tensor.count(); ++i)
    tensor.as<float>()[i] = scale * static_cast<float>(i * 7 % 11 - 5);
  return tensor;
}

aicf::Program forward() {
  aicf::Builder b("loss");
  const aicf::Value x = b.input("x", DType::f32, {8, 4}), labels = b.input("labels", DType::i64, {8});
  const aicf::Value hidden = b.op(
      "relu", {b.op("linear", {x, b.param("0.W", ramp({4, 16}, 0.1f)), b.param("0.b", ramp({16}, 0.05f))})});
  const aicf::Value scores = b.op("linear", {hidden, b.param("2.W", ramp({16, 3}, 0.1f))});
  b.output("loss", aicf::add_loss(b, "cross_entropy", scores, labels));
  return b.finish();
}

aicf::Artifact artifact(int64_t accumulate = 1) {
  aicf::TrainOptions options;
  options.optimizer.kind = "adam";
  options.schedule = aicf::Schedule::cosine(0.05, 100).warmup(5);
  options.groups = {{{"*.b"}, 1, 0, true}};
  options.accumulate = accumulate;
  return aicf::compile(aicf::make_train_program(forward(), options));
}

struct Data {
  Tensor x = ramp({8, 4}, 0.3f);
  Tensor labels = Tensor::from<int64_t>({8}, {0, 1, 2, 0, 1, 2, 0, 1});
};

std::string temporary(const char* name) { return ::testing::TempDir() + "aicf_train_" + name; }

TEST(TrainApi, LearnsAndResumesToTheSameBits) {
  const Data data;
  const std::string path = temporary("checkpoint");
  aicf::TrainStep step(artifact());
  const float first = step.run({data.x, data.labels})[0].as<float>()[0];
  float last = first;
  for (int i = 1; i < 60; ++i) {
    if (i == 30) step.save_checkpoint(path, {{"note", "half"}});
    last = step.run({data.x, data.labels})[0].as<float>()[0];
  }
  EXPECT_LT(last, 0.5f * first);
  EXPECT_EQ(step.steps(), 60);
  EXPECT_EQ(step.bad_tensor(), "");

  aicf::TrainStep other(artifact());
  EXPECT_EQ(other.load_checkpoint(path).at("note"), "half");
  for (int i = 30; i < 60; ++i) other.run({data.x, data.labels});
  EXPECT_EQ(other.hash(), step.hash());
  std::remove(path.c_str());
}

TEST(TrainApi, RefusesWhatDoesNotFit) {
  aicf::TrainStep step(artifact());
  std::map<std::string, Tensor> states = step.states();
  states.erase("0.W");
  try {
    step.set_states(states);
    FAIL() << "a state is missing";
  } catch (const aicf::UserError& error) {
    EXPECT_EQ(error.code(), "AICF-U0805");
  }
  aicf::Builder b;
  b.output("y", b.op("neg", {b.input("x", DType::f32, {2})}));
  EXPECT_THROW(aicf::TrainStep(aicf::compile(b.finish())), aicf::UserError);
  EXPECT_THROW(aicf::make_train_program(b.finish(), {}), aicf::UserError);
}

// The entries "accumulate" and "step" by their names, as docs/training.md says.
int32_t entry_number(aicf_executable* exe, const std::string& wanted) {
  int32_t count = 0;
  aicf_entry_count(exe, &count);
  for (int32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    aicf_entry_name(exe, i, &name);
    if (wanted == name) return i;
  }
  return -1;
}

TEST(TrainApi, TheCFunctionsReachTheSameBits) {
  const Data data;
  const std::string model = temporary("step.aicf"), checkpoint = temporary("c_checkpoint");
  aicf::TrainStep step(artifact(2));
  step.save(model);
  aicf_executable* exe = nullptr;
  ASSERT_EQ(aicf_load(model.c_str(), 1, &exe), AICF_OK) << aicf_last_error();
  const int64_t x_sizes[] = {8, 4}, label_sizes[] = {8};
  float loss = 0;
  const aicf_tensor inputs[] = {
      {const_cast<void*>(data.x.data()), AICF_DTYPE_f32, 2, x_sizes, nullptr, AICF_HOST},
      {const_cast<void*>(data.labels.data()), AICF_DTYPE_i64, 1, label_sizes, nullptr, AICF_HOST}};
  const aicf_tensor output = {&loss, AICF_DTYPE_f32, 0, nullptr, nullptr, AICF_HOST};
  for (int i = 0; i < 6; ++i) {
    const int32_t entry = entry_number(exe, i % 2 == 0 ? "accumulate" : "step");
    ASSERT_EQ(aicf_run(exe, entry, inputs, 2, &output, 1), AICF_OK) << aicf_last_error();
    EXPECT_EQ(step.run({data.x, data.labels})[0].as<float>()[0], loss);
  }
  const char* bad = nullptr;
  EXPECT_EQ(aicf_bad_tensor(exe, &bad), AICF_OK);
  EXPECT_STREQ(bad, "");
  ASSERT_EQ(aicf_save_checkpoint(exe, checkpoint.c_str()), AICF_OK) << aicf_last_error();
  aicf::TrainStep other(artifact(2));
  other.load_checkpoint(checkpoint);
  EXPECT_EQ(other.hash(), step.hash());
  EXPECT_EQ(aicf_save(exe, model.c_str()), AICF_OK);
  EXPECT_EQ(aicf::TrainStep::load(model).hash(), step.hash());
  EXPECT_EQ(aicf_load_checkpoint(exe, model.c_str()), AICF_USER_ERROR);
  aicf_free(exe);
  std::remove(model.c_str());
  std::remove(checkpoint.c_str());
}

TEST(TrainApi, AMovedStepSaysSo) {
  aicf::TrainStep step(artifact()), other = std::move(step);
  EXPECT_THROW(step.hash(), aicf::UserError);
  EXPECT_THROW(step.run({}), aicf::UserError);
  EXPECT_THROW((void)step.executable(), aicf::UserError);
  EXPECT_EQ(other.steps(), 0);
}

}  // namespace
