#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <sstream>
#include <thread>

#include "test_models.h"

namespace {

using aicf::DType;
using aicf::Executable;
using aicf::Tensor;
using aicf::TensorView;
using aicf_test::code_of;
using aicf_test::pattern;

const std::string& mlp_path() {
  static const std::string path = aicf_test::save(aicf_test::mlp(), "mlp");
  return path;
}

// The MLP in plain double loops.
std::vector<double> mlp_reference(const Tensor& x) {
  const Tensor w = pattern({16, 32}, 1), b = pattern({32}, 2), v = pattern({8, 32}, 3);
  std::vector<double> result;
  for (int64_t row = 0; row < x.sizes()[0]; ++row) {
    std::vector<double> hidden(32);
    for (int64_t j = 0; j < 32; ++j) {
      double sum = b.as<float>()[j];
      for (int64_t k = 0; k < 16; ++k) sum += double{x.as<float>()[row * 16 + k]} * w.as<float>()[k * 32 + j];
      hidden[static_cast<size_t>(j)] = sum * 0.5 * (1 + std::erf(sum / std::sqrt(2.0)));
    }
    for (int64_t j = 0; j < 8; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < 32; ++k) sum += hidden[static_cast<size_t>(k)] * v.as<float>()[j * 32 + k];
      result.push_back(sum);
    }
  }
  return result;
}

TEST(ExecutableTest, ComputesTheMlpForEverySize) {
  Executable exe = Executable::load(mlp_path(), {2, ""});
  for (const int64_t batch : {1, 5, 64}) {
    const Tensor x = pattern({batch, 16}, batch);
    const Tensor y = exe.run({{"x", x}}).at("y");
    ASSERT_EQ(y.sizes(), (std::vector<int64_t>{batch, 8}));
    const std::vector<double> expected = mlp_reference(x);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(y.as<float>()[i], expected[i], 1e-4);
    EXPECT_EQ(exe.run(std::vector<TensorView>{x})[0], y);
  }
}

TEST(CompileTest, TellsItsStagesInOrder) {
  std::vector<std::string> stages;
  aicf::CompileOptions options;
  options.on_stage = [&](const std::string& stage, int64_t done, int64_t total) {
    EXPECT_TRUE(0 <= done && done <= total) << stage;
    if (stages.empty() || stages.back() != stage) stages.push_back(stage);
  };
  aicf::compile(aicf_test::mlp(), options);
  EXPECT_EQ(stages, (std::vector<std::string>{"passes", "select", "calls", "build", "plan"}));
  options.on_stage = [](const std::string& stage, int64_t, int64_t) {
    if (stage == "select") throw std::runtime_error("enough");
  };
  EXPECT_THROW(aicf::compile(aicf_test::mlp(), options), std::runtime_error);
}

TEST(TensorTest, ReadsAFileOfNumPy) {
  const std::string path = testing::TempDir() + "aicf_api_test.npy";
  const std::string header = "{'descr': '>f4', 'fortran_order': False, 'shape': (2, 1), }";
  std::ofstream(path, std::ios::binary)
      << std::string("\x93NUMPY\x01\x00", 8) << static_cast<char>(header.size()) << '\0' << header
      << std::string("\x3f\x80\0\0\xc0\0\0\0", 8);
  EXPECT_EQ(aicf::read_npy(path), Tensor::from<float>({2, 1}, {1, -2}));
  std::ofstream(path, std::ios::binary) << "no array";
  EXPECT_EQ(code_of([&] { aicf::read_npy(path); }), "AICF-U0300");
  std::remove(path.c_str());
}

TEST(ExecutableTest, DescribesItself) {
  const Executable exe = Executable::load(mlp_path());
  const aicf::Model& model = exe.model();
  EXPECT_EQ(model.entries(), std::vector<std::string>{"main"});
  ASSERT_EQ(model.inputs().size(), 1u);
  const aicf::TensorSpec x = model.inputs()[0];
  EXPECT_EQ(x.name, "x");
  EXPECT_EQ(x.dtype, DType::f32);
  EXPECT_EQ(x.sizes, (std::vector<aicf::Size>{"batch", 16}));
  EXPECT_EQ(x.ranges[0].hi, 64);
  EXPECT_EQ(x.ranges[1].lo, 16);
  EXPECT_EQ(model.outputs("main")[0].name, "y");
  EXPECT_EQ(model.sizes().at("batch").lo, 1);
  EXPECT_EQ(model.metadata().at("vocabulary"), "[PAD]\nhello\n");
  EXPECT_EQ(model.weight_names(), (std::vector<std::string>{"0.W", "0.b", "1.W"}));
  EXPECT_FALSE(model.plan_text().empty());
  EXPECT_EQ(exe.output_sizes({TensorView(nullptr, DType::f32, {7, 16})}),
            (std::vector<std::vector<int64_t>>{{7, 8}}));
  EXPECT_EQ(code_of([&] { model.inputs("decode"); }), "AICF-U0001");
}

TEST(ExecutableTest, StridedMemoryGivesTheSameBits) {
  Executable exe = Executable::load(mlp_path());
  const Tensor x = pattern({4, 16}, 9);
  std::vector<float> columns(64), out(4 * 16, -1);
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < 16; ++j) columns[j * 4 + i] = x.as<float>()[i * 16 + j];
  exe.run_into({TensorView(static_cast<void*>(columns.data()), DType::f32, {4, 16}, {1, 4})},
               {TensorView(static_cast<void*>(out.data()), DType::f32, {4, 8}, {16, 2})});
  const Tensor y = exe.run({{"x", x}}).at("y");
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < 8; ++j) EXPECT_EQ(out[i * 16 + j * 2], y.as<float>()[i * 8 + j]);
  EXPECT_EQ(out[1], -1);
  EXPECT_EQ(
      exe.run({{"x", TensorView(static_cast<void*>(columns.data()), DType::f32, {4, 16}, {1, 4})}}).at("y"),
      y);
}

TEST(ExecutableTest, NamesWhatIsWrongWithTheInputs) {
  Executable exe = Executable::load(mlp_path());
  const Tensor x = pattern({2, 16}, 1);
  Tensor y(DType::f32, {2, 8});
  EXPECT_EQ(code_of([&] { exe.run(std::map<std::string, TensorView>{}); }), "AICF-U0400");
  EXPECT_EQ(code_of([&] { exe.run({{"x", x}, {"z", x}}); }), "AICF-U0401");
  EXPECT_EQ(code_of([&] { exe.run({{"x", Tensor(DType::f64, {2, 16})}}); }), "AICF-U0402");
  EXPECT_EQ(code_of([&] { exe.run({{"x", Tensor(DType::f32, {2, 17})}}); }), "AICF-U0403");
  EXPECT_EQ(code_of([&] { exe.run({{"x", Tensor(DType::f32, {16})}}); }), "AICF-U0403");
  EXPECT_EQ(code_of([&] { exe.run({{"x", Tensor(DType::f32, {65, 16})}}); }), "AICF-U0201");
  EXPECT_EQ(code_of([&] { exe.run({{"x", Tensor(DType::f32, {0, 16})}}); }), "AICF-U0201");
  EXPECT_EQ(code_of([&] { exe.run_into({x}, {Tensor(DType::f32, {3, 8})}); }), "AICF-U0403");
  EXPECT_EQ(code_of([&] { exe.run_into({x}, {Tensor(DType::f16, {2, 8})}); }), "AICF-U0402");
  EXPECT_EQ(code_of([&] { exe.run_into({x}, {}); }), "AICF-U0403");
  EXPECT_EQ(code_of([&] { exe.run_into({}, {y}); }), "AICF-U0400");
  EXPECT_EQ(code_of([&] { exe.run_into({TensorView(nullptr, DType::f32, {2, 16})}, {y}); }), "AICF-U0004");
  EXPECT_EQ(code_of([&] { exe.run_into({TensorView(x.data(), DType::f32, {2, 16}, {1})}, {y}); }),
            "AICF-U0403");
  EXPECT_EQ(code_of([&] { exe.run_into({TensorView(x.data(), DType::f32, {-2, 16})}, {y}); }), "AICF-U0403");
  EXPECT_EQ(code_of([&] { exe.run({{"x", x}}, "decode"); }), "AICF-U0001");
  EXPECT_EQ(code_of([&] { exe.state("total"); }), "AICF-U0406");
  exe.run_into({x}, {y});  // still usable
  EXPECT_EQ(exe.run({{"x", x}}).at("y"), y);
}

TEST(ExecutableTest, StatesLiveFromRunToRun) {
  Executable exe = Executable::load(aicf_test::save(aicf_test::counter(), "counter"));
  const Tensor x = Tensor::from<float>({4}, {1, 2, 3, 4});
  EXPECT_EQ(exe.state_names(), std::vector<std::string>{"total"});
  EXPECT_EQ(exe.run({{"x", x}}).at("before"), Tensor(DType::f32, {4}));
  EXPECT_EQ(exe.run({{"x", x}}).at("before"), x);
  Executable copy = exe.clone();
  exe.reset();
  EXPECT_EQ(exe.state("total"), Tensor(DType::f32, {4}));
  EXPECT_EQ(copy.state("total"), Tensor::from<float>({4}, {2, 4, 6, 8}));
  exe.set_state("total", x);
  EXPECT_EQ(exe.run({{"x", x}}).at("before"), x);
  EXPECT_EQ(code_of([&] { exe.set_state("total", Tensor(DType::f32, {5})); }), "AICF-U0403");
  EXPECT_EQ(code_of([&] { exe.set_state("nobody", x); }), "AICF-U0406");
}

TEST(ExecutableTest, EntriesShareParamsAndStates) {
  aicf::Builder b("add");
  const aicf::Value x = b.input("x", DType::f32, {4});
  const aicf::Value total = b.state("total", Tensor(DType::f32, {4}));
  const aicf::Value scaled = b.op("mul", {x, b.param("scale", Tensor::from<float>({1}, {10}))});
  b.update(total, b.op("add", {total, scaled}));
  b.output("added", scaled);
  b.entry("read");
  b.output("now", b.op("div", {b.variable("total"), b.variable("scale")}));
  EXPECT_EQ(code_of([&] { b.output("other", x); }), "AICF-U0105");
  Executable exe{aicf::Model(aicf::compile(b.finish()))};
  EXPECT_EQ(exe.model().entries(), (std::vector<std::string>{"add", "read"}));
  const Tensor ones = Tensor::from<float>({4}, {1, 2, 3, 4});
  exe.run({{"x", ones}});
  exe.run({{"x", ones}}, "add");
  EXPECT_EQ(exe.run(std::map<std::string, TensorView>{}, "read").at("now"),
            Tensor::from<float>({4}, {2, 4, 6, 8}));
}

TEST(ExecutableTest, VerifyProvesReplaysAndKeepsStates) {
  Executable exe = Executable::load(aicf_test::save(aicf_test::counter(), "counter"));
  const Tensor x = Tensor::from<float>({4}, {1, 2, 3, 4});
  exe.run({{"x", x}});
  const aicf::VerifyResult result = exe.verify(20);
  EXPECT_TRUE(result.passed());
  EXPECT_EQ(result.replays, 20);
  EXPECT_EQ(exe.verify(3, {{"x", x}}).hashes.size(), 1u);
  EXPECT_EQ(exe.state("total"), x);
  EXPECT_EQ(code_of([&] { exe.verify(0); }), "AICF-U0001");
}

TEST(ExecutableTest, ClonesRunInTwoThreads) {
  Executable first = Executable::load(mlp_path(), {2, ""});
  const Tensor x = pattern({33, 16}, 4);
  const Tensor expected = first.run({{"x", x}}).at("y");
  Executable second = first.clone();
  int equal[2] = {0, 0};
  const auto work = [&](Executable& exe, int& count) {
    for (int i = 0; i < 200; ++i) count += exe.run({{"x", x}}).at("y") == expected;
  };
  std::thread other([&] { work(second, equal[1]); });
  work(first, equal[0]);
  other.join();
  EXPECT_EQ(equal[0], 200);
  EXPECT_EQ(equal[1], 200);
}

TEST(ExecutableTest, SaysBusyInsteadOfMixingRuns) {
  Executable exe = Executable::load(mlp_path());
  const Tensor x = pattern({64, 16}, 4);
  const Tensor expected = exe.run({{"x", x}}).at("y");
  int bad = 0;
  const auto work = [&] {
    int wrong = 0;
    Tensor y(DType::f32, {64, 8});
    for (int i = 0; i < 300; ++i) {
      const std::string code = code_of([&] { exe.run_into({x}, {y}); });
      if (code.empty() ? y != expected : code != "AICF-U0404") ++wrong;
    }
    return wrong;
  };
  std::thread other([&] { bad = work(); });
  const int wrong = work();
  other.join();
  EXPECT_EQ(bad + wrong, 0);
}

// All of a state is of one moment, and what a thread reads is neither busy nor makes a run so.
TEST(ExecutableTest, StatesAreReadAndSetBesideRuns) {
  constexpr int64_t kCount = 1 << 18;
  aicf::Builder b;
  const aicf::Value total = b.state("total", Tensor(DType::f32, {kCount}));
  b.update(total, b.op("add", {total, b.scalar(DType::f32, 1)}));
  Executable exe = Executable::load(aicf_test::save(b.finish(), "beside"));
  constexpr int kReads = 20, kMostRuns = 100000;
  int mixed = 0;
  std::atomic<int> reads = 0;
  std::atomic<bool> done = false;
  std::thread other([&] {
    for (int i = 0; !done; ++i, ++reads) {
      const Tensor now = i % 2 == 0 ? exe.state("total") : exe.clone().state("total");
      const float* values = now.as<float>();
      mixed += std::any_of(values, values + kCount, [&](float value) { return value != values[0]; });
      if (i % 8 == 0) exe.set_state("total", now);
    }
  });
  for (int i = 0; reads < kReads && i < kMostRuns; ++i) exe.run_into({}, {});
  done = true;
  other.join();
  EXPECT_EQ(mixed, 0);
  EXPECT_GE(reads, kReads);
}

TEST(ModelTest, WeightsCanBeReplaced) {
  const aicf::Model model = aicf::Model::load(mlp_path());
  const Tensor x = pattern({2, 16}, 1);
  const aicf::Model silent = model.with_weights({{"1.W", Tensor(DType::f32, {8, 32})}});
  EXPECT_EQ(Executable(silent).run({{"x", x}}).at("y"), Tensor(DType::f32, {2, 8}));
  EXPECT_NE(Executable(model).run({{"x", x}}).at("y"), Tensor(DType::f32, {2, 8}));
  EXPECT_EQ(code_of([&] { model.with_weights({{"1.w", x}}); }), "AICF-U0406");
  EXPECT_EQ(code_of([&] { model.with_weights({{"1.W", x}}); }), "AICF-U0403");
}

TEST(ArtifactTest, SavesTheSameBytesFromEveryForm) {
  const auto bytes = [](const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  };
  const std::string again = ::testing::TempDir() + "/api_again.aicf",
                    third = ::testing::TempDir() + "/api_third.aicf";
  aicf::Artifact::load(mlp_path()).save(again);
  aicf::Model::load(mlp_path()).save(third);
  EXPECT_EQ(bytes(again), bytes(mlp_path()));
  EXPECT_EQ(bytes(third), bytes(mlp_path()));
  const aicf::Artifact artifact = aicf::Artifact::load(again).with_metadata("license", "none");
  EXPECT_EQ(artifact.metadata().at("license"), "none");
  EXPECT_EQ(artifact.targets(), std::vector<std::string>{"cpu"});
}

TEST(ArtifactTest, RefusesMissingAndDamagedFiles) {
  EXPECT_EQ(code_of([] { Executable::load("no/such/file.aicf"); }), "AICF-U0003");
  EXPECT_EQ(code_of([] { aicf::Artifact().save("x.aicf"); }), "AICF-U0004");
  EXPECT_EQ(code_of([] { Executable::load(mlp_path(), {0, "sse9"}); }), "AICF-U0001");
  EXPECT_EQ(code_of([] { Executable::load(mlp_path(), {-3, ""}); }), "AICF-U0001");
  std::ifstream file(mlp_path(), std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  const std::string path = ::testing::TempDir() + "/api_truncated.aicf";
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(whole.data(), static_cast<std::streamsize>(size));
    EXPECT_EQ(code_of([&] { Executable::load(path); }), "AICF-U0500") << size << " bytes of " << whole.size();
  }
}

TEST(MovedFromTest, EveryUseIsAMistakeWithACode) {
  Executable exe = Executable::load(mlp_path()), now = std::move(exe);
  const Tensor x = pattern({5, 16}, 1);
  EXPECT_EQ(code_of([&] { exe.run({{"x", x}}); }), "AICF-U0004");
  EXPECT_EQ(code_of([&] { (void)exe.model(); }), "AICF-U0004");
  EXPECT_EQ(code_of([&] { (void)exe.state_names(); }), "AICF-U0004");
  EXPECT_EQ(code_of([&] { exe.clone(); }), "AICF-U0004");
  EXPECT_EQ(code_of([&] { exe.run_into(std::vector<TensorView>{x}, {}); }), "AICF-U0004");
  EXPECT_EQ(now.run({{"x", x}}).size(), 1u);
  exe = std::move(now);
  EXPECT_EQ(exe.run({{"x", x}}).size(), 1u);

  aicf::Model model = aicf::Model::load(mlp_path());
  const aicf::Model other = std::move(model);
  EXPECT_EQ(code_of([&] { Executable user(model); }), "AICF-U0004");  // NOLINT: what a moved-from one does
  EXPECT_EQ(code_of([&] { (void)model.metadata(); }), "AICF-U0004");
  EXPECT_EQ(other.entries().size(), 1u);

  aicf::Builder b, elsewhere = std::move(b);
  EXPECT_EQ(code_of([&] { b.input("x", DType::f32, {2}); }), "AICF-U0004");
  EXPECT_EQ(code_of([&] { b.finish(); }), "AICF-U0004");
  EXPECT_EQ(code_of([&] { (void)b.sizes({}); }), "AICF-U0004");
  EXPECT_EQ(code_of([&] { (void)aicf::Program().text(); }), "AICF-U0004");
}

TEST(MovedFromTest, ATensorHoldsNothing) {
  Tensor x = pattern({5, 16}, 1);
  const Tensor y = std::move(x);
  EXPECT_EQ(x, Tensor());  // NOLINT: what a moved-from one is
  EXPECT_EQ(x.clone(), Tensor());
  EXPECT_EQ(y.count(), 80);
  Executable exe = Executable::load(mlp_path());
  EXPECT_EQ(code_of([&] { exe.run({{"x", x}}); }), "AICF-U0004");
}

}  // namespace
