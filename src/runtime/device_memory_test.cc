// Devices with memory of their own, on the null driver: what is copied, how streams are ordered, and which
// memory the pool gives out.
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "runtime/executable.h"
#include "runtime/null/null_device.h"
#include "runtime/open_device.h"
#include "runtime/testing/two_steps.h"

namespace aicf {
namespace {

struct OwnMemory {
  std::shared_ptr<NullDevice> device = make_null_device(true);
  Executable exe{Model::load(two_steps(), device)};
  int first = 0, second = 0;
  Stream a{&first}, b{&second};

  // Runs on x of 3 rows in the device's memory.
  std::vector<DeviceTensor> run(Stream stream, bool wait = true) {
    const DeviceTensor x = exe.device_tensor(DType::f32, {3, 4}, stream);
    return exe.run_on_device("", {view_of(x)}, {stream, wait});
  }
  // How often one stream was made to wait for another.
  int64_t orders() const {
    return std::count_if(device->records().begin(), device->records().end(),
                         [](const NullRecord& r) { return r.kernel.empty(); });
  }
};

TEST(DeviceMemory, HostArraysTravelAndDeviceTensorsStayWhereTheyAre) {
  OwnMemory own;
  const Array x(DType::f32, {3, 4});
  own.exe.run("", {view_of(x)});
  EXPECT_NE(own.device->records()[0].addresses[0], x.data());
  EXPECT_EQ(own.exe.input_bindings(own.exe.entry(""))[0], Binding::kCopied);
  const DeviceTensor there = own.exe.device_tensor(DType::f32, {3, 4});
  const std::vector<DeviceTensor> y = own.exe.run_on_device("", {view_of(there)});
  EXPECT_EQ(own.device->records()[2].addresses[0], there.data());
  EXPECT_EQ(own.device->records()[3].addresses[2], y[0].data());
  EXPECT_EQ(own.exe.input_bindings(own.exe.entry(""))[0], Binding::kRebound);
  EXPECT_EQ(y[0].sizes, (std::vector<int64_t>{3, 4}));
}

TEST(DeviceMemory, StridedDeviceMemoryIsRefused) {
  OwnMemory own;
  const DeviceTensor x = own.exe.device_tensor(DType::f32, {4, 3});
  TensorView view = view_of(x);
  view.sizes = {3, 4}, view.strides = {1, 3};
  try {
    own.exe.run_on_device("", {view});
    FAIL() << "it was bound";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code, ErrorCode::kU_input_shape);
    EXPECT_NE(error.remedy.find("contiguous"), std::string::npos);
  }
}

TEST(DeviceMemory, OfAnotherDeviceIsRefused) {
  OwnMemory own;
  const DeviceTensor near = own.exe.device_tensor(DType::f32, {3, 4}),
                     far = own.exe.device_tensor(DType::f32, {3, 4}),
                     y = own.exe.device_tensor(DType::f32, {3, 4});
  own.device->elsewhere = {far.data()};
  const auto message = [&](const DeviceTensor& x, const DeviceTensor& result) -> std::string {
    try {
      own.exe.run_into("", {view_of(x)}, {view_of(result)});
      return "";
    } catch (const UserError& error) {
      return error.message + ": " + error.actual;
    }
  };
  EXPECT_EQ(message(near, y), "");
  EXPECT_EQ(message(far, y), "input 'x' is in the memory of another device: cuda:1");
  EXPECT_EQ(message(near, far), "output 'y' is in the memory of another device: cuda:1");
  EXPECT_EQ(message(near, y), "");
}

TEST(DeviceMemory, AStreamWaitsForTheOneBeforeOnlyWhereTheyDiffer) {
  OwnMemory own;
  own.run(own.a, false);
  own.run(own.a, false);
  EXPECT_EQ(own.orders(), 0);
  EXPECT_EQ(own.device->records()[0].stream, own.a);
  own.run(own.b, false);
  ASSERT_EQ(own.orders(), 1);
  EXPECT_EQ(own.device->records()[4].before, own.a);
  EXPECT_EQ(own.device->records()[4].stream, own.b);
  own.exe.finish();
  own.run(own.a);  // nothing is under way any more
  own.run(own.b);  // and the run before was waited for
  EXPECT_EQ(own.orders(), 1);
}

TEST(DeviceMemory, ThePoolGivesABlockAgainToItsStreamWhenTheLastUserIsGone) {
  OwnMemory own;
  std::vector<DeviceTensor> y = own.run(own.a);
  const DeviceTensor copy = y[0];
  const std::byte* address = y[0].data();
  y.clear();
  EXPECT_NE(own.exe.device_tensor(DType::f32, {3, 4}, own.a).data(), address);  // `copy` has it
  OwnMemory other;
  const std::byte* freed = other.exe.device_tensor(DType::f32, {3, 4}, other.a).data();
  const DeviceTensor elsewhere = other.exe.device_tensor(DType::f32, {3, 4}, other.b);
  EXPECT_NE(elsewhere.data(), freed);
  EXPECT_EQ(other.exe.device_tensor(DType::f32, {3, 4}, other.a).data(), freed);
  EXPECT_EQ(other.exe.device_tensor(DType::f32, {2, 5}, other.a).data(), freed);  // rounded up alike
}

// As a training step that takes its results anew each time.
TEST(DeviceMemory, ThePoolGivesTheSameBlocksAgainHoweverManyThereAre) {
  OwnMemory own;
  const auto taken = [&] {
    std::vector<DeviceTensor> tensors;
    for (int64_t i = 0; i < 1000; ++i) tensors.push_back(own.exe.device_tensor(DType::f32, {1 + i}, own.a));
    std::set<const std::byte*> addresses;
    for (const DeviceTensor& tensor : tensors) addresses.insert(tensor.data());
    return addresses;
  };
  const std::set<const std::byte*> first = taken();
  EXPECT_EQ(first.size(), 1000u);
  EXPECT_EQ(taken(), first);
}

TEST(DeviceMemory, ThePoolHoldsAtMostTwiceWhatWasOutAtOnce) {
  const std::shared_ptr<NullDevice> device = make_null_device(true);
  const auto pool = std::make_shared<DevicePool>();
  for (int64_t bytes = 1 << 16; bytes <= 1 << 22; bytes += 1 << 16) {
    pool->take(*device, bytes, {});  // dropped at once
    EXPECT_LE(device->allocated_bytes(), 2 * bytes);
    EXPECT_GE(device->allocated_bytes(), bytes);
  }
  const int64_t before = device->allocated_bytes();
  EXPECT_GE(pool->take(*device, 3 << 20, {})->bytes(), 3 << 20);
  EXPECT_EQ(device->allocated_bytes(), before);  // a larger one served
  const std::shared_ptr<DeviceMemory> small = pool->take(*device, 1 << 20, {});
  EXPECT_LE(small->bytes(), 2 << 20);  // none of more than twice the bytes
}

TEST(DeviceMemory, TensorsOutliveTheirExecutable) {
  DeviceTensor y;
  {
    OwnMemory own;
    y = own.run(own.a)[0];
  }
  EXPECT_EQ(y.to_host().sizes(), (std::vector<int64_t>{3, 4}));
}

TEST(DeviceMemory, StatesAreReadAfterTheRun) {
  OwnMemory own;
  own.run(own.a, false);
  own.exe.set_state("s", Array::from<double>(DType::f32, {4}, {1, 2, 3, 4}));
  EXPECT_EQ(own.exe.clone()->state("s").get_f64(3), 4.0);
}

TEST(OpenDevice, ChecksItsOptions) {
  const auto code = [](const DeviceOptions& options) {
    try {
      open_device(options);
    } catch (const Error& error) {
      return error.code;
    }
    return ErrorCode::kI_check_failed;
  };
  EXPECT_EQ(code({"cuda:"}), ErrorCode::kU_bad_option);
  EXPECT_EQ(code({"cuda:-1"}), ErrorCode::kU_bad_option);
  EXPECT_EQ(code({"gpu"}), ErrorCode::kU_bad_option);
  EXPECT_EQ(code({"cuda:99"}), ErrorCode::kE_device_missing);  // no driver, or not so many devices
  DeviceOptions limited{"cuda"};
  limited.memory_limit = -1;
  EXPECT_EQ(code(limited), ErrorCode::kU_bad_option);
}

TEST(OpenDevice, SpellsTargetsOut) {
  const auto code = [](const std::string& target) {
    try {
      spelled_out_target(target);
    } catch (const Error& error) {
      return error.code;
    }
    return ErrorCode::kI_check_failed;
  };
  EXPECT_EQ(spelled_out_target("sm_90,cpu"), "sm_90,cpu");
  EXPECT_EQ(spelled_out_target("cudax"), "cudax");  // what it is, is said where it is compiled for
  EXPECT_EQ(code("cuda:99"), ErrorCode::kE_device_missing);
  EXPECT_EQ(code("cuda:first"), ErrorCode::kU_bad_option);
}

}  // namespace
}  // namespace aicf
