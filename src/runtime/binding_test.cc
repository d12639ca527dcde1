// Binding rules on the null driver: which addresses kernels would see, for sizes, strided memory, states and
// repeated calls.
#include <gtest/gtest.h>

#include "base/error.h"
#include "runtime/check_io.h"
#include "runtime/executable.h"
#include "runtime/null/null_device.h"
#include "runtime/testing/two_steps.h"

namespace aicf {
namespace {

struct NullRun {
  std::shared_ptr<NullDevice> device = make_null_device();
  Executable exe{Model::load(two_steps(), device)};
};

TEST(Binding, RowMajorMemoryIsUsedWhereItLies) {
  NullRun run;
  const Array x(DType::f32, {3, 4}), y(DType::f32, {3, 4});
  run.exe.run_into("", {view_of(x)}, {view_of(y)});
  const auto& records = run.device->records();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].addresses[0], x.data());
  EXPECT_EQ(records[0].addresses[1], records[1].addresses[0]);
  EXPECT_EQ(records[1].addresses[2], y.data());
  EXPECT_EQ(run.exe.input_bindings(run.exe.entry(""))[0], Binding::kRebound);
}

TEST(Binding, AnotherAddressIsBoundWithoutBindingSizesAgain) {
  NullRun run;
  const Array x(DType::f32, {3, 4}), other(DType::f32, {3, 4}), y(DType::f32, {3, 4});
  run.exe.run_into("", {view_of(x)}, {view_of(y)});
  run.exe.run_into("", {view_of(other)}, {view_of(y)});
  EXPECT_EQ(run.device->records()[2].addresses[0], other.data());
}

TEST(Binding, StridedInputIsCopiedAndSaysSo) {
  NullRun run;
  Array wide = Array::from<double>(DType::f32, {4, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const Array y(DType::f32, {3, 4});
  run.exe.run_into("", {{DType::f32, {3, 4}, {1, 3}, wide.mutable_data()}}, {view_of(y)});
  const auto* copy = static_cast<const float*>(run.device->records()[0].addresses[0]);
  EXPECT_NE(static_cast<const void*>(copy), wide.data());
  EXPECT_EQ(copy[1], 3.0f);
  EXPECT_EQ(copy[4], 1.0f);
  EXPECT_EQ(run.exe.input_bindings(run.exe.entry(""))[0], Binding::kCopied);
}

TEST(Binding, StatesBelongToTheExecutable) {
  NullRun run;
  const auto other = run.exe.clone();
  const Array x(DType::f32, {1, 4}), y(DType::f32, {1, 4});
  run.exe.run_into("", {view_of(x)}, {view_of(y)});
  other->run_into("", {view_of(x)}, {view_of(y)});
  EXPECT_NE(run.device->records()[1].addresses[1], run.device->records()[3].addresses[1]);
  run.exe.set_state("s", Array::from<double>(DType::f32, {4}, {1, 2, 3, 4}));
  EXPECT_EQ(other->state("s").get_f64(2), 0.0);
  EXPECT_EQ(run.exe.clone()->state("s").get_f64(2), 3.0);
  run.exe.reset();
  EXPECT_EQ(run.exe.state("s").get_f64(2), 0.0);
}

TEST(Binding, BadInputsAreCodedErrors) {
  NullRun run;
  const Array y(DType::f32, {3, 4});
  const auto bind = [&](const Array& x) {
    return code_of([&] { run.exe.run_into("", {view_of(x)}, {view_of(y)}); });
  };
  EXPECT_EQ(bind(Array(DType::f64, {3, 4})), ErrorCode::kU_input_dtype);
  EXPECT_EQ(bind(Array(DType::f32, {3})), ErrorCode::kU_input_shape);
  EXPECT_EQ(bind(Array(DType::f32, {3, 5})), ErrorCode::kU_input_shape);
  EXPECT_EQ(bind(Array(DType::f32, {11, 4})), ErrorCode::kU_size_out_of_range);
  EXPECT_EQ(bind(Array(DType::f32, {2, 4})), ErrorCode::kU_input_shape);  // the output does not fit
  EXPECT_EQ(code_of([&] { run.exe.run_into("nowhere", {}, {}); }), ErrorCode::kU_bad_option);
  EXPECT_EQ(code_of([&] { run.exe.run("", std::map<std::string, Array>{}); }), ErrorCode::kU_missing_input);
  EXPECT_EQ(code_of([&] { run.exe.run("", std::map<std::string, Array>{{"z", y}}); }),
            ErrorCode::kU_unknown_input);
}

// An entry of inputs x[4*h] and y[h + 1], h in 1..8.
SymbolValues sizes_of(int64_t x_length, int64_t y_length) {
  Plan plan;
  plan.sizes["h"] = {1, 8};
  EntryPlan entry;
  for (const char* length : {"4*h", "h + 1"}) {
    IoTensor io;
    io.name = length;
    io.dtype = DType::f32;
    io.sizes = {Dim::parse(length)};
    entry.inputs.push_back(std::move(io));
  }
  const Array x(DType::f32, {x_length}), y(DType::f32, {y_length});
  return sizes_of_inputs(plan, entry, {view_of(x), view_of(y)});
}

TEST(Binding, SizesAreReadOffSums) {
  EXPECT_EQ(sizes_of(12, 4).at("h"), 3);
  EXPECT_EQ(code_of([] { sizes_of(12, 5); }), ErrorCode::kU_size_conflict);
  EXPECT_EQ(code_of([] { sizes_of(10, 4); }), ErrorCode::kU_input_shape);
  EXPECT_EQ(code_of([] { sizes_of(36, 10); }), ErrorCode::kU_size_out_of_range);
  EXPECT_EQ(code_of([] { sizes_of(0, 1); }), ErrorCode::kU_size_out_of_range);
}

TEST(Binding, WarmUpRunsComeOnceForNewSizes) {
  NullRun run;
  const Array x(DType::f32, {3, 4}), y(DType::f32, {3, 4});
  setenv("AICF_WARMUP", "3", 1);
  run.exe.run_into("", {view_of(x)}, {view_of(y)});
  EXPECT_EQ(run.device->records().size(), 2u * (3 + 1));
  run.exe.run_into("", {view_of(x)}, {view_of(y)});
  EXPECT_EQ(run.device->records().size(), 2u * (3 + 2));
  unsetenv("AICF_WARMUP");
}

// What a step writes and what it reads, in one buffer of 64 elements: [offset, sizes, strides].
struct Cut {
  int64_t offset;
  std::vector<int64_t> sizes, strides;
};

ErrorCode run_in_one_buffer(const Cut& in, const Cut& out) {
  Artifact artifact = two_steps();
  EntryPlan& entry = artifact.variants[0].plan.entries[0];
  entry.buffers[1].bytes = Dim(256);
  entry.buffers[1].max_bytes = entry.arena_bytes = 256;
  const auto window = [](const Cut& cut) {
    TensorRef ref;
    ref.buffer = 1;
    ref.offset = Dim(cut.offset);
    ref.sizes = to_shape(cut.sizes);
    for (int64_t stride : cut.strides) ref.strides.emplace_back(stride);
    return ref;
  };
  entry.steps[1].inputs = {window(in)};
  entry.steps[1].outputs = {window(out)};
  Executable exe(Model::load(artifact, make_null_device()));
  const Array x(DType::f32, {3, 4}), y(DType::f32, {3, 4});
  return code_of([&] { exe.run_into("", {view_of(x)}, {view_of(y)}); });
}

TEST(Binding, OutputsThatShareElementsWithOtherOperandsAreRefused) {
  const ErrorCode none = ErrorCode::kI_check_failed, bad = ErrorCode::kU_bad_artifact;
  EXPECT_EQ(run_in_one_buffer({0, {8}, {1}}, {8, {8}, {1}}), none);              // one after the other
  EXPECT_EQ(run_in_one_buffer({0, {8}, {1}}, {7, {8}, {1}}), bad);               // one element
  EXPECT_EQ(run_in_one_buffer({0, {8}, {1}}, {0, {8}, {1}}), bad);               // in place
  EXPECT_EQ(run_in_one_buffer({0, {8, 4}, {8, 1}}, {4, {8, 4}, {8, 1}}), none);  // columns of the same rows
  EXPECT_EQ(run_in_one_buffer({0, {8, 5}, {8, 1}}, {4, {8, 4}, {8, 1}}), bad);
  EXPECT_EQ(run_in_one_buffer({0, {4, 2, 4}, {16, 4, 1}}, {8, {4, 2, 4}, {16, 4, 1}}), none);
  EXPECT_EQ(run_in_one_buffer({7, {8}, {-1}}, {7, {8}, {1}}), bad);  // backwards, meeting in one
  EXPECT_EQ(run_in_one_buffer({7, {8}, {-1}}, {8, {8}, {1}}), none);
  EXPECT_EQ(run_in_one_buffer({0, {0}, {1}}, {0, {8}, {1}}), none);    // nothing is read
  EXPECT_EQ(run_in_one_buffer({0, {32}, {2}}, {1, {32}, {2}}), none);  // every second element
}

// An input of 3 x 4 and an output of as many elements in one buffer of the caller's.
ErrorCode run_in_memory(const Cut& in, const Cut& out) {
  NullRun run;
  Array memory(DType::f32, {64});
  const auto view = [&](const Cut& cut) {
    return TensorView{DType::f32, cut.sizes, cut.strides, memory.mutable_data_as<float>() + cut.offset};
  };
  return code_of([&] { run.exe.run_into("", {view(in)}, {view(out)}); });
}

TEST(Binding, OutputsThatShareMemoryOfTheCallerAreRefused) {
  const ErrorCode none = ErrorCode::kI_check_failed, bad = ErrorCode::kU_misuse;
  const std::vector<int64_t> sizes{3, 4};
  EXPECT_EQ(run_in_memory({0, sizes, {4, 1}}, {12, sizes, {4, 1}}), none);
  EXPECT_EQ(run_in_memory({0, sizes, {}}, {0, sizes, {}}), bad);
  EXPECT_EQ(run_in_memory({0, sizes, {}}, {11, sizes, {}}), bad);
  EXPECT_EQ(run_in_memory({11, sizes, {}}, {0, sizes, {}}), bad);
  EXPECT_EQ(run_in_memory({12, sizes, {}}, {0, sizes, {}}), none);
  EXPECT_EQ(run_in_memory({0, sizes, {8, 1}}, {4, sizes, {8, 1}}), none);  // columns of the same rows
  EXPECT_EQ(run_in_memory({0, sizes, {8, 1}}, {3, sizes, {8, 1}}), bad);
  EXPECT_EQ(run_in_memory({0, sizes, {8, 2}}, {1, sizes, {8, 2}}), none);
  EXPECT_EQ(run_in_memory({0, sizes, {0, 1}}, {4, sizes, {}}), none);  // an input may repeat its elements
  EXPECT_EQ(run_in_memory({0, sizes, {}}, {12, sizes, {0, 1}}), bad);  // an output may not
  EXPECT_EQ(run_in_memory({0, sizes, {}}, {12, sizes, {1, 1}}), bad);
  EXPECT_EQ(run_in_memory({0, sizes, {}}, {12, sizes, {2, 3}}), none);
  EXPECT_EQ(run_in_memory({0, sizes, {}}, {12, sizes, {3, 2}}), bad);    // 6 = 2 * 3 = 3 * 2
  EXPECT_EQ(run_in_memory({0, sizes, {}}, {20, sizes, {-4, 1}}), none);  // backwards, up to the input's end
  EXPECT_EQ(run_in_memory({0, sizes, {}}, {19, sizes, {-4, 1}}), bad);
}

// Inputs may share memory: the second lies at the begin of the first.
TEST(Binding, AnOutputOfSeveralThatSharesMemoryIsRefused) {
  const ErrorCode none = ErrorCode::kI_check_failed, bad = ErrorCode::kU_misuse;
  Array memory(DType::f32, {64});
  const auto view = [&](int64_t offset, int64_t count) {
    return TensorView{DType::f32, {count}, {}, memory.mutable_data_as<float>() + offset};
  };
  EntryPlan entry;
  entry.inputs.resize(2);
  entry.outputs.resize(2);
  const auto run_to = [&](const TensorView& a, const TensorView& b) {
    return code_of([&] { check_apart(entry, {view(0, 40), view(4, 4)}, {a, b}); });
  };
  EXPECT_EQ(run_to(view(40, 4), view(44, 4)), none);
  EXPECT_EQ(run_to(view(44, 4), view(40, 5)), bad);  // the other output
  EXPECT_EQ(run_to(view(50, 4), view(20, 4)), bad);  // the first input alone
}

}  // namespace
}  // namespace aicf
