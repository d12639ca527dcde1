#include "kernels/attention/cuda/attention_backward_cuda.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/attention/cuda/attention_backward_simt.h"
#include "kernels/attention/cuda/attention_simt_tiles.h"
#include "kernels/attention/cuda/attention_text.h"

namespace aicf {
namespace {

enum Input : size_t { kQ, kK, kV, kOut, kDout, kMask };  // and last the sums, if the forward pass leaves them
enum Output : size_t { kDq, kDk, kDv };

constexpr int64_t kPaddedRows = 128;  // of the numbers of each head's rows

bool has_sums(const CudaProblem& problem, const AttentionSizes& sizes) {
  return problem.inputs.size() > (sizes.has_mask ? kMask + 1 : size_t{kMask});
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

// `tile`: members that the unit adds. It reads rows by `elements` at a time.
std::string backward_traits(const CudaProblem& problem, const AttentionSizes& sizes, int64_t elements,
                            const std::string& tile) {
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
          constant("kScale", problem.fparams[0]) + constant("kSoftcap", problem.fparams[1]) + tile +
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

constexpr int64_t kNumberRows =
    32;  // of a block of the first launch of backward_simt.cuh, where it has no tile

std::string simt_traits(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionWay& way,
                        const SimtBackward& simt) {
  const std::string tile =
      constant("kMaskPerKey", backward_mask_is_per_key(problem, sizes)) +
      constant("kMaskUnit", sizes.has_mask ? mask_unit(problem.inputs[kMask], sizes.keys) : 1) +
      constant("kOwn", int64_t{way.rows}) + constant("kOthers", int64_t{way.keys}) +
      constant("kOwnWarps", int64_t{way.row_warps}) + constant("kOtherWarps", int64_t{way.key_warps}) +
      constant("kOwnLanes", int64_t{way.row_lanes}) + constant("kStages", int64_t{simt.stages}) +
      constant("kOddRows", simt.odd_rows) + constant("kNumberRows", kNumberRows);
  return backward_traits(problem, sizes, 16 / dtype_bytes(problem.inputs[kQ].dtype), tile);
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

namespace {

// Level and `along` of every row.
Dim number_bytes(const CudaProblem& problem, const AttentionSizes& sizes) {
  return sizes.batch * sizes.heads * ceildiv(sizes.queries, Dim(kPaddedRows)) *
         Dim(2 * kPaddedRows * sum_bytes(problem));
}

std::string launch_text(const CudaProblem& problem, const CudaLaunch& launch, int min_blocks,
                        const std::string& call_text, const std::string& body) {
  return cuda_kernel_head(problem, launch, true, min_blocks) + call_text + "  aicf::attention::" + body +
         ";\n}\n";
}

CudaCode simt_code(const CudaProblem& problem, const AttentionSizes& sizes) {
  const auto* named = std::get_if<AttentionWay>(&problem.way);
  AICF_CHECK(named == nullptr || simt_backward_fits(problem, sizes, *named),
             "gradients of attention that cannot run so: " + to_string(problem.way));
  const AttentionWay way = named != nullptr ? *named : simt_backward_ways(problem, sizes).front();
  const SimtBackward simt = simt_backward(problem, sizes, way);
  const bool sums = has_sums(problem, sizes);
  const std::string suffix = "_simt_" + std::string(dtype_name(problem.inputs[kQ].dtype)) + "_" +
                             std::to_string(way.rows) + "x" + std::to_string(way.keys);
  CudaParams params;
  const std::string call_text = backward_call(problem, sizes, params) + all_heads(sizes, params);
  const std::string kv_heads = "int32_t(" + params.expr(sizes.kv_heads) + ")";
  const Dim heads = sizes.batch * sizes.heads, kv_all = sizes.batch * sizes.kv_heads, own(way.rows);
  CudaLaunch numbers, gradients;
  numbers.function = "attention_numbers" + suffix;
  numbers.grid[0] = heads * ceildiv(sizes.queries, sums ? Dim(kNumberRows) : own);
  gradients.function = "attention_gradients" + suffix;
  gradients.grid[0] = kv_all * ceildiv(sizes.keys, own) + heads * ceildiv(sizes.queries, own);
  gradients.block = 32 * way.row_warps * way.key_warps;
  numbers.block = sums ? 8 * kNumberRows : gradients.block;
  gradients.shared_bytes = simt.shared_bytes;
  numbers.shared_bytes = sums ? 0 : simt.shared_bytes;
  numbers.params = gradients.params = params.dims();
  CudaCode code;
  code.workspace_bytes = number_bytes(problem, sizes);
  code.source = "#include \"prelude.cuh\"\n#include \"attention/cuda/backward_simt.cuh\"\n\n" +
                simt_traits(problem, sizes, way, simt) + "\n" +
                launch_text(problem, numbers, sums ? 0 : simt.resident, call_text,
                            "attention_numbers_simt(call, workspace, all_heads)") +
                "\n" +
                launch_text(problem, gradients, simt.resident, call_text,
                            "attention_gradients_simt(call, workspace, " + kv_heads + ", all_heads)");
  code.launches = {numbers, gradients};
  return code;
}

CudaCode wgmma_code(const CudaProblem& problem, const AttentionSizes& sizes) {
  const HopperSizes hopper = hopper_sizes(sizes);
  const std::string suffix =
      "_wgmma_" + std::string(dtype_name(problem.inputs[kQ].dtype)) + "_" + std::to_string(kPaddedRows);
  CudaParams params;
  const std::string call_text = backward_call(problem, sizes, params) + all_heads(sizes, params);
  const std::string kv_heads = "int32_t(" + params.expr(sizes.kv_heads) + ")";
  const Dim most(problem.machine.multiprocessors);
  CudaLaunch dq, dkv;
  dq.function = "attention_dq" + suffix;
  dq.grid[0] = min(sizes.batch * sizes.heads * ceildiv(sizes.queries, Dim(kPaddedRows)), most);
  dkv.function = "attention_dkv" + suffix;
  dkv.grid[0] = min(sizes.batch * sizes.kv_heads * ceildiv(sizes.keys, Dim(kPaddedRows)), most);
  dq.block = dkv.block = 384;
  dq.shared_bytes = hopper.dq_bytes;
  dkv.shared_bytes = hopper.dkv_bytes;
  dq.params = dkv.params = params.dims();
  add_maps(dq, 128, 128);
  add_maps(dkv, static_cast<int32_t>(hopper.step), 128);
  const std::string maps = "all_heads, {map0, map1, map2, map3})";
  CudaCode code;
  code.compile_cost = kLongToCompile;
  code.workspace_bytes = number_bytes(problem, sizes);
  code.source =
      "#include \"prelude.cuh\"\n#include \"attention/cuda/backward_wgmma.cuh\"\n\n" +
      backward_traits(problem, sizes, 8, constant("kRows", kPaddedRows) + constant("kKeys", kPaddedRows)) +
      "\n" + launch_text(problem, dq, 1, call_text, "attention_dq_hopper(call, workspace, " + maps) + "\n" +
      launch_text(problem, dkv, 1, call_text,
                  "attention_dkv_hopper(call, workspace, " + kv_heads + ", " + maps);
  code.launches = {dq, dkv};
  return code;
}

}  // namespace

CudaCode attention_backward_code(const CudaProblem& problem, BackwardUnit unit) {
  const AttentionSizes sizes = sizes_of(problem);
  return unit == BackwardUnit::kSimt ? simt_code(problem, sizes) : wgmma_code(problem, sizes);
}

// Halves run so only where no matrix units take them, in one way.
std::vector<KernelVariant> attention_backward_simt_variants(const CudaProblem& problem) {
  constexpr double kStart = 3400;
  std::vector<KernelVariant> variants;
  if (dtype_bytes(problem.inputs[kQ].dtype) < 4) return variants;
  const AttentionSizes sizes = sizes_of(problem);
  for (const AttentionWay& way : simt_backward_ways(problem, sizes))
    variants.push_back({way, (kStart + simt_backward_cycles(problem, sizes, way)) / kCyclesPerMicrosecond});
  return variants;
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
