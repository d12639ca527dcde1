#include "runtime/bind_step.h"

#include <algorithm>
#include <numeric>

#include "base/byte_range.h"
#include "base/error.h"
#include "kernels/common/kernel.h"
#include "kernels/tile/tile_info.h"

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

bool may_overlap(const TensorArg& a, int64_t a_offset, const TensorArg& b, int64_t b_offset) {
  const auto extent_of = [](const TensorArg& arg, int64_t byte_offset) {
    ByteExtent extent(byte_offset, dtype_bytes(arg.dtype));
    for (int i = 0; i < arg.rank; ++i) extent.add_axis(arg.sizes[i], arg.strides[i]);
    return extent;
  };
  return may_overlap(extent_of(a, a_offset), extent_of(b, b_offset));
}

bool same_memory(const EntryPlan& entry, int32_t a, int32_t b) {
  if (a == b) return true;
  const Buffer &x = entry.buffers[static_cast<size_t>(a)], &y = entry.buffers[static_cast<size_t>(b)];
  return x.kind == BufferKind::kVariable && y.kind == BufferKind::kVariable && x.name == y.name;
}

// Whether an output with the same window may replace this input. A kernel that overwrites it says so; else an
// element must be read only before the output's element at the same index is written: operands of a region
// without reductions, and of the epilogue of a contraction, whose program counts the result itself as its
// first input. The code of a GPU variant was made for the plan beside it.
bool may_replace(const Step& step, const BoundCall& call, size_t input) {
  if (step.module >= 0) return true;
  const Kernel* kernel = find_kernel(step.kernel);
  if (kernel == nullptr) return false;
  if (kernel->overwrites(input)) return true;
  if (call.program == nullptr || !kernel->accepts_program) return false;
  if (kernel->family == "tile") {
    const auto& stages = call.program->stages;
    return stages.size() == 1 && std::none_of(stages[0].begin(), stages[0].end(), [](const TileInstr& instr) {
             return is_tile_reduction(instr.op) || instr.op == TileOp::store_scalar;
           });
  }
  return input + call.program->inputs.size() >= call.inputs.size() + 1;
}

bool same_window(const TensorArg& a, int64_t a_offset, const TensorArg& b, int64_t b_offset) {
  return a_offset == b_offset && a.dtype == b.dtype && a.rank == b.rank &&
         std::equal(a.sizes, a.sizes + a.rank, b.sizes) &&
         std::equal(a.strides, a.strides + a.rank, b.strides);
}

// Operands of a step by number, inputs first; `patches` ends with theirs.
class Operands {
 public:
  Operands(const EntryPlan& entry, int32_t step, const BoundCall& call,
           const std::vector<AddressPatch>& patches)
      : entry_(entry), step_(step), call_(call), patches_(&patches[patches.size() - count()]) {}

  size_t count() const { return call_.inputs.size() + call_.outputs.size(); }
  const Step& step() const { return entry_.steps[static_cast<size_t>(step_)]; }
  size_t output(size_t number) const { return call_.inputs.size() + number; }

  // The output `b` may share elements with `a` only where it replaces this input of its call.
  void check_apart(size_t a, size_t b, bool same_call) const {
    const bool in_place = same_call && a < call_.inputs.size() &&
                          same_window(arg(a), patches_[a].byte_offset, arg(b), patches_[b].byte_offset) &&
                          may_replace(step(), call_, a);
    if (!in_place && same_memory(entry_, patches_[a].buffer, patches_[b].buffer) &&
        may_overlap(arg(a), patches_[a].byte_offset, arg(b), patches_[b].byte_offset))
      fail(entry_, step_, "an output shares elements with another operand",
           "operand " + std::to_string(a) + " and " + std::to_string(b) + " of buffer " +
               std::to_string(patches_[b].buffer));
  }

 private:
  const TensorArg& arg(size_t i) const {
    return i < call_.inputs.size() ? call_.inputs[i] : call_.outputs[i - call_.inputs.size()];
  }
  const EntryPlan& entry_;
  int32_t step_;
  const BoundCall& call_;
  const AddressPatch* patches_;
};

// One call: its outputs against all its operands.
void check_call(const Operands& operands, const std::vector<size_t>& inputs,
                const std::vector<size_t>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (const size_t input : inputs) operands.check_apart(input, outputs[i], true);
    for (size_t j = 0; j < i; ++j) operands.check_apart(outputs[j], outputs[i], true);
  }
}

// Calls of one stage of a bundle run at the same time; those of different stages do not.
void check_bundle(const Operands& operands) {
  std::vector<std::vector<size_t>> inputs, outputs;
  for (const StepMember& member : operands.step().members) {
    inputs.emplace_back(member.inputs.begin(), member.inputs.end());
    outputs.emplace_back();
    for (const int32_t number : member.outputs)
      outputs.back().push_back(operands.output(static_cast<size_t>(number)));
    check_call(operands, inputs.back(), outputs.back());
  }
  const std::vector<StepMember>& members = operands.step().members;
  for (size_t a = 0; a < members.size(); ++a)
    for (size_t b = 0; b < members.size(); ++b) {
      if (a == b || members[a].stage != members[b].stage) continue;
      for (const size_t output : outputs[b])
        for (const auto* others : {&inputs[a], &outputs[a]})
          for (const size_t other : *others) operands.check_apart(other, output, false);
    }
}

void check_aliases(const Operands& operands, const BoundCall& call) {
  if (!operands.step().members.empty()) return check_bundle(operands);
  std::vector<size_t> inputs(call.inputs.size()), outputs(call.outputs.size());
  std::iota(inputs.begin(), inputs.end(), size_t{0});
  std::iota(outputs.begin(), outputs.end(), inputs.size());
  check_call(operands, inputs, outputs);
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

ByteRanges touched_arena(const EntryPlan& entry, const SymbolValues& sizes) {
  ByteRanges buffers, touched;
  for (const Buffer& buffer : entry.buffers)
    if (buffer.kind == BufferKind::kArena)
      // Sizes beyond max_bytes are refused when a step uses the buffer.
      buffers.emplace_back(buffer.offset,
                           std::clamp<int64_t>(evaluate(buffer.bytes, sizes), 0, buffer.max_bytes));
  std::sort(buffers.begin(), buffers.end());
  for (const auto& [first, bytes] : buffers) {
    if (touched.empty() || first > touched.back().first + touched.back().second) {
      touched.emplace_back(first, bytes);
    } else {
      int64_t& so_far = touched.back().second;
      so_far = std::max(so_far, first + bytes - touched.back().first);
    }
  }
  return touched;
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
  check_aliases({entry, step_index, call, patches}, call);
}

}  // namespace aicf
