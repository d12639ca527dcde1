#include "runtime/bind_step.h"

#include <algorithm>

#include "base/error.h"

namespace aicf {
namespace {

// Far beyond any memory, and small enough that kernels may multiply two of them by an element size.
constexpr int64_t kMaxElements = int64_t{1} << 48, kMaxStride = int64_t{1} << 48;

[[noreturn]] void fail(const EntryPlan& entry, int32_t step, const std::string& what,
                       const std::string& actual) {
  throw UserError(ErrorCode::kU_bad_artifact, "the plan is not consistent: " + what)
      .with_op("step " + std::to_string(step) + " (" + entry.steps[static_cast<size_t>(step)].kernel +
               ") of entry " + entry.name)
      .with_actual(actual)
      .with_remedy("compile the model again");
}

// Kernels multiply sizes with each other and strides with element sizes, also those of axes that nothing
// walks along: all of these products must fit. A repeated axis counts too, because somebody walks it.
void check_extent(TensorArg& arg, const EntryPlan& entry, int32_t step) {
  int64_t count = 1;
  for (int i = 0; i < arg.rank; ++i) {
    count = checked_mul(count, std::max<int64_t>(arg.sizes[i], 1));
    if (count > kMaxElements) fail(entry, step, "a window has too many elements", std::to_string(count));
    if (arg.strides[i] >= -kMaxStride && arg.strides[i] <= kMaxStride) continue;
    if (arg.sizes[i] > 1)
      fail(entry, step, "a window has a stride out of range", std::to_string(arg.strides[i]));
    arg.strides[i] = 0;
  }
}

// Elements that a window touches, relative to its buffer's start.
void check_reach(const TensorArg& arg, int64_t offset, int64_t buffer_bytes, const EntryPlan& entry,
                 int32_t step) {
  int64_t lo = offset, hi = offset;
  for (int i = 0; i < arg.rank; ++i) {
    // Along a repeated axis even an empty domain may touch its one element: a reduction of nothing stores its
    // identity.
    if (arg.strides[i] == 0) continue;
    if (arg.sizes[i] == 0) return;
    const int64_t span = checked_mul(arg.sizes[i] - 1, arg.strides[i]);
    (span < 0 ? lo : hi) = checked_add(span < 0 ? lo : hi, span);
  }
  const int64_t bytes = dtype_bytes(arg.dtype);
  if (lo < 0 || checked_mul(checked_add(hi, 1), bytes) > buffer_bytes)
    fail(entry, step, "a window leaves its buffer",
         "elements " + std::to_string(lo) + ".." + std::to_string(hi) + " of " +
             std::to_string(buffer_bytes / bytes));
}

TensorArg bind_ref(const TensorRef& ref, const SymbolValues& sizes, const EntryPlan& entry, int32_t step,
                   int64_t& byte_offset) {
  TensorArg arg;
  arg.dtype = ref.dtype;
  arg.rank = static_cast<int>(ref.sizes.size());
  for (int i = 0; i < arg.rank; ++i) {
    arg.sizes[i] = evaluate(ref.sizes[static_cast<size_t>(i)], sizes);
    arg.strides[i] = evaluate(ref.strides[static_cast<size_t>(i)], sizes);
    if (arg.sizes[i] < 0) fail(entry, step, "a window has a negative size", std::to_string(arg.sizes[i]));
  }
  const int64_t offset = evaluate(ref.offset, sizes);
  const Buffer& buffer = entry.buffers[static_cast<size_t>(ref.buffer)];
  const int64_t bytes = evaluate(buffer.bytes, sizes);
  if (bytes < 0 || bytes > buffer.max_bytes)
    fail(entry, step, "a buffer is larger than planned", std::to_string(bytes) + " bytes");
  check_extent(arg, entry, step);
  check_reach(arg, offset, bytes, entry, step);
  // Where nothing is touched the offset was not checked and need not lie in the buffer.
  byte_offset = offset >= 0 && offset <= bytes / dtype_bytes(ref.dtype) ? offset * dtype_bytes(ref.dtype) : 0;
  return arg;
}

}  // namespace

void check_io_bytes(const EntryPlan& entry, const SymbolValues& sizes) {
  for (const auto* list : {&entry.inputs, &entry.outputs})
    for (const IoTensor& io : *list) {
      const std::vector<int64_t> shape = evaluate(io.sizes, sizes);
      const bool negative = std::any_of(shape.begin(), shape.end(), [](int64_t size) { return size < 0; });
      const int64_t bytes = checked_mul(element_count(shape), dtype_bytes(io.dtype));
      const int64_t planned = evaluate(entry.buffers[static_cast<size_t>(io.buffer)].bytes, sizes);
      if (negative || bytes != planned)
        throw UserError(ErrorCode::kU_bad_artifact,
                        "the plan is not consistent: an input or output and its buffer have different sizes")
            .with_op("'" + io.name + "' of entry " + entry.name)
            .with_expected(to_string(shape) + " = " + std::to_string(bytes) + " bytes")
            .with_actual(std::to_string(planned) + " bytes")
            .with_remedy("compile the model again");
    }
}

void bind_step(const Plan& plan, const EntryPlan& entry, int32_t step_index, const SymbolValues& sizes,
               BoundCall& call, std::vector<AddressPatch>& patches) {
  const Step& step = entry.steps[static_cast<size_t>(step_index)];
  for (const bool output : {false, true}) {
    const std::vector<TensorRef>& refs = output ? step.outputs : step.inputs;
    std::vector<TensorArg>& args = output ? call.outputs : call.inputs;
    for (size_t i = 0; i < refs.size(); ++i) {
      int64_t byte_offset = 0;
      args.push_back(bind_ref(refs[i], sizes, entry, step_index, byte_offset));
      patches.push_back({refs[i].buffer, step_index, output, static_cast<int32_t>(i), byte_offset});
    }
  }
  for (const Dim& param : step.params) call.params.push_back(evaluate(param, sizes));
  call.fparams = step.fparams;
  if (step.program >= 0) call.program = &plan.programs[static_cast<size_t>(step.program)];
}

}  // namespace aicf
