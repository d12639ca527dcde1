// What every driver must do, as one list of cases: cpu, null (computing nothing), null with memory of its
// own, and cuda where there is a GPU, on its second one too if it has one. A case that a driver cannot show
// is skipped with the reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "compile/compile.h"
#include "ir/reference/evaluator.h"
#include "runtime/executable.h"
#include "runtime/null/null_device.h"
#include "runtime/open_device.h"
#include "runtime/testing/two_steps.h"

namespace aicf {
namespace {

Array counting(DType dtype, std::vector<int64_t> sizes, double step) {
  Array array(dtype, std::move(sizes));
  for (int64_t i = 0; i < array.count(); ++i) array.set_f64(i, step * static_cast<double>(i % 17 - 8));
  return array;
}

// y = gelu(x W); rows of a table by index; a state c = e^c.
Program conformance_program() {
  Program program;
  program.sizes["n"] = {1, 40};
  const auto declare = [&](const char* name, Role role, const Array& data) {
    program.variables[name] = {name, role, {data.dtype(), to_shape(data.sizes())}, data};
  };
  declare("W", Role::kParam, counting(DType::f32, {4, 8}, 0.1));
  declare("table", Role::kParam, counting(DType::f32, {5, 3}, 1));
  declare("count", Role::kState, Array::from<double>(DType::f32, {1}, {0}));
  Graph graph("main");
  const Dim n = Dim::symbol("n");
  const ValueId x = graph.add_input("x", {DType::f32, {n, Dim(4)}});
  const ValueId index = graph.add_input("index", {DType::i64, {n}});
  const ValueId w = graph.add_param("W", program.variables.at("W").type);
  const ValueId table = graph.add_param("table", program.variables.at("table").type);
  const ValueId count = graph.add_state("count", program.variables.at("count").type);
  graph.add_output(graph.add(Op::gelu, {graph.add(Op::matmul, {x, w})}), "y");
  graph.add_output(graph.add(Op::gather, {table, index}, {{"axis", int64_t{0}}}), "rows");
  graph.add_update(count, graph.add(Op::exp, {count}));
  program.entries.push_back(std::move(graph));
  return program;
}

std::map<std::string, Array> conformance_inputs(int64_t n, double step = 0.25) {
  Array index(DType::i64, {n});
  for (int64_t i = 0; i < n; ++i) index.set_f64(i, static_cast<double>((i * 7) % 5));
  return {{"x", counting(DType::f32, {n, 4}, step)}, {"index", index}};
}

void expect_right(const std::map<std::string, Array>& results, const std::map<std::string, Array>& given) {
  const Program program = conformance_program();
  const auto expected = evaluate(program, program.entries[0], {given, {}}).outputs;
  for (const auto& [name, array] : results) {
    ASSERT_EQ(array.sizes(), expected.at(name).sizes()) << name;
    for (int64_t i = 0; i < array.count(); ++i)
      ASSERT_NEAR(array.get_f64(i), expected.at(name).get_f64(i), 1e-5) << name << " " << i;
  }
}

struct Driver {
  const char* name;
  bool computes;
};

std::string label(const ::testing::TestParamInfo<Driver>& info) {
  std::string text = info.param.name;
  std::replace(text.begin(), text.end(), ':', '_');
  return text;
}

class DriverConformance : public ::testing::TestWithParam<Driver> {
 protected:
  void SetUp() override {
    const std::string name = GetParam().name;
    if (name == "null") {
      device_ = make_null_device();
    } else if (name == "null_own_memory") {
      device_ = make_null_device(true);
    } else {
      try {
        device_ = open_device({name});
        target_ = target_of_device(name);
      } catch (const EnvironmentError& error) {
        GTEST_SKIP() << error.message << " " << error.actual;
      }
    }
  }

  bool computes() const { return GetParam().computes; }
  const Artifact& artifact() const {
    static std::map<std::string, Artifact> compiled;
    auto at = compiled.find(target_);
    if (at == compiled.end()) {
      CompileOptions options;
      options.target = target_;
      at = compiled.emplace(target_, compile(conformance_program(), options)).first;
    }
    return at->second;
  }
  Executable load(const Artifact& given) const { return Executable(Model::load(given, device_)); }

  std::shared_ptr<Device> device_;
  std::string target_ = "cpu";
};

TEST_P(DriverConformance, MemoryHoldsWhatIsCopied) {
  const int64_t bytes = 1000;
  const auto first = device_->allocate(bytes), second = device_->allocate(bytes);
  EXPECT_EQ(first->bytes(), bytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first->data()) % 64, 0u);
  std::vector<uint8_t> data(1000), back(1000, 99);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * 7);
  device_->upload(first->data(), data.data(), bytes, {});
  device_->copy(second->data(), first->data(), bytes, {});
  device_->zero(second->data() + 10, 20, {});
  device_->download(back.data(), second->data(), bytes, {});
  std::fill(data.begin() + 10, data.begin() + 30, uint8_t{0});
  EXPECT_EQ(back, data);
}

TEST_P(DriverConformance, NoBytesAreAllowed) {
  const auto none = device_->allocate(0), memory = device_->allocate(64), other = device_->allocate(64);
  EXPECT_EQ(none->bytes(), 0);
  const std::vector<uint8_t> data(64, 7), others(64, 9);
  device_->upload(memory->data(), data.data(), 64, {});
  device_->upload(other->data(), others.data(), 64, {});
  for (DeviceMemory* at : {none.get(), memory.get()}) {
    device_->upload(at->data(), nullptr, 0, {});
    device_->upload(at->data(), others.data(), 0, {});
    device_->copy(at->data(), other->data(), 0, {});
    device_->zero(at->data(), 0, {});
    device_->download(nullptr, at->data(), 0, {});
  }
  std::vector<uint8_t> back(64, 3);
  device_->download(back.data(), memory->data(), 0, {});
  device_->wait({});
  EXPECT_EQ(back, std::vector<uint8_t>(64, 3));
  device_->download(back.data(), memory->data(), 64, {});
  EXPECT_EQ(back, data);
}

TEST_P(DriverConformance, WorkOnAnotherStreamComesAfterWhatItWasOrderedBehind) {
  const Stream other{reinterpret_cast<void*>(1)};  // CUDA's legacy default stream
  const auto memory = device_->allocate(1 << 20);
  std::vector<uint8_t> data(1 << 20, 7), back(1 << 20);
  device_->upload(memory->data(), data.data(), 1 << 20, {});
  device_->order({}, other);
  device_->download(back.data(), memory->data(), 1 << 20, other);
  EXPECT_EQ(back, data);
}

TEST_P(DriverConformance, ResultsAreThoseOfTheReferenceAtEverySize) {
  Executable exe = load(artifact());
  for (int64_t n = 1; n <= 40; n += n < 4 ? 1 : 2) {  // more sets of sizes than stay bound
    const auto given = conformance_inputs(n);
    const auto results = exe.run("", given);
    EXPECT_EQ(results.at("y").sizes(), (std::vector<int64_t>{n, 8}));
    if (computes()) expect_right(results, given);
  }
  const auto again = conformance_inputs(1, 0.5);
  if (computes()) expect_right(exe.run("", again), again);
}

TEST_P(DriverConformance, TensorsOfTheDeviceAreUsedWhereTheyLie) {
  Executable exe = load(artifact());
  const auto given = conformance_inputs(6);
  std::vector<DeviceTensor> there;
  std::vector<TensorView> views;
  for (const IoTensor& io : exe.entry("").inputs) {
    const Array& array = given.at(io.name);
    there.push_back(exe.device_tensor(array.dtype(), array.sizes()));
    device_->upload(there.back().data(), array.data(), array.bytes(), {});
    views.push_back(view_of(there.back()));
  }
  for (int i = 0; i < 3; ++i) {
    const std::vector<DeviceTensor> results = exe.run_on_device("", views, {{}, false});
    exe.finish();
    for (Binding binding : exe.input_bindings(exe.entry(""))) EXPECT_EQ(binding, Binding::kRebound);
    if (computes()) expect_right({{"y", results[0].to_host()}, {"rows", results[1].to_host()}}, given);
  }
}

TEST_P(DriverConformance, StatesAreKeptResetAndCloned) {
  Executable exe = load(artifact());
  const auto given = conformance_inputs(2);
  exe.run("", given);
  const auto twin = exe.clone();
  EXPECT_EQ(twin->state("count").get_f64(0), exe.state("count").get_f64(0));
  exe.set_state("count", Array::from<double>(DType::f32, {1}, {3}));
  EXPECT_EQ(exe.state("count").get_f64(0), 3.0);
  exe.reset();
  EXPECT_EQ(exe.state("count").get_f64(0), 0.0);
  if (!computes()) GTEST_SKIP() << "the null driver writes no states";
  EXPECT_EQ(twin->state("count").get_f64(0), 1.0);
  exe.run("", given);
  EXPECT_EQ(exe.state("count").get_f64(0), 1.0);
}

TEST_P(DriverConformance, ErrorsInDataAreReportedOnceAndTheDeviceGoesOn) {
  if (!computes()) GTEST_SKIP() << "the null driver reads no data";
  Executable exe = load(artifact());
  auto given = conformance_inputs(3);
  given.at("index").set_f64(1, 5);
  EXPECT_EQ(code_of([&] { exe.run("", given); }), ErrorCode::kU_index_out_of_range);
  const auto right = conformance_inputs(3);
  // A GPU learns of it behind the run: its states may be written, and wait for a reset.
  if (std::string_view(GetParam().name).starts_with("cuda")) {
    EXPECT_EQ(code_of([&] { exe.run("", right); }), ErrorCode::kU_lost_states);
    exe.reset();
  }
  expect_right(exe.run("", right), right);
}

TEST_P(DriverConformance, AnArtifactForOtherMachinesIsRefusedByName) {
  if (device_->fitness("sm_75") > 0) GTEST_SKIP() << "the null driver takes every target";
  Artifact other = artifact();
  other.variants[0].target = "sm_75";
  try {
    load(other);
    FAIL() << "it was loaded";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code, ErrorCode::kU_no_variant);
    EXPECT_NE(error.actual.find("sm_75"), std::string::npos);
    EXPECT_EQ(error.expected, device_->name());
  }
}

TEST_P(DriverConformance, AModelThatCannotRunLeavesTheDeviceUsable) {
  if (!computes()) GTEST_SKIP() << "the null driver runs what it is given";
  for (const int fault : {0, 1, 2}) {
    Artifact broken = artifact();
    for (EntryPlan& entry : broken.variants[0].plan.entries)
      for (Step& step : entry.steps) {
        if (step.launches.empty()) step.kernel = "no such kernel";
        for (CudaLaunch& launch : step.launches) {
          if (fault == 0) launch.function = "no_such_function";
          if (fault == 1) launch.shared_bytes = int64_t{1} << 24;  // more than a multiprocessor has
          if (fault == 2) launch.block = 2048;                     // the graph cannot be made
        }
      }
    EXPECT_THROW(load(broken).run("", conformance_inputs(4)), Error) << fault;
    Executable exe = load(artifact());
    const auto given = conformance_inputs(4);
    expect_right(exe.run("", given), given);
  }
}

TEST_P(DriverConformance, ProfilesHaveATimeForEveryStepOrNone) {
  Executable exe = load(artifact());
  EXPECT_TRUE(exe.profile(exe.entry(""), 2).empty());  // nothing is bound yet
  const auto given = conformance_inputs(4);
  const auto result = exe.run("", given);  // a profile replays over the memory of the last run
  const std::vector<StepCost> costs = exe.profile(exe.entry(""), 3);
  if (!computes()) {
    EXPECT_TRUE(costs.empty());
    return;
  }
  ASSERT_EQ(costs.size(), exe.entry("").steps.size());
  for (const StepCost& cost : costs) EXPECT_GT(cost.microseconds, 0);
}

TEST_P(DriverConformance, SeveralUsersOfOneModelDoNotMeet) {
  const auto model = Model::load(artifact(), device_);
  Executable a(model), b(model);
  const auto small = conformance_inputs(2), large = conformance_inputs(33, 0.5);
  const auto first = a.run("", small);
  b.run("", large);
  const auto second = a.run("", small);
  if (!computes()) GTEST_SKIP() << "the null driver computes nothing";
  expect_right(first, small);
  expect_right(second, small);
}

INSTANTIATE_TEST_SUITE_P(Drivers, DriverConformance,
                         ::testing::Values(Driver{"cpu", true}, Driver{"null", false},
                                           Driver{"null_own_memory", false}, Driver{"cuda", true},
                                           Driver{"cuda:1", true}),
                         label);

// The step's own params and states lie in the device's memory once: where the executable has them. What init
// packs lies there packed.
TEST(OwnMemory, WhatExecutablesOwnOrInitPacksIsNotKeptByTheModelToo) {
  for (const bool own_memory : {false, true}) {
    const auto model = Model::load(compile(conformance_program(), {}), make_null_device(own_memory));
    const EntryPlan& entry = model->plan().entries.back();
    const std::vector<std::byte*> addresses = model->addresses(entry);
    int variables = 0;
    for (size_t i = 0; i < entry.buffers.size(); ++i) {
      if (entry.buffers[i].kind != BufferKind::kVariable) continue;
      ++variables;
      const std::string& name = entry.buffers[i].name;
      EXPECT_EQ(addresses[i] == nullptr, own_memory && (name == "count" || name == "W")) << name;
    }
    EXPECT_GE(variables, 1);
    EXPECT_EQ(Executable(model).state("count").get_f64(0), 0);
  }
}

class TwoGpus : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      for (const char* name : {"cuda:0", "cuda:1"}) devices_.push_back(open_device({name}));
      CompileOptions options;
      options.target = target_of_device("cuda:1");
      artifact_ = compile(conformance_program(), options);
    } catch (const EnvironmentError& error) {
      GTEST_SKIP() << error.message << " " << error.actual;
    }
  }
  std::vector<std::shared_ptr<Device>> devices_;
  Artifact artifact_;
};

TEST_F(TwoGpus, GiveTheSameBitsAtTheSameTime) {
  std::vector<std::unique_ptr<Executable>> all;
  for (const auto& device : devices_) {
    all.push_back(std::make_unique<Executable>(Model::load(artifact_, device)));
    all.push_back(all.back()->clone());
  }
  EXPECT_EQ(devices_[0]->id().ordinal, 0);
  EXPECT_EQ(devices_[1]->id().ordinal, 1);
  const auto given = conformance_inputs(33);
  const auto expected = all[0]->run("", given);
  expect_right(expected, given);
  std::vector<std::thread> threads;
  std::vector<int> different(all.size());
  for (size_t i = 0; i < all.size(); ++i)
    threads.emplace_back([&, i] {
      for (int turn = 0; turn < 50; ++turn)
        for (const auto& [name, array] : all[i]->run("", given))
          different[i] += !(array == expected.at(name));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(different, std::vector<int>(all.size(), 0));
}

TEST_F(TwoGpus, MemoryOfTheOtherOneIsRefused) {
  Executable here(Model::load(artifact_, devices_[0])), there(Model::load(artifact_, devices_[1]));
  const auto given = conformance_inputs(6);
  std::vector<DeviceTensor> far;
  std::vector<TensorView> views;
  for (const IoTensor& io : here.entry("").inputs) {
    const Array& array = given.at(io.name);
    far.push_back(there.device_tensor(array.dtype(), array.sizes()));
    devices_[1]->upload(far.back().data(), array.data(), array.bytes(), {});
    views.push_back(view_of(far.back()));
  }
  devices_[1]->wait({});
  EXPECT_EQ(code_of([&] { here.run_on_device("", views, {{}, false}); }), ErrorCode::kU_unsupported_option);
  expect_right(here.run("", given), given);
  expect_right(there.run("", given), given);
}

// Before a driver is asked for: what a GPU has no use for is refused, not ignored.
TEST(OpenDevice, OptionsAreOfTheDevice) {
  for (const DeviceOptions& options :
       {DeviceOptions{"cuda", 2}, DeviceOptions{"cuda:1", 0, "avx2"}, DeviceOptions{"cpu", 0, "", {}, 1}}) {
    EXPECT_EQ(code_of([&] { open_device(options); }), ErrorCode::kU_unsupported_option);
    EXPECT_EQ(code_of([&] { check_device_options(options); }), ErrorCode::kU_unsupported_option);
  }
  for (const DeviceOptions& options : {DeviceOptions{"cpu", -1}, DeviceOptions{"cpu", 0, "mmx"}})
    EXPECT_EQ(code_of([&] { check_device_options(options); }), ErrorCode::kU_bad_option);
  check_device_options({"cpu", 2, "avx512"});
  check_device_options({"cuda:63"});
}

TEST(Ordinals, ThatAreNotThereAreNamed) {
  for (const char* name : {"cuda:-1", "cuda:x", "cuda:", "gpu"})
    EXPECT_EQ(code_of([&] { open_device({name}); }), ErrorCode::kU_bad_option) << name;
  EXPECT_EQ(code_of([] { open_device({"cuda:63"}); }), ErrorCode::kE_device_missing);
}

}  // namespace
}  // namespace aicf
