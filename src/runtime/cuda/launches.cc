#include "runtime/cuda/launches.h"

#include <algorithm>
#include <cstring>

#include "base/dynamic_library.h"
#include "base/error.h"

namespace aicf::cuda {
namespace {

constexpr int64_t kMaxGridX = INT32_MAX, kMaxGridYZ = 65535;
constexpr int kPortableCluster = 8;
constexpr int64_t kStaticSharedLimit = 48 * 1024;  // beyond it a function must be told

uint64_t word_of(double value) {
  uint64_t word;
  std::memcpy(&word, &value, sizeof(word));
  return word;
}

// CUtensorMapDataType
int map_dtype(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 6;
    case DType::f32:
      return 7;
    case DType::f64:
      return 8;
    case DType::bf16:
      return 9;
    case DType::u8:
    case DType::i8:
    case DType::boolean:
      return 0;
    case DType::i16:
      return 1;
    case DType::i32:
      return 3;
    case DType::i64:
      return 5;
    default:
      break;
  }
  AICF_CHECK(false, "a dtype without a tensor map type");
}

int swizzle_code(int32_t bytes) { return bytes == 32 ? 1 : bytes == 64 ? 2 : bytes == 128 ? 3 : 0; }

TensorMap encode_map(const TensorMapSpec& spec, const TensorArg& arg) {
  TensorMap map;
  uint64_t sizes[5], strides[5];
  uint32_t box[5], steps[5];
  const size_t rank = spec.axes.size();
  for (size_t i = 0; i < rank; ++i) {
    const auto axis = static_cast<size_t>(spec.axes[i]);
    sizes[i] = static_cast<uint64_t>(arg.sizes[axis]);
    if (i > 0) strides[i - 1] = static_cast<uint64_t>(arg.strides[axis] * dtype_bytes(arg.dtype));
    // The driver counts elements passed over.
    steps[i] = spec.steps.empty() ? 1 : static_cast<uint32_t>(spec.steps[i]);
    box[i] = static_cast<uint32_t>(spec.box[i]) * steps[i];
  }
  constexpr int kPromoteTo256Bytes = 3;
  AICF_CUDA(driver().tensor_map_encode(&map, map_dtype(arg.dtype), static_cast<uint32_t>(rank), arg.data,
                                       sizes, strides, box, steps, 0, swizzle_code(spec.swizzle_bytes),
                                       kPromoteTo256Bytes, 0));
  return map;
}

}  // namespace

Launches::Launches(std::shared_ptr<DeviceContext> context, const Plan& plan, const EntryPlan& entry,
                   const Modules& modules, const SymbolValues& sizes)
    : context_(std::move(context)),
      entry_(entry),
      calls_(entry.steps.size()),
      kernels_of_step_(entry.steps.size()),
      addresses_(entry.buffers.size(), nullptr) {
  errors_ = std::make_unique<MappedMemory>(context_, sizeof(DeviceError) * (entry.steps.size() + 1));
  for (size_t i = 0; i < entry.steps.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    bind_step(plan, entry, index, sizes, calls_[i], patches_);
    if (add_library(entry.steps[i], index)) continue;
    if (entry.steps[i].launches.empty())
      throw UserError(ErrorCode::kU_bad_artifact, "a step of a CUDA plan launches nothing")
          .with_op(entry.steps[i].origin);
    for (const CudaLaunch& launch : entry.steps[i].launches)
      add(entry.steps[i], index, launch, modules, sizes);
  }
  std::stable_sort(patches_.begin(), patches_.end(),
                   [](const AddressPatch& a, const AddressPatch& b) { return a.buffer < b.buffer; });
}

void Launches::add(const Step& step, int32_t index, const CudaLaunch& launch, const Modules& modules,
                   const SymbolValues& sizes) {
  Kernel kernel;
  kernel.step = index;
  kernel.cluster = launch.cluster;
  bool empty = false;
  for (size_t i = 0; i < 3; ++i) {
    const int64_t blocks = evaluate(launch.grid[i], sizes);
    if (blocks < 0 || blocks > (i == 0 ? kMaxGridX : kMaxGridYZ))
      throw UserError(ErrorCode::kU_bad_artifact, "a launch has more blocks than a grid can hold")
          .with_op(step.origin)
          .with_value(launch.function)
          .with_actual(std::to_string(blocks));
    empty = empty || blocks == 0;
    kernel.node.grid[i] = static_cast<unsigned>(blocks);
  }
  if (empty) return;
  kernel.node.func = modules.function(step.module, launch.function);
  kernel.node.block[0] = static_cast<unsigned>(launch.block);
  kernel.node.shared_bytes = static_cast<unsigned>(launch.shared_bytes);
  if (launch.shared_bytes > kStaticSharedLimit)
    AICF_CUDA(driver().function_set_attribute(kernel.node.func, kMaxDynamicShared,
                                              static_cast<int>(launch.shared_bytes)));
  if (launch.cluster > kPortableCluster)
    AICF_CUDA(driver().function_set_attribute(kernel.node.func, kNonPortableCluster, 1));

  auto arguments = std::make_unique<Arguments>();
  arguments->launch = &launch;
  const size_t operands = step.inputs.size() + step.outputs.size();
  arguments->words.resize(operands);
  for (const Dim& param : launch.params)
    arguments->words.push_back(static_cast<uint64_t>(evaluate(param, sizes)));
  for (double param : launch.fparams) arguments->words.push_back(word_of(param));
  const size_t words = arguments->words.size();
  if (launch.reports_errors)
    arguments->words.push_back(errors_->device() + sizeof(DeviceError) * static_cast<size_t>(index));
  arguments->maps.resize(launch.tensor_maps.size());
  for (size_t i = 0; i < words; ++i) arguments->pointers.push_back(&arguments->words[i]);
  for (TensorMap& map : arguments->maps) arguments->pointers.push_back(&map);
  if (launch.reports_errors) arguments->pointers.push_back(&arguments->words.back());
  kernel.node.params = arguments->pointers.data();
  kernels_of_step_[static_cast<size_t>(index)].push_back(kernels_.size());
  kernels_.push_back(kernel);
  arguments_.push_back(std::move(arguments));
}

// False if the step's own kernels are to run.
bool Launches::add_library(const Step& step, int32_t index) {
  if (step.library.call.empty() || !vendor_libraries_allowed()) return false;
  const auto call = parse_library_call(step.library.call);
  const int64_t workspace =
      step.library.workspace < 0
          ? 0
          : entry_.buffers[static_cast<size_t>(step.library.workspace)].bytes.constant().value_or(0);
  const BoundCall& bound = calls_[static_cast<size_t>(index)];
  if (!call || workspace_bytes(*call) > workspace)
    throw UserError(ErrorCode::kU_bad_artifact, "a step's library call is malformed")
        .with_op(step.origin)
        .with_actual(step.library.call)
        .with_remedy("compile the model again");
  Kernel kernel;
  kernel.step = index;
  kernel.library = open_library_routine(*call, bound, step.origin);
  if (kernel.library == nullptr) return false;
  kernels_of_step_[static_cast<size_t>(index)].push_back(kernels_.size());
  kernels_.push_back(std::move(kernel));
  arguments_.push_back(nullptr);
  return true;
}

void Launches::enqueue(Kernel& kernel, StreamHandle stream) {
  const BoundCall& call = calls_[static_cast<size_t>(kernel.step)];
  const int32_t workspace = step(kernel).library.workspace;
  kernel.library->enqueue(call, workspace < 0 ? nullptr : address(workspace), stream);
}

Graph Launches::capture(Kernel& kernel) {
  StreamHandle stream = nullptr;
  AICF_CUDA(driver().stream_create(&stream, kStreamNonBlocking));
  Graph graph = nullptr;
  try {
    AICF_CUDA(driver().stream_begin_capture(stream, kCaptureRelaxed));
    enqueue(kernel, stream);
    AICF_CUDA(driver().stream_end_capture(stream, &graph));
  } catch (...) {
    Graph broken = nullptr;
    driver().stream_end_capture(stream, &broken);
    if (broken != nullptr) driver().graph_destroy(broken);
    driver().stream_destroy(stream);
    throw;
  }
  driver().stream_destroy(stream);
  return graph;
}

void Launches::encode_maps(Arguments& arguments, int32_t step) {
  const BoundCall& call = calls_[static_cast<size_t>(step)];
  const auto inputs = static_cast<int32_t>(call.inputs.size());
  for (size_t i = 0; i < arguments.maps.size(); ++i) {
    const TensorMapSpec& spec = arguments.launch->tensor_maps[i];
    const TensorArg& arg = spec.operand < inputs ? call.inputs[static_cast<size_t>(spec.operand)]
                                                 : call.outputs[static_cast<size_t>(spec.operand - inputs)];
    if (arg.data != nullptr) arguments.maps[i] = encode_map(spec, arg);
  }
}

void Launches::set_address(int32_t buffer, std::byte* address) {
  if (addresses_[static_cast<size_t>(buffer)] == address) return;
  addresses_[static_cast<size_t>(buffer)] = address;
  auto at = std::lower_bound(patches_.begin(), patches_.end(), buffer,
                             [](const AddressPatch& p, int32_t b) { return p.buffer < b; });
  for (; at != patches_.end() && at->buffer == buffer; ++at) {
    BoundCall& call = calls_[static_cast<size_t>(at->step)];
    const auto operand = static_cast<size_t>(at->operand);
    TensorArg& arg = (at->output ? call.outputs : call.inputs)[operand];
    arg.data = address == nullptr ? nullptr : address + at->byte_offset;
    const size_t word = operand + (at->output ? call.inputs.size() : 0);
    for (size_t index : kernels_of_step_[static_cast<size_t>(at->step)]) {
      kernels_[index].changed = true;
      if (arguments_[index] == nullptr) continue;
      arguments_[index]->words[word] = reinterpret_cast<uint64_t>(arg.data);
      encode_maps(*arguments_[index], at->step);
    }
  }
}

void Launches::report_errors() {
  auto* errors = static_cast<DeviceError*>(errors_->host());
  for (size_t i = 0; i < entry_.steps.size(); ++i) {
    if (errors[i].raised == 0) continue;
    const DeviceError error = errors[i];
    std::memset(errors, 0, sizeof(DeviceError) * entry_.steps.size());
    throw UserError(ErrorCode::kU_index_out_of_range, "an index in the data is out of range")
        .with_op(entry_.steps[i].origin)
        .with_expected("-" + std::to_string(error.bound) + " <= index < " + std::to_string(error.bound))
        .with_actual(std::to_string(error.value))
        .with_remedy("check the values of the inputs");
  }
}

}  // namespace aicf::cuda
