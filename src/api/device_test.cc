// Memory of the device and runs that are not waited for, through the C++ and the C API: on the CPU, whose
// memory is the host's, or with AICF_TEST_DEVICE=cuda on the GPU.
#include <cstdlib>
#include <cstring>

#include "aicf/aicf_c.h"
#include "test_models.h"

namespace {

using aicf::DeviceTensor;
using aicf::DType;
using aicf::Executable;
using aicf::Tensor;
using aicf::TensorView;
using aicf_test::code_of;
using aicf_test::pattern;

const std::string& device() {
  static const std::string name = [] {
    const char* text = std::getenv("AICF_TEST_DEVICE");
    return std::string(text != nullptr && std::strcmp(text, "cuda") == 0 ? "cuda" : "cpu");
  }();
  return name;
}

std::string path_of(const aicf::Program& program, const std::string& name) {
  const std::string path = ::testing::TempDir() + "/api_device_" + name + ".aicf";
  aicf::CompileOptions options;
  options.target = device();
  aicf::compile(program, options).save(path);
  return path;
}

Executable load(const aicf::Program& program, const std::string& name, int64_t limit = 0) {
  aicf::LoadOptions options;
  options.device = device();
  options.device_memory_limit = limit;
  return Executable::load(path_of(program, name), options);
}

TEST(DeviceTest, RunsOnTensorsOfTheDeviceGiveTheSameBits) {
  Executable exe = load(aicf_test::mlp(), "mlp");
  for (const int64_t batch : {1, 7, 64}) {
    const Tensor x = pattern({batch, 16}, batch), expected = exe.run(std::vector<TensorView>{x})[0];
    const DeviceTensor there = exe.to_device(x);
    EXPECT_EQ(there.to_host(), x);
    const std::vector<DeviceTensor> y = exe.run_on_device({there});
    ASSERT_EQ(y.size(), 1u);
    EXPECT_EQ(y[0].sizes(), (std::vector<int64_t>{batch, 8}));
    EXPECT_EQ(y[0].to_host(), expected);
    EXPECT_EQ(exe.run_on_device({x})[0].to_host(), expected);  // an input of the host
  }
}

TEST(DeviceTest, RunsFollowEachOtherWithoutWaiting) {
  Executable exe = load(aicf_test::counter(), "counter");
  const DeviceTensor x = exe.to_device(Tensor::from<float>({4}, {1, 2, 3, 4}));
  std::vector<DeviceTensor> results;
  for (int i = 0; i < 10; ++i) results.push_back(exe.run_on_device({x}, {nullptr, false})[0]);
  exe.finish();
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(results[static_cast<size_t>(i)].to_host().as<float>()[3], 4.0f * static_cast<float>(i));
  EXPECT_EQ(exe.state("total").as<float>()[0], 10.0f);
}

TEST(DeviceTest, OutputsOfTheCallerMayBeOnTheDeviceOrNot) {
  Executable exe = load(aicf_test::mlp(), "mlp");
  const Tensor x = pattern({3, 16}, 3), expected = exe.run(std::vector<TensorView>{x})[0];
  const DeviceTensor there = exe.to_device(x), out = exe.to_device(Tensor(DType::f32, {3, 8}));
  exe.run_into({there}, {out}, {nullptr, false});
  exe.finish();
  EXPECT_EQ(out.to_host(), expected);
  Tensor y(DType::f32, {3, 8});
  exe.run_into({there}, {y}, {nullptr, false});  // copied to the host, so it is there at once
  EXPECT_EQ(y, expected);
}

TEST(DeviceTest, AViewOfTheDeviceIsNoArrayOfTheHost) {
  Executable exe = load(aicf_test::counter(), "counter");
  const DeviceTensor x = exe.to_device(Tensor(DType::f32, {4}));
  EXPECT_EQ(code_of([&] { exe.set_state("total", x); }), "AICF-U0004");
  EXPECT_EQ(code_of([&] { return Tensor(TensorView(x)); }), "AICF-U0004");
  EXPECT_EQ(DeviceTensor().to_host(), Tensor());
}

TEST(DeviceTest, AMemoryLimitIsKept) {
  if (device() == "cpu") {
    EXPECT_EQ(code_of([] { load(aicf_test::mlp(), "mlp", -1); }), "AICF-U0001");
    EXPECT_EQ(code_of([] { load(aicf_test::mlp(), "mlp", 100); }), "AICF-U0002");
    GTEST_SKIP() << "the limit is that of a GPU's memory; AICF_MAX_MEMORY holds for the host's";
  }
  EXPECT_EQ(code_of([] { load(aicf_test::mlp(), "mlp", 100); }), "AICF-U0503");
  EXPECT_EQ(load(aicf_test::mlp(), "mlp", 1 << 20).run_on_device({pattern({3, 16}, 3)}).size(), 1u);
}

TEST(DeviceTest, AnAllocatorOfTheCallerIsUsed) {
  if (device() == "cpu") GTEST_SKIP() << "memory of the host has no allocator of the caller";
  // Memory of one executable serves as the allocator of another.
  Executable source = load(aicf_test::counter(), "counter");
  std::map<void*, DeviceTensor> blocks;
  aicf::LoadOptions options;
  options.device = device();
  options.allocator.allocate = [&](int64_t bytes) {
    const DeviceTensor block = source.to_device(Tensor(DType::u8, {bytes}));
    blocks.emplace(block.data(), block);
    return block.data();
  };
  options.allocator.release = [&](void* address, int64_t) { EXPECT_EQ(blocks.erase(address), 1u); };
  {
    Executable exe = Executable::load(path_of(aicf_test::mlp(), "mlp"), options);
    EXPECT_GT(blocks.size(), 0u);
    const Tensor x = pattern({3, 16}, 3);
    EXPECT_EQ(exe.run(std::vector<TensorView>{x})[0],
              load(aicf_test::mlp(), "mlp").run(std::vector<TensorView>{x})[0]);
  }
  EXPECT_EQ(blocks.size(), 0u);
  options.allocator.allocate = [](int64_t) -> void* { return nullptr; };
  EXPECT_EQ(
      code_of<aicf::EnvironmentError>([&] { Executable::load(path_of(aicf_test::mlp(), "mlp"), options); }),
      "AICF-E0002");
}

TEST(DeviceTest, CProgramsHaveTheSame) {
  aicf_executable* exe = nullptr;
  EXPECT_EQ(aicf_load_on("x.aicf", nullptr, 0, 0, &exe), AICF_USER_ERROR);
  const std::string path = path_of(aicf_test::mlp(), "mlp");
  ASSERT_EQ(aicf_load_on(path.c_str(), device().c_str(), 1, 0, &exe), AICF_OK) << aicf_last_error();
  const Tensor x = pattern({5, 16}, 1);
  Tensor expected(DType::f32, {5, 8}), y(DType::f32, {5, 8});
  const int64_t x_sizes[] = {5, 16}, y_sizes[] = {5, 8};
  aicf_tensor in{const_cast<void*>(x.data()), AICF_DTYPE_f32, 2, x_sizes, nullptr, AICF_HOST},
      out{expected.data(), AICF_DTYPE_f32, 2, y_sizes, nullptr, AICF_HOST};
  ASSERT_EQ(aicf_run(exe, 0, &in, 1, &out, 1), AICF_OK) << aicf_last_error();
  in.place = out.place = AICF_DEVICE;
  ASSERT_EQ(aicf_device_allocate(exe, static_cast<size_t>(x.bytes()), &in.data), AICF_OK);
  ASSERT_EQ(aicf_device_allocate(exe, static_cast<size_t>(y.bytes()), &out.data), AICF_OK);
  ASSERT_EQ(aicf_copy_to_device(exe, in.data, x.data(), static_cast<size_t>(x.bytes())), AICF_OK);
  ASSERT_EQ(aicf_run_on(exe, 0, &in, 1, &out, 1, nullptr, 0), AICF_OK) << aicf_last_error();
  ASSERT_EQ(aicf_finish(exe), AICF_OK);
  ASSERT_EQ(aicf_copy_to_host(exe, y.data(), out.data, static_cast<size_t>(y.bytes())), AICF_OK);
  EXPECT_EQ(y, expected);
  in.place = 7;
  EXPECT_EQ(aicf_run_on(exe, 0, &in, 1, &out, 1, nullptr, 0), AICF_USER_ERROR);
  EXPECT_EQ(aicf_device_free(exe, in.data), AICF_OK);
  EXPECT_EQ(aicf_device_free(exe, in.data), AICF_USER_ERROR);
  EXPECT_EQ(aicf_device_free(exe, nullptr), AICF_OK);
  EXPECT_EQ(aicf_free(exe), AICF_OK);
}

}  // namespace
