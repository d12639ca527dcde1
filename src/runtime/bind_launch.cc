#include "runtime/bind_launch.h"

#include <cstring>

#include "base/error.h"

namespace aicf {
namespace {

UserError refused(const Step& step, const std::string& why) {
  return UserError(ErrorCode::kU_bad_artifact, why)
      .with_op(step.origin)
      .with_remedy("compile the model again");
}

uint64_t word_of(double value) {
  uint64_t word;
  std::memcpy(&word, &value, sizeof(word));
  return word;
}

// CUtensorMapDataType; -1: there is none.
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
      return -1;
  }
}

}  // namespace

BoundLaunch bind_launch(const Step& step, const CudaLaunch& launch, const SymbolValues& sizes) {
  constexpr int64_t kMaxGridX = INT32_MAX, kMaxGridYZ = 65535;
  BoundLaunch bound;
  for (size_t i = 0; i < bound.grid.size(); ++i) {
    const int64_t blocks = evaluate(launch.grid[i], sizes);
    if (blocks < 0 || blocks > (i == 0 ? kMaxGridX : kMaxGridYZ))
      throw refused(step, "a launch has more blocks than a grid can hold")
          .with_value(launch.function)
          .with_actual(std::to_string(blocks));
    bound.grid[i] = static_cast<uint32_t>(blocks);
  }
  for (const Dim& param : launch.params) bound.words.push_back(static_cast<uint64_t>(evaluate(param, sizes)));
  for (const double param : launch.fparams) bound.words.push_back(word_of(param));
  return bound;
}

const TensorArg& operand_of(const BoundCall& call, int32_t number) {
  const auto at = static_cast<size_t>(number);
  return at < call.inputs.size() ? call.inputs[at] : call.outputs[at - call.inputs.size()];
}

TensorMapGeometry tensor_map_geometry(const Step& step, const TensorMapSpec& spec, const BoundCall& call) {
  constexpr int64_t kMostSize = int64_t{1} << 32, kMostStride = int64_t{1} << 40, kStrideUnit = 16;
  const TensorArg& arg = operand_of(call, spec.operand);
  TensorMapGeometry map;
  map.dtype = map_dtype(arg.dtype);
  if (map.dtype < 0)
    throw refused(step, "a tensor map is of a type without one")
        .with_actual(std::string(dtype_name(arg.dtype)));
  map.rank = static_cast<uint32_t>(spec.axes.size());
  map.swizzle = spec.swizzle_bytes == 32    ? 1
                : spec.swizzle_bytes == 64  ? 2
                : spec.swizzle_bytes == 128 ? 3
                                            : 0;
  for (size_t i = 0; i < spec.axes.size(); ++i) {
    const auto axis = static_cast<size_t>(spec.axes[i]);
    const int64_t size = arg.sizes[axis], stride = arg.strides[axis] * dtype_bytes(arg.dtype);
    if (size < 1 || size > kMostSize)
      throw refused(step, "a tensor map's axis has a size out of range").with_actual(std::to_string(size));
    if (i > 0 && (stride < 0 || stride >= kMostStride || stride % kStrideUnit != 0))
      throw refused(step, "a tensor map's axis has a stride that the copy engine cannot take")
          .with_actual(std::to_string(stride) + " bytes");
    map.sizes[i] = static_cast<uint64_t>(size);
    if (i > 0) map.strides[i - 1] = static_cast<uint64_t>(stride);
    map.steps[i] = spec.steps.empty() ? 1 : static_cast<uint32_t>(spec.steps[i]);
    map.box[i] = static_cast<uint32_t>(spec.box[i]) * map.steps[i];
  }
  return map;
}

std::optional<LibraryCall> bound_library_call(const EntryPlan& entry, const Step& step) {
  if (step.library.call.empty()) return std::nullopt;
  const std::optional<LibraryCall> call = parse_library_call(step.library.call);
  const int64_t workspace =
      step.library.workspace < 0
          ? 0
          : entry.buffers[static_cast<size_t>(step.library.workspace)].bytes.constant().value_or(0);
  if (!call || workspace_bytes(*call) > workspace)
    throw refused(step, "a step's library call is malformed").with_actual(step.library.call);
  return call;
}

void check_launches(const EntryPlan& entry, const Step& step, const BoundCall& call,
                    const SymbolValues& sizes) {
  bound_library_call(entry, step);
  for (const CudaLaunch& launch : step.launches) {
    if (bind_launch(step, launch, sizes).empty()) continue;
    for (const TensorMapSpec& spec : launch.tensor_maps) tensor_map_geometry(step, spec, call);
  }
}

}  // namespace aicf
