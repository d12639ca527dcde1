// After the first run with some sizes, run_into and aicf_run allocate nothing. This program's malloc family
// counts.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>

#include "aicf/aicf_c.h"
#include "test_models.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define AICF_NO_COUNTER
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define AICF_NO_COUNTER  // a sanitizer brings a malloc of its own
#endif

#ifndef AICF_NO_COUNTER

namespace {
std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};

void count() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

// operator new of libstdc++ ends here as well.
void* malloc(size_t bytes) noexcept {
  count();
  return __libc_malloc(bytes);
}
void* calloc(size_t items, size_t bytes) noexcept {
  count();
  return __libc_calloc(items, bytes);
}
void* realloc(void* old, size_t bytes) noexcept {
  count();
  return __libc_realloc(old, bytes);
}
void* memalign(size_t alignment, size_t bytes) noexcept {
  count();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  count();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** result, size_t alignment, size_t bytes) noexcept {
  count();
  *result = __libc_memalign(alignment, bytes);
  return *result == nullptr ? ENOMEM : 0;
}
}

namespace {

template <typename F>
int64_t allocations_in(F&& function) {
  allocations = 0;
  counting = true;
  function();
  counting = false;
  return allocations;
}

TEST(AllocationTest, TheCounterSeesTheLibrary) {
  EXPECT_GT(allocations_in([] { aicf::Tensor(aicf::DType::f32, {4}); }), 0);
}

TEST(AllocationTest, RunIntoAllocatesNothingAfterTheFirstBind) {
  aicf::Executable exe = aicf::Executable::load(aicf_test::save(aicf_test::mlp(), "allocation"), {2, ""});
  std::vector<aicf::Tensor> tensors;
  std::vector<std::vector<aicf::TensorView>> inputs, outputs;
  for (const int64_t batch : {1, 17, 64}) {
    tensors.push_back(aicf_test::pattern({batch, 16}, batch));
    inputs.push_back({tensors.back()});
    tensors.emplace_back(aicf::DType::f32, std::vector<int64_t>{batch, 8});
    outputs.push_back({tensors.back()});
  }
  const auto run_all = [&] {
    for (size_t i = 0; i < inputs.size(); ++i) exe.run_into(inputs[i], outputs[i]);
  };
  EXPECT_GT(allocations_in(run_all), 0) << "the first bind allocates";
  EXPECT_EQ(allocations_in([&] {
              for (int i = 0; i < 50; ++i) run_all();
            }),
            0);
}

TEST(AllocationTest, StatesAreUpdatedWithoutAllocating) {
  aicf::Executable exe = aicf::Executable::load(aicf_test::save(aicf_test::counter(), "allocation_states"));
  const aicf::Tensor x = aicf_test::pattern({4}, 1), before(aicf::DType::f32, {4});
  const std::vector<aicf::TensorView> inputs{x}, outputs{before};
  exe.run_into(inputs, outputs);
  EXPECT_EQ(allocations_in([&] { exe.run_into(inputs, outputs); }), 0);
}

TEST(AllocationTest, TheCFunctionAllocatesNothing) {
  aicf_executable* exe = nullptr;
  ASSERT_EQ(aicf_load(aicf_test::save(aicf_test::mlp(), "allocation_c").c_str(), 1, &exe), AICF_OK)
      << aicf_last_error();
  float x[2 * 16] = {}, y[2 * 8];
  const int64_t x_sizes[] = {2, 16}, y_sizes[] = {2, 8};
  const aicf_tensor input{x, AICF_DTYPE_f32, 2, x_sizes, nullptr},
      output{y, AICF_DTYPE_f32, 2, y_sizes, nullptr};
  ASSERT_EQ(aicf_run(exe, 0, &input, 1, &output, 1), AICF_OK) << aicf_last_error();
  aicf_status status = AICF_INTERNAL_ERROR;
  EXPECT_EQ(allocations_in([&] { status = aicf_run(exe, 0, &input, 1, &output, 1); }), 0);
  EXPECT_EQ(status, AICF_OK);
  aicf_free(exe);
}

}  // namespace

#endif  // AICF_NO_COUNTER
