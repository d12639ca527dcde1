#include "kernels/attention/cuda/attention_backward_cuda.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/attention/cuda/attention_text.h"

namespace aicf {
namespace {

enum Input : size_t { kQ, kK, kV, kOut, kDout, kMask };  // and last the sums, if the forward pass leaves them
enum Output : size_t { kDq, kDk, kDv };

constexpr int64_t kPaddedRows = 128;                // of the numbers of each head's rows
constexpr int64_t kLeastShared = shared_limit(86);  // of all architectures: the order must not depend on them

int64_t accumulator_bytes(const CudaProblem& problem) {
  return problem.inputs[kQ].dtype == DType::f64 ? 8 : 4;
}

bool has_sums(const CudaProblem& problem, const AttentionSizes& sizes) {
  return problem.inputs.size() > (sizes.has_mask ? kMask + 1 : size_t{kMask});
}

// As backward_simt.cuh lays it out, with tiles of `size` rows and keys.
int64_t backward_simt_shared(const CudaProblem& problem, const AttentionSizes& sizes, int64_t size) {
  const int64_t bytes = accumulator_bytes(problem), unit = 16 / bytes;
  const auto stride = [&](int64_t columns) { return ((columns + unit - 1) / unit | 1) * unit; };
  const int64_t depth = stride(sizes.depth), value_depth = stride(sizes.value_depth);
  return bytes * size * (depth + value_depth + std::max(depth, value_depth) + stride(size));
}

// Short sequences have smaller tiles: all keys and rows are still in one, so that the order is the same.
int64_t simt_size(const CudaProblem& problem, const AttentionSizes& sizes) {
  const double longest = std::max(sizes.most_queries, sizes.most_keys);
  int64_t size = 64;
  while (size > 16 && (backward_simt_shared(problem, sizes, size) > kLeastShared ||
                       longest <= static_cast<double>(size / 2)))
    size /= 2;
  return size;
}

// As backward_dq.cuh and backward_dkv.cuh lay it out.
struct HopperSizes {
  int64_t step, dq_bytes, dkv_bytes;
};

HopperSizes hopper_sizes(const AttentionSizes& sizes) {
  constexpr int64_t kAlign = 1024, kHalf = 128 * 128, kStages = 3, kBarriers = 20 * 8;
  const int64_t depth = (sizes.depth + 63) / 64, value_depth = (sizes.value_depth + 63) / 64;
  const int64_t halves = depth + value_depth, tiles = (halves > 2 ? 1 : 2) * halves * kHalf;
  const int64_t dq_halves =
      halves > 2 ? 3 * depth + 2 * value_depth : 4 * halves;  // of keys and values on their way
  HopperSizes hopper{};
  hopper.step = halves > 2 ? 64 : 128;
  hopper.dq_bytes = kAlign + tiles + dq_halves * kHalf + kBarriers;
  hopper.dkv_bytes = kAlign + tiles + kStages * hopper.step * (halves * 128 + 8) + kBarriers;
  return hopper;
}

std::string backward_traits(const CudaProblem& problem, const AttentionSizes& sizes, BackwardUnit unit) {
  const bool simt = unit == BackwardUnit::kSimt;
  const int64_t elements = simt ? 16 / dtype_bytes(problem.inputs[kQ].dtype) : 8;
  const int64_t rows = simt ? simt_size(problem, sizes) : kPaddedRows;
  const auto vector = [&](const CudaWindow& window, int64_t depth) {
    return has_vector_rows(window, elements) && depth % elements == 0;
  };
  std::string text = "struct Traits {\n  using Element = ";
  text += cuda_type(problem.inputs[kQ].dtype);
  text += ";\n  using Mask = ";
  text += sizes.has_mask ? cuda_type(problem.inputs[kMask].dtype) : "bool";
  text += ";\n" + constant("kHasMask", sizes.has_mask) + constant("kHasSums", has_sums(problem, sizes)) +
          constant("kCausal", sizes.causal) + constant("kWindow", sizes.window) +
          constant("kDepth", sizes.depth) + constant("kValueDepth", sizes.value_depth) +
          constant("kScale", problem.fparams[0]) + constant("kSoftcap", problem.fparams[1]) +
          constant("kRows", rows) + constant("kKeys", rows) +
          constant("kHeadGroup", head_group(problem, sizes)) +
          constant("kVectorQ", vector(problem.inputs[kQ], sizes.depth)) +
          constant("kVectorK", vector(problem.inputs[kK], sizes.depth)) +
          constant("kVectorV", vector(problem.inputs[kV], sizes.value_depth)) +
          constant("kVectorDout", vector(problem.inputs[kDout], sizes.value_depth)) +
          constant("kVectorResult", vector(problem.inputs[kOut], sizes.value_depth)) +
          constant("kVectorDq", vector(problem.outputs[kDq], sizes.depth)) +
          constant("kVectorDk", vector(problem.outputs[kDk], sizes.depth)) +
          constant("kVectorDv", vector(problem.outputs[kDv], sizes.value_depth));
  return text + "};\n";
}

std::string backward_call(const CudaProblem& problem, const AttentionSizes& sizes, CudaParams& params) {
  const auto size = [&](const Dim& dim) { return "int32_t(" + params.expr(dim) + ")"; };
  const auto in = [&](Input input) { return view(params, problem.inputs[input].strides); };
  const auto out = [&](Output output) { return view(params, problem.outputs[output].strides); };
  const std::vector<Dim> mask =
      sizes.has_mask ? mask_strides(problem.inputs[kMask]) : std::vector<Dim>(4, Dim(0));
  return "  const aicf::attention::BackwardCall<Traits> call{{in0, in1, in2, " +
         std::string(sizes.has_mask ? "in5" : "nullptr") + ", nullptr, nullptr,\n      " + in(kQ) + ", " +
         in(kK) + ", " + in(kV) + ", " + view(params, mask) + ", " + in(kOut) + ",\n      " +
         size(sizes.heads) + ", " + size(sizes.group) + ", " + size(sizes.queries) + ", " + size(sizes.keys) +
         "},\n      in3, in4, " +
         (has_sums(problem, sizes) ? "in" + std::to_string(problem.inputs.size() - 1) : "nullptr") +
         ", out0, out1, out2, " + in(kDout) + ", " + out(kDq) + ", " + out(kDk) + ", " + out(kDv) + "};\n";
}

void add_maps(CudaLaunch& launch, int32_t rows, int32_t keys) {
  for (const auto& [operand, box] :
       {std::pair{kQ, rows}, std::pair{kK, keys}, std::pair{kV, keys}, std::pair{kDout, rows}})
    launch.tensor_maps.push_back({static_cast<int32_t>(operand), {3, 2, 1, 0}, {64, box, 1, 1}, 128});
}

}  // namespace

BackwardUnit attention_backward_unit(const CudaProblem& problem) {
  const AttentionSizes sizes = sizes_of(problem);
  const DType dtype = problem.inputs[kQ].dtype;
  const bool half = dtype == DType::f16 || dtype == DType::bf16;
  const bool plain = !sizes.has_mask && problem.fparams[0] > 0 && problem.fparams[1] == 0;
  const int64_t least = std::min(sizes.depth, sizes.value_depth),
                most = std::max(sizes.depth, sizes.value_depth);
  if (problem.arch != 90 || !half || !plain || least < 32 || most > 128) return BackwardUnit::kSimt;
  for (const Input input : {kQ, kK, kV, kDout})
    if (!has_tensor_map(problem, problem.inputs[input])) return BackwardUnit::kSimt;
  return BackwardUnit::kWgmma;
}

CudaCode attention_backward_code(const CudaProblem& problem, BackwardUnit unit) {
  const AttentionSizes sizes = sizes_of(problem);
  const bool simt = unit == BackwardUnit::kSimt;
  const HopperSizes hopper = hopper_sizes(sizes);
  const int64_t size = simt ? simt_size(problem, sizes) : kPaddedRows;
  const std::string suffix = std::string(simt ? "_simt_" : "_wgmma_") +
                             std::string(dtype_name(problem.inputs[kQ].dtype)) + "_" + std::to_string(size);
  CudaParams params;
  const std::string call_text =
      backward_call(problem, sizes, params) + (simt ? "" : all_heads(sizes, params));
  const std::string kv_heads = "int32_t(" + params.expr(sizes.kv_heads) + ")";
  CudaLaunch dq, dkv;
  dq.function = "attention_dq" + suffix;
  dq.grid[0] = sizes.batch * sizes.heads * ceildiv(sizes.queries, Dim(size));
  dkv.function = "attention_dkv" + suffix;
  dkv.grid[0] = sizes.batch * sizes.kv_heads * ceildiv(sizes.keys, Dim(size));
  if (!simt)
    for (CudaLaunch* launch : {&dq, &dkv})
      launch->grid[0] = min(launch->grid[0], Dim(problem.machine.multiprocessors));
  dq.block = dkv.block = simt ? 256 : 384;
  dq.shared_bytes = simt ? backward_simt_shared(problem, sizes, size) : hopper.dq_bytes;
  dkv.shared_bytes = simt ? dq.shared_bytes : hopper.dkv_bytes;
  dq.params = dkv.params = params.dims();
  if (!simt) {
    add_maps(dq, 128, 128);
    add_maps(dkv, static_cast<int32_t>(hopper.step), 128);
  }
  const std::string maps = simt ? ");\n}\n" : ", all_heads, {map0, map1, map2, map3});\n}\n",
                    unit_name = simt ? "_simt" : "_hopper";
  CudaCode code;
  if (!simt) code.compile_cost = kLongToCompile;
  code.workspace_bytes = sizes.batch * sizes.heads * ceildiv(sizes.queries, Dim(kPaddedRows)) *
                         Dim(2 * kPaddedRows * accumulator_bytes(problem));
  code.source = "#include \"prelude.cuh\"\n#include \"attention/cuda/backward" +
                std::string(simt ? "_simt" : "_wgmma") + ".cuh\"\n\n" +
                backward_traits(problem, sizes, unit) + "\n" + cuda_kernel_head(problem, dq, true, 1) +
                call_text + "  aicf::attention::attention_dq" + unit_name + "(call, workspace" + maps + "\n" +
                cuda_kernel_head(problem, dkv, true, 1) + call_text + "  aicf::attention::attention_dkv" +
                unit_name + "(call, workspace, " + kv_heads + maps;
  code.launches = {dq, dkv};
  return code;
}

bool can_run_attention_backward_simt(const Problem& problem) {
  return problem.params.size() <= 3 && can_attend_cuda(problem, 5, 3) && is_float(problem.inputs[kQ].dtype);
}
bool can_run_attention_backward_half(const Problem& problem) {
  const DType dtype = problem.inputs.empty() ? DType::f32 : problem.inputs[kQ].dtype;
  return (dtype == DType::f16 || dtype == DType::bf16) && can_attend_cuda(problem, 5, 3);
}

CudaCode generate_attention_backward_simt(const CudaProblem& problem) {
  return attention_backward_code(problem, BackwardUnit::kSimt);
}
CudaCode generate_attention_backward_wgmma(const CudaProblem& problem) {
  return attention_backward_code(problem, attention_backward_unit(problem));
}

}  // namespace aicf
