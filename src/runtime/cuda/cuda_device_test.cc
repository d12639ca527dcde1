// The CUDA driver's own logic on a made-up libcuda: what it makes it destroys, a call that fails leaves the
// device usable, graphs are captured once for each set of sizes. Each case runs in a process of its own,
// because a process opens one driver for good.
#include "runtime/cuda/cuda_device.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>

#include "base/error.h"
#include "codegen/testing/needs_nvrtc.h"
#include "compile/compile.h"
#include "ir/text.h"
#include "runtime/cuda/launches.h"
#include "runtime/cuda/library_handles.h"
#include "runtime/cuda/testing/fake_libcuda.h"
#include "runtime/executable.h"
#include "runtime/open_device.h"
#include "runtime/testing/two_steps.h"

namespace aicf {
namespace {

using cuda::FakeCuda;

// Two kernels of two modules, x [n, 4] to y [n, 4]; the driver takes any text for PTX.
Artifact two_kernels() {
  Artifact artifact = two_steps();
  Variant& variant = artifact.variants[0];
  variant.target = "compute_80";
  variant.plan.modules = 2;
  const std::string ptx = "//\n.version 8.0\n.target sm_80\n";
  Array image(DType::u8, {static_cast<int64_t>(ptx.size())});
  std::memcpy(image.mutable_data(), ptx.data(), ptx.size());
  variant.code = {image, image};
  int32_t module = 0;
  for (Step& step : variant.plan.entries[0].steps) {
    CudaLaunch launch;
    launch.function = "f";
    launch.grid[0] = Dim::symbol("n");
    step.module = module++;
    step.launches = {launch};
  }
  return artifact;
}

int alive(const FakeCuda& fake) {
  return fake.blocks + fake.host_blocks + fake.streams + fake.events + fake.modules + fake.graphs +
         fake.execs;
}

void run(Executable& exe, int64_t n) { exe.run("", {{"x", Array(DType::f32, {n, 4})}}); }

class CudaDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(AICF_FAKE_CUDA "/libcuda.so.1"))
      GTEST_SKIP() << "the made-up libcuda is not here";
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != nullptr) GTEST_SKIP() << "a driver is open";
  }

  static void in_process(const std::function<void(FakeCuda& fake)>& body) {
    const pid_t child = fork();
    if (child == 0) {
      setenv("AICF_CUDA_PATH", AICF_FAKE_CUDA, 1);
      void* library = dlopen(AICF_FAKE_CUDA "/libcuda.so.1", RTLD_NOW);
      body(*static_cast<FakeCuda*>(dlsym(library, "fake_cuda")));
      std::fflush(nullptr);
      _exit(HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
};

TEST_F(CudaDevice, WhatIsMadeIsDestroyed) {
  in_process([](FakeCuda& fake) {
    {
      Executable exe(Model::load(two_kernels(), open_device({"cuda:1"})));
      run(exe, 2);
      const auto twin = exe.clone();
      run(*twin, 3);
      EXPECT_EQ(exe.profile(exe.entry(""), 2).size(), 2u);
      EXPECT_GT(alive(fake), 0);
    }
    EXPECT_EQ(alive(fake), 0);
    EXPECT_EQ(fake.contexts, 0);
  });
}

// The driver keeps one number for a function, whichever launch asked last.
TEST_F(CudaDevice, LaunchesOfAFunctionMayHaveWhatTheLargestAsksFor) {
  in_process([](FakeCuda& fake) {
    Artifact artifact = two_kernels();
    std::vector<Step>& steps = artifact.variants[0].plan.entries[0].steps;
    steps[0].launches[0].shared_bytes = 117248;
    steps[1].launches[0].shared_bytes = 65536;
    Executable exe(Model::load(artifact, open_device({"cuda"})));
    run(exe, 2);
    EXPECT_EQ(fake.dynamic_shared, 117248);
  });
}

// Steps of one kernel each, in these lanes; one without any launch where the lane is said to be empty.
Artifact kernels_in_lanes(const std::vector<Lane>& lanes, size_t empty) {
  Artifact artifact = two_kernels();
  EntryPlan& entry = artifact.variants[0].plan.entries[0];
  Step step = entry.steps[1];
  step.inputs.clear();
  step.outputs.clear();
  entry.steps.resize(2);
  for (size_t i = 0; i < lanes.size(); ++i) {
    step.lane = lanes[i];
    step.launches[0].grid[0] = i == empty ? Dim::symbol("n") - Dim(2) : Dim(1);
    entry.steps.push_back(step);
  }
  return artifact;
}

// The second step is a bundle of two members that may report errors.
Artifact reporting_bundle() {
  Artifact artifact = two_kernels();
  Step& step = artifact.variants[0].plan.entries[0].steps[1];
  step.members = {{"gather", "", "words", 0, {0}, {0}}, {"gather", "", "places", 1, {0}, {0}}};
  step.launches[0].reports_errors = true;
  return artifact;
}

TEST_F(CudaDevice, AnErrorInABundleNamesItsMember) {
  in_process([](FakeCuda& fake) {
    Executable exe(Model::load(reporting_bundle(), open_device({"cuda"})));
    run(exe, 2);
    // One for the first step, one for each member, and one behind.
    constexpr size_t kErrors = 4;
    const auto found = std::find_if(fake.host_bytes.begin(), fake.host_bytes.end(), [](const auto& block) {
      return block.second == kErrors * sizeof(cuda::DeviceError);
    });
    ASSERT_NE(found, fake.host_bytes.end());
    auto* errors = static_cast<cuda::DeviceError*>(found->first);
    const auto named = [&](size_t member) {
      errors[1 + member] = {1, 0, 7, 5};
      try {
        run(exe, 2);
        return std::string("nothing");
      } catch (const UserError& error) {
        EXPECT_EQ(error.code, ErrorCode::kU_index_out_of_range);
        EXPECT_EQ(error.actual, "7");
        return error.op;
      }
    };
    EXPECT_EQ(named(1), "places");
    EXPECT_EQ(named(0), "words");
    EXPECT_EQ(errors[1].raised, 0);
    run(exe, 2);  // an error is reported once
  });
}

// A user's kernel may have loads that pass its wait.
TEST_F(CudaDevice, CustomKernelsStartWhenThatBeforeHasEnded) {
  in_process([](FakeCuda& fake) {
    Artifact artifact = kernels_in_lanes({{0, {}}, {0, {}}, {0, {}}}, 9);
    std::vector<Step>& steps = artifact.variants[0].plan.entries[0].steps;
    steps[steps.size() - 2].kernel = "custom:my::op";
    Executable exe(Model::load(artifact, open_device({"cuda"})));
    run(exe, 2);
    const std::vector<std::vector<size_t>> early = {{}, {0}, {1}, {}, {}};
    ASSERT_EQ(fake.nodes.size(), early.size());
    for (size_t i = 0; i < early.size(); ++i) {
      EXPECT_EQ(fake.nodes[i].early, early[i]) << i;
      EXPECT_EQ(fake.nodes[i].follows, i == 0 ? std::vector<size_t>() : std::vector<size_t>{i - 1}) << i;
    }
  });
}

TEST_F(CudaDevice, LanesFollowAsTheySay) {
  in_process([](FakeCuda& fake) {
    // Nodes 0 and 1 are in lane 0. Step 6 launches nothing when n is 2, and joins lane 1 all the same.
    const std::vector<Lane> lanes = {{1, {}},  {2, {}}, {1, {}},     {0, {}},
                                     {0, {1}}, {1, {}}, {0, {1, 2}}, {3, {}}};
    Executable exe(Model::load(kernels_in_lanes(lanes, 4), open_device({"cuda"})));
    run(exe, 2);
    const std::vector<std::vector<size_t>> follows = {{}, {0}, {1}, {1}, {2}, {1}, {5, 4}, {5, 4, 6, 3}, {7}},
                                           early = {{}, {0}, {}, {}, {2}, {1}, {}, {}, {}};
    ASSERT_EQ(fake.nodes.size(), follows.size());
    for (size_t i = 0; i < follows.size(); ++i) {
      EXPECT_EQ(fake.nodes[i].follows, follows[i]) << i;
      EXPECT_EQ(fake.nodes[i].early, early[i]) << i;
    }
    // Kernels that are timed run one after the other.
    fake.nodes.clear();
    exe.profile(exe.entry(""), 1);
    for (size_t i = 1; i < fake.nodes.size(); ++i)
      EXPECT_EQ(fake.nodes[i].follows, std::vector<size_t>{i - 1}) << i;
  });
}

TEST_F(CudaDevice, CapturesOnceForEachSetOfSizesAndThenChangesAddresses) {
  in_process([](FakeCuda& fake) {
    Executable exe(Model::load(two_kernels(), open_device({"cuda"})));
    EXPECT_EQ(fake.instantiations, 0);
    const auto run_on = [&](const DeviceTensor& x, const DeviceTensor& y) {
      exe.run_into("", {view_of(x)}, {view_of(y)});
    };
    const DeviceTensor x = exe.device_tensor(DType::f32, {2, 4}), y = exe.device_tensor(DType::f32, {2, 4});
    run_on(x, y);
    run_on(x, y);
    EXPECT_EQ(fake.instantiations, 1);
    EXPECT_EQ(fake.graph_launches, 2);
    EXPECT_EQ(fake.node_updates, 0);
    EXPECT_EQ(exe.coverage(exe.entry("")), "2/2 kernels in 1 graph");
    run_on(exe.device_tensor(DType::f32, {2, 4}), y);
    EXPECT_EQ(fake.instantiations, 1);
    EXPECT_EQ(fake.node_updates, 1);  // only the first kernel reads x
    run(exe, 5);
    run_on(x, y);
    EXPECT_EQ(fake.instantiations, 2);
    EXPECT_EQ(fake.kernel_launches, 0);
  });
}

// A branch within a loop. The values that decide are the memory's, which nothing computes here.
Artifact nested_control() {
  CompileOptions options;
  options.target = "compute_80";
  return compile(parse(R"(program {
    entry main(%x: f32[3], %c: bool[], %i: i64[]) {
      %y, %go, %at = while_loop(%x, %c, %i)
        body(%a: f32[3] as "a", %b: bool[] as "b", %j: i64[] as "j") {
          return %b
        }
        body(%a: f32[3] as "a", %b: bool[] as "b", %j: i64[] as "j") {
          %r = if_else(%b, %a, %j)
            body(%p: f32[3] as "p", %k: i64[] as "k") {
              %one = gather(%p, %k) {axis = 0} : f32[]
              %s = add(%p, %one) : f32[3]
              return %s
            }
            body(%p: f32[3] as "p", %k: i64[] as "k") {
              %s = neg(%p) : f32[3]
              return %s
            } : f32[3]
          return %r, %b, %j
        } : f32[3], bool[], i64[]
      return "y" = %y
    }
  })"),
                 options);
}

TEST_F(CudaDevice, ControlFlowIsPartOfTheGraphAndIsCapturedAnewForOtherAddresses) {
  AICF_NEEDS_NVRTC();
  const Artifact artifact = nested_control();
  in_process([&](FakeCuda& fake) {
    {
      Executable exe(Model::load(artifact, open_device({"cuda"})));
      const auto run_on = [&](const DeviceTensor& x) {
        const DeviceTensor c = exe.device_tensor(DType::boolean, {}), i = exe.device_tensor(DType::i64, {}),
                           y = exe.device_tensor(DType::f32, {3});
        for (int repeat = 0; repeat < 2; ++repeat)
          exe.run_into("", {view_of(x), view_of(c), view_of(i)}, {view_of(y)});
      };
      run_on(exe.device_tensor(DType::f32, {3}));
      EXPECT_EQ(fake.instantiations, 1);
      EXPECT_EQ(fake.graph_launches, 2);
      EXPECT_EQ(fake.conditionals, 3);
      EXPECT_EQ(fake.kernel_launches, 0);
      run_on(exe.device_tensor(DType::f32, {3}));
      EXPECT_EQ(fake.instantiations, 2);
      EXPECT_EQ(fake.graph_launches, 4);
      EXPECT_EQ(exe.profile(exe.entry(""), 1).size(), 1u);
    }
    EXPECT_EQ(alive(fake), 0);
    for (const char* function : {"cuGraphConditionalHandleCreate", "cuGraphAddNode_v2"}) {
      fake.failing = function;
      fake.sound_calls = 1;
      Executable exe(Model::load(artifact, open_device({"cuda"})));
      EXPECT_THROW(exe.run("", {{"x", Array(DType::f32, {3})},
                                {"c", Array(DType::boolean, {})},
                                {"i", Array(DType::i64, {})}}),
                   EnvironmentError);
    }
    fake.failing = nullptr;
    EXPECT_EQ(alive(fake), 0);
    setenv("AICF_CUDA_GRAPHS", "0", 1);
    Executable exe(Model::load(artifact, open_device({"cuda"})));
    fake.graph_launches = 0;
    exe.run("",
            {{"x", Array(DType::f32, {3})}, {"c", Array(DType::boolean, {})}, {"i", Array(DType::i64, {})}});
    EXPECT_EQ(fake.graph_launches, 1);  // conditional nodes need one
  });
}

TEST_F(CudaDevice, WithoutGraphsTheSameKernelsAreLaunched) {
  in_process([](FakeCuda& fake) {
    setenv("AICF_CUDA_GRAPHS", "0", 1);
    Executable exe(Model::load(two_kernels(), open_device({"cuda"})));
    run(exe, 2);
    EXPECT_EQ(fake.kernel_launches, 2);
    EXPECT_EQ(fake.instantiations, 0);
    EXPECT_EQ(exe.coverage(exe.entry("")), "0/2 kernels in a graph");
  });
}

TEST_F(CudaDevice, ACallThatFailsLeavesNothingAndTheDeviceUsable) {
  for (const char* function :
       {"cuModuleLoadData", "cuModuleGetFunction", "cuMemAlloc_v2", "cuMemHostAlloc",
        "cuMemHostGetDevicePointer_v2", "cuGraphCreate", "cuGraphAddNode_v2", "cuGraphInstantiateWithFlags",
        "cuGraphLaunch", "cuMemcpyHtoDAsync_v2", "cuEventCreate", "cuEventElapsedTime"})
    for (const int sound_calls : {0, 1})
      in_process([&](FakeCuda& fake) {
        const auto device = open_device({"cuda"});
        const int before = alive(fake);
        const auto use = [&] {
          Executable exe(Model::load(two_kernels(), device));
          run(exe, 2);
          run(exe, 3);
          exe.profile(exe.entry(""), 2);
        };
        fake.failing = function;
        fake.sound_calls = sound_calls;
        EXPECT_THROW(use(), Error) << function;
        fake.failing = nullptr;
        EXPECT_EQ(alive(fake), before) << function << " after " << sound_calls;
        EXPECT_NO_THROW(use()) << function;
        EXPECT_EQ(alive(fake), before) << function;
      });
}

EnvironmentError error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const EnvironmentError& error) {
    return error;
  }
  return {ErrorCode::kE_io_failed, "nothing is thrown"};
}

TEST_F(CudaDevice, AFailedCallHasTheCodeOfWhatHappened) {
  using enum ErrorCode;
  const std::pair<int, ErrorCode> results[] = {
      {1, kE_driver_failed},    {2, kE_out_of_memory},     {46, kE_device_lost},
      {100, kE_device_missing}, {200, kE_bad_device_code}, {209, kE_bad_device_code},
      {214, kE_device_lost},    {218, kE_bad_device_code}, {222, kE_driver_too_old},
      {700, kE_kernel_failed},  {701, kE_kernel_failed},   {719, kE_kernel_failed},
      {803, kE_driver_too_old}, {900, kE_capture_failed},  {999, kE_driver_failed},
  };
  for (const auto& [result, code] : results)
    in_process([&](FakeCuda& fake) {
      Executable exe(Model::load(two_kernels(), open_device({"cuda"})));
      fake.failing = "cuGraphLaunch", fake.result = result;
      const EnvironmentError error = error_of([&] { run(exe, 2); });
      EXPECT_EQ(error.code, code) << result;
      EXPECT_EQ(error.actual, "graph_launch: CUDA_ERROR_FAKE: made to fail");
      EXPECT_NE(error.remedy, "") << result;
      EXPECT_EQ(error.op, "entry main");
    });
}

TEST_F(CudaDevice, AFailedCallNamesTheNodeAndTheKernel) {
  Artifact artifact = two_kernels();
  std::vector<Step>& steps = artifact.variants[0].plan.entries[0].steps;
  for (size_t i = 0; i < steps.size(); ++i) {
    steps[i].origin = "node" + std::to_string(i);
    steps[i].kernel = "kernel" + std::to_string(i);
    steps[i].launches[0].function = "function" + std::to_string(i);
    steps[i].launches[0].shared_bytes = int64_t{1} << (16 + i);  // more each time: the driver is asked again
  }
  for (const char* function :
       {"cuFuncSetAttribute", "cuGraphAddNode_v2", "cuGraphExecKernelNodeSetParams_v2", "cuLaunchKernelEx"})
    for (const int number : {0, 1})
      in_process([&](FakeCuda& fake) {
        if (std::strcmp(function, "cuLaunchKernelEx") == 0) setenv("AICF_CUDA_GRAPHS", "0", 1);
        Executable exe(Model::load(artifact, open_device({"cuda"})));
        if (std::strstr(function, "Exec") != nullptr && std::strstr(function, "Graph") != nullptr) {
          run(exe, 2);
          fake.sound_calls = 0;
        }
        fake.failing = function, fake.sound_calls = number;
        const EnvironmentError error = error_of([&] {
          const DeviceTensor x = exe.device_tensor(DType::f32, {2, 4}),
                             y = exe.device_tensor(DType::f32, {2, 4});
          for (int i = 0; i < 2; ++i) exe.run_into("", {view_of(x)}, {view_of(y)});
        });
        const std::string n = std::to_string(number);
        EXPECT_EQ(error.code, ErrorCode::kE_driver_failed) << function;
        EXPECT_EQ(error.op, "node" + n) << function;
        EXPECT_EQ(error.value, "kernel kernel" + n + ", function function" + n) << function;
      });
}

TEST_F(CudaDevice, AModuleThatDoesNotLoadIsNamed) {
  in_process([](FakeCuda& fake) {
    fake.failing = "cuModuleLoadData", fake.sound_calls = 1, fake.result = 222;
    const auto device = open_device({"cuda"});
    const EnvironmentError error = error_of([&] { Model::load(two_kernels(), device); });
    EXPECT_EQ(error.code, ErrorCode::kE_driver_too_old);
    EXPECT_EQ(error.op, "module 1 of the machine code");
  });
}

TEST_F(CudaDevice, ADriverThatDoesNotStartSaysWhy) {
  const std::pair<int, ErrorCode> results[] = {{100, ErrorCode::kE_device_missing},
                                               {803, ErrorCode::kE_driver_too_old},
                                               {999, ErrorCode::kE_device_missing}};
  for (const auto& [result, code] : results)
    in_process([&](FakeCuda& fake) {
      fake.failing = "cuInit", fake.result = result;
      EXPECT_EQ(error_of([] { open_device({"cuda"}); }).code, code) << result;
    });
}

TEST_F(CudaDevice, ADeviceThatDoesNotOpenIsNotHeld) {
  in_process([](FakeCuda& fake) {
    fake.failing = "cuStreamCreate";
    EXPECT_THROW(open_device({"cuda"}), EnvironmentError);
    EXPECT_EQ(fake.contexts, 0);
  });
}

TEST_F(CudaDevice, AMemoryLimitIsKept) {
  in_process([](FakeCuda& fake) {
    const auto use = [](int64_t limit) {
      DeviceOptions options{"cuda"};
      options.memory_limit = limit;
      Executable exe(Model::load(two_kernels(), open_device(options)));
      run(exe, 10);
    };
    EXPECT_EQ(code_of([&] { use(100); }), ErrorCode::kU_over_limit);
    EXPECT_EQ(alive(fake), 0);
    EXPECT_EQ(code_of([&] { use(1 << 20); }), ErrorCode::kI_check_failed);  // nothing is thrown
  });
}

TEST_F(CudaDevice, AnAllocatorOfTheCallerGivesAndGetsAllMemory) {
  in_process([](FakeCuda& fake) {
    std::set<void*> blocks;
    DeviceOptions options{"cuda"};
    options.allocator.allocate = [&](int64_t bytes) {
      return *blocks.insert(std::aligned_alloc(256, static_cast<size_t>(bytes + 255) / 256 * 256)).first;
    };
    options.allocator.release = [&](void* block, int64_t) {
      EXPECT_EQ(blocks.erase(block), 1u);
      std::free(block);
    };
    {
      Executable exe(Model::load(two_kernels(), open_device(options)));
      run(exe, 2);
      EXPECT_FALSE(blocks.empty());
      EXPECT_EQ(fake.blocks, 0);
    }
    EXPECT_TRUE(blocks.empty());
    const auto use = [&](uintptr_t address) {
      options.allocator.allocate = [=](int64_t) { return reinterpret_cast<void*>(address); };
      Executable exe(Model::load(two_kernels(), open_device(options)));
    };
    EXPECT_EQ(code_of([&] { use(0); }), ErrorCode::kE_out_of_memory);
    EXPECT_EQ(code_of([&] { use(64); }), ErrorCode::kU_misuse);
    EXPECT_EQ(alive(fake), 0);
  });
}

// More than goes in one piece, by threads; sizes that no piece divides, and none.
TEST_F(CudaDevice, ManyBytesArriveWhole) {
  in_process([](FakeCuda& fake) {
    {
      const auto device = open_device({"cuda"});
      const std::vector<int64_t> sizes = {3, 0, (40 << 20) + 5, 1 << 20, 24 << 20};
      std::vector<std::vector<uint32_t>> from;
      std::vector<std::unique_ptr<DeviceMemory>> to;
      std::vector<Transfer> transfers;
      for (const int64_t size : sizes) {
        from.emplace_back(static_cast<size_t>(size / 4 + 1));
        for (size_t i = 0; i < from.back().size(); ++i)
          from.back()[i] = static_cast<uint32_t>(i * 2654435761U + from.size());
        to.push_back(device->allocate(size + 1));
        device->zero(to.back()->data(), size + 1, {});
        transfers.push_back({to.back()->data(), from.back().data(), size});
      }
      const int before = alive(fake);
      device->upload_all(transfers);
      EXPECT_EQ(alive(fake), before);
      std::vector<std::byte> back;
      for (size_t i = 0; i < sizes.size(); ++i) {
        back.resize(static_cast<size_t>(sizes[i] + 1));
        device->download(back.data(), to[i]->data(), sizes[i] + 1, {});
        EXPECT_EQ(std::memcmp(back.data(), from[i].data(), back.size() - 1), 0) << i;
        EXPECT_EQ(back.back(), std::byte{0}) << i;
      }
      for (const int sound : {0, 1, 7}) {
        fake.failing = "cuMemcpyHtoDAsync_v2", fake.sound_calls = sound;
        EXPECT_THROW(device->upload_all(transfers), EnvironmentError);
        fake.failing = nullptr;
        EXPECT_EQ(alive(fake), before);
      }
    }
    EXPECT_EQ(alive(fake), 0);
  });
}

// The driver gives the next context of a device the address of the one before.
TEST_F(CudaDevice, AHandleOfALibraryEndsWithItsContext) {
  in_process([](FakeCuda&) {
    static int created = 0, destroyed = 0;
    static cuda::LibraryHandles library(
        "a library", "create",
        [](void** handle) {
          *handle = &created;
          ++created;
          return 0;
        },
        [](void*) {
          ++destroyed;
          return 0;
        });
    for (int opened = 1; opened <= 2; ++opened) {
      const auto device = open_device({"cuda"});
      device->wait({});  // its context is current from here on
      EXPECT_EQ(library.current(), &created);
      const auto other = open_device({"cuda:1"});
      other->wait({});
      library.current();
      device->wait({});
      library.current();
      EXPECT_EQ(created, 2 * opened);
      EXPECT_EQ(destroyed, 2 * (opened - 1));
    }
    EXPECT_EQ(destroyed, 4);
  });
}

// As when a program keeps an executable in a static variable: the driver shuts down first.
TEST_F(CudaDevice, EndsQuietlyWhenTheDriverIsGone) {
  in_process([](FakeCuda& fake) {
    Executable exe(Model::load(two_kernels(), open_device({"cuda"})));
    run(exe, 2);
    fake.gone = true;
  });
}

TEST_F(CudaDevice, OrdinalsThatAreNotThereAreNamed) {
  in_process([](FakeCuda& fake) {
    // A context takes longer to make than all else that a target needs.
    fake.failing = "cuDevicePrimaryCtxRetain";
    EXPECT_EQ(target_of_device("cuda:1"), "sm_90");
    EXPECT_EQ(code_of([] { open_device({"cuda:2"}); }), ErrorCode::kE_device_missing);
  });
}

TEST_F(CudaDevice, LimitsAreThoseOfItsClocksAndWidths) {
  in_process([](FakeCuda& fake) {
    const auto device = open_device({"cuda"});
    const auto limits = cuda_limits(0);
    ASSERT_TRUE(limits);
    EXPECT_DOUBLE_EQ(limits->memory_bytes, 2 * 2619.0 * 5120 / 8);
    EXPECT_DOUBLE_EQ(limits->half_flops, 132 * 1980.0 * 4096);
    EXPECT_DOUBLE_EQ(limits->float_flops, 132 * 1980.0 * 256);
    const auto least = [&](Work work, const char* kernel, DType x) {
      return limits->least_microseconds(work, facts_of(kernel).units, x);
    };
    const Work arithmetic{0, 1e12, 0};
    EXPECT_DOUBLE_EQ(least(arithmetic, "matmul_tensor_core", DType::f16), 1e12 / limits->half_flops);
    EXPECT_DOUBLE_EQ(least(arithmetic, "matmul_tensor_core", DType::i8), 1e12 / (2 * limits->half_flops));
    EXPECT_DOUBLE_EQ(least(arithmetic, "matmul_tensor_core", DType::f32), 2e12 / limits->half_flops);
    EXPECT_DOUBLE_EQ(least(arithmetic, "matmul_simt", DType::f32), 1e12 / limits->float_flops);
    EXPECT_DOUBLE_EQ(least(arithmetic, "attention_simt", DType::f16), 1e12 / limits->float_flops);
    EXPECT_DOUBLE_EQ(least(arithmetic, "conv_depthwise", DType::f16), 1e12 / limits->float_flops);
    EXPECT_DOUBLE_EQ(least(arithmetic, "conv_transpose", DType::f16), 1e12 / limits->float_flops);
    // What may lie in the cache comes at its rate, and what no data asks for is not counted.
    const double cache = limits->cache_size;
    EXPECT_DOUBLE_EQ(least({cache, 0, cache}, "tile", DType::f32), cache / limits->cache_bytes);
    EXPECT_DOUBLE_EQ(least({1e9, 0, 3 * cache}, "tile", DType::f32),
                     cache / limits->cache_bytes + 2 * cache / limits->memory_bytes);
    EXPECT_EQ(least({1e9, 0, 0}, "gather", DType::f32), 0);
    fake.arch = 75;
    EXPECT_FALSE(cuda_limits(0));
  });
}

TEST_F(CudaDevice, CudaAsATargetNamesEachTargetOnce) {
  in_process([](FakeCuda& fake) {
    EXPECT_EQ(spelled_out_target("cuda"), "sm_90,compute_80,cpu");
    fake.arch = 89;
    EXPECT_EQ(spelled_out_target("cuda:1"), "sm_89,compute_80,cpu");
    fake.arch = 100;
    EXPECT_EQ(spelled_out_target("cuda"), "compute_80,cpu");
  });
}

}  // namespace
}  // namespace aicf
