// What is refused of a CUDA plan and its machine code without a GPU: on the null driver, by code.
#include "runtime/bind_launch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "base/error.h"
#include "runtime/bind_step.h"
#include "runtime/code_image.h"
#include "runtime/executable.h"
#include "runtime/null/null_device.h"
#include "runtime/testing/two_steps.h"

namespace aicf {
namespace {

// The two steps as a plan for a GPU: n blocks, and a tensor map over x [n, 4].
Artifact launched_steps() {
  Artifact artifact = two_steps();
  Variant& variant = artifact.variants[0];
  variant.target = "sm_90";
  variant.plan.modules = 1;
  variant.code = {Array(DType::u8, {0})};
  for (Step& step : variant.plan.entries[0].steps) {
    CudaLaunch launch;
    launch.function = "f";
    launch.grid[0] = Dim::symbol("n");
    launch.params = {Dim::symbol("n") * Dim(3)};
    launch.fparams = {0.5};
    launch.tensor_maps = {{0, {1, 0}, {4, 2}, 32}};
    step.module = 0;
    step.launches = {launch};
  }
  return artifact;
}

// Of binding the changed second step at n = 2.
ErrorCode changed(const std::function<void(Step& step, CudaLaunch& launch)>& change) {
  Artifact artifact = launched_steps();
  artifact.variants[0].code.clear();
  Step& step = artifact.variants[0].plan.entries[0].steps[1];
  change(step, step.launches[0]);
  return code_of([&] {
    check_plan(artifact.variants[0].plan);
    Executable exe(Model::load(artifact, make_null_device()));
    const Array x(DType::f32, {2, 4}), y(DType::f32, {2, 4});
    exe.run_into("", {view_of(x)}, {view_of(y)});
  });
}

constexpr ErrorCode kAccepted = ErrorCode::kI_check_failed, kRefused = ErrorCode::kU_bad_artifact;

TEST(BindLaunch, EvaluatesGridsAndWords) {
  const Artifact artifact = launched_steps();
  const Step& step = artifact.variants[0].plan.entries[0].steps[0];
  const BoundLaunch bound = bind_launch(step, step.launches[0], {{"n", 7}});
  EXPECT_EQ(bound.grid, (std::array<uint32_t, 3>{7, 1, 1}));
  EXPECT_EQ(bound.words, (std::vector<uint64_t>{21, 0x3fe0000000000000}));
  EXPECT_FALSE(bound.empty());
  EXPECT_TRUE(bind_launch(step, step.launches[0], {{"n", 0}}).empty());
}

TEST(BindLaunch, TensorMapsHaveTheWindowsSizesInnermostFirst) {
  const Artifact artifact = launched_steps();
  const Plan& plan = artifact.variants[0].plan;
  BoundCall call;
  std::vector<AddressPatch> patches;
  bind_step(plan, plan.entries[0], 0, {{"n", 6}}, call, patches);
  const Step& step = plan.entries[0].steps[0];
  TensorMapSpec spec = step.launches[0].tensor_maps[0];
  spec.steps = {1, 2};
  const TensorMapGeometry map = tensor_map_geometry(step, spec, call);
  EXPECT_EQ(map.rank, 2u);
  EXPECT_EQ(map.sizes[0], 4u);
  EXPECT_EQ(map.sizes[1], 6u);
  EXPECT_EQ(map.strides[0], 16u);
  EXPECT_EQ(map.box[1], 4u);
  EXPECT_EQ(map.swizzle, 1);
}

TEST(BindLaunch, WhatNoGpuCanLaunchIsRefused) {
  EXPECT_EQ(changed([](Step&, CudaLaunch&) {}), kAccepted);
  const Dim n = Dim::symbol("n");
  EXPECT_EQ(changed([&](Step&, CudaLaunch& l) { l.grid[0] = n - Dim(3); }), kRefused);
  EXPECT_EQ(changed([&](Step&, CudaLaunch& l) { l.grid[0] = n * Dim(int64_t{1} << 30); }), kRefused);
  EXPECT_EQ(changed([&](Step&, CudaLaunch& l) { l.grid[1] = n * Dim(40000); }), kRefused);
  EXPECT_EQ(changed([&](Step&, CudaLaunch& l) { l.grid[2] = Dim(0), l.tensor_maps[0].axes = {0, 1}; }),
            kAccepted);
  EXPECT_EQ(changed([](Step&, CudaLaunch& l) { l.tensor_maps[0].box = {4, 257}; }), kRefused);
  EXPECT_EQ(changed([](Step&, CudaLaunch& l) { l.tensor_maps[0].box = {4, 0}; }), kRefused);
  EXPECT_EQ(changed([](Step&, CudaLaunch& l) { l.tensor_maps[0].steps = {1, 9}; }), kRefused);
  EXPECT_EQ(changed([](Step&, CudaLaunch& l) { l.tensor_maps[0].swizzle_bytes = 48; }), kRefused);
  // Rows of 4 bytes are no multiple of 16.
  EXPECT_EQ(changed([](Step&, CudaLaunch& l) { l.tensor_maps[0].axes = {0, 1}; }), kRefused);
  EXPECT_EQ(changed([](Step& s, CudaLaunch&) { s.library.call = "junk"; }), kRefused);
  EXPECT_EQ(changed([](Step& s, CudaLaunch&) { s.library.call = "91901 attention workspace 64 engine 1"; }),
            kRefused);
  EXPECT_EQ(changed([](Step& s, CudaLaunch&) { s.library.call = "91901 attention workspace 0 engine 1"; }),
            kAccepted);
}

// An ELF header with one section of code behind it.
std::string cubin() {
  std::string bytes(192, '\0');
  const auto put = [&](size_t at, uint64_t value, size_t width) { std::memcpy(&bytes[at], &value, width); };
  bytes.replace(0, 6,
                "\x7f"
                "ELF\x02\x01");
  put(18, 190, 2);  // machine
  put(40, 64, 8);   // sections begin
  put(58, 64, 2);   // bytes of each
  put(60, 1, 2);    // how many
  put(64 + 4, 1, 4);
  put(64 + 24, 128, 8);
  put(64 + 32, 64, 8);
  return bytes;
}

ErrorCode loaded(const std::string& bytes) {
  Artifact artifact = launched_steps();
  Array image(DType::u8, {static_cast<int64_t>(bytes.size())});
  std::memcpy(image.mutable_data(), bytes.data(), bytes.size());
  artifact.variants[0].code = {image};
  return code_of([&] { Model::load(artifact, make_null_device()); });
}

TEST(CodeImage, CubinsAndPtxLoad) {
  EXPECT_EQ(loaded(cubin()), kAccepted);
  const std::string ptx = "//\n.version 8.0\n.target sm_80\n";
  EXPECT_EQ(loaded(ptx), kAccepted);
  EXPECT_EQ(loaded(ptx + '\0'), kAccepted);  // as NVRTC gives it
}

TEST(CodeImage, WhatADriverWouldReadBeyondIsRefused) {
  const std::string sound = cubin();
  for (size_t size = 0; size < sound.size(); ++size)
    EXPECT_EQ(loaded(sound.substr(0, size)), kRefused) << size;
  const auto with = [&](size_t at, uint64_t value, size_t width) {
    std::string bytes = sound;
    std::memcpy(&bytes[at], &value, width);
    return loaded(bytes);
  };
  EXPECT_EQ(with(18, 62, 2), kRefused);               // another machine
  EXPECT_EQ(with(40, UINT64_MAX - 8, 8), kRefused);   // the table of sections
  EXPECT_EQ(with(58, 8, 2), kRefused);                // its entries
  EXPECT_EQ(with(60, 3, 2), kRefused);                // their number
  EXPECT_EQ(with(62, 1, 2), kRefused);                // the section of names
  EXPECT_EQ(with(64 + 24, UINT64_MAX, 8), kRefused);  // where a section begins
  EXPECT_EQ(with(64 + 32, 65, 8), kRefused);          // and how much it holds
  EXPECT_EQ(with(64 + 4, 8, 4), kAccepted);           // a section without bytes
  EXPECT_EQ(loaded("junk"), kRefused);
  EXPECT_EQ(loaded(std::string(".version 8.0\0.target", 20)), kRefused);
  EXPECT_EQ(loaded(std::string(".version 8.0\0\0", 14)), kRefused);
}

}  // namespace
}  // namespace aicf
