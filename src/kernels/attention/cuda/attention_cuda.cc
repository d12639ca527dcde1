#include "kernels/attention/cuda/attention_cuda.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/attention/cuda/attention_simt.h"
#include "kernels/attention/cuda/attention_split.h"
#include "kernels/attention/cuda/attention_tiles.h"
#include "kernels/attention/cuda/rope_text.h"
#include "kernels/common/prologue.h"

namespace aicf {

namespace {

std::string traits(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionWay& way) {
  const bool simt = way.unit == AttentionUnit::kSimt;
  const int64_t unit = 16 / dtype_bytes(problem.inputs[0].dtype);
  const auto vector = [&](const CudaWindow& window, int64_t depth) {
    return has_vector_rows(window, unit) && (!simt || depth % unit == 0);
  };
  const CudaWindow& out = problem.outputs[0];
  std::string text = "struct Traits {\n  using Element = ";
  text += cuda_type(problem.inputs[0].dtype);
  text += ";\n  using Mask = ";
  text += sizes.has_mask ? cuda_type(problem.inputs[3].dtype) : "bool";
  text += ";\n" + constant("kHasMask", sizes.has_mask) +
          constant("kMaskPerKey", mask_is_per_key(problem, sizes, way)) + constant("kCausal", sizes.causal) +
          constant("kMaskUnit", sizes.has_mask ? mask_unit(problem.inputs[3], sizes.keys) : 1) +
          constant("kWindow", sizes.window) + constant("kDepth", sizes.depth) +
          constant("kValueDepth", sizes.value_depth) + constant("kScale", problem.fparams[0]) +
          constant("kSoftcap", problem.fparams[1]) + constant("kRows", int64_t{way.rows}) +
          constant("kKeys", int64_t{way.keys}) + constant("kHeadGroup", head_group(problem, sizes)) +
          constant("kVectorQ", vector(problem.inputs[0], sizes.depth)) +
          constant("kVectorK", vector(problem.inputs[1], sizes.depth)) +
          constant("kVectorV", vector(problem.inputs[2], sizes.value_depth)) +
          constant("kVectorOut", has_vector_rows(out, unit) && sizes.value_depth % unit == 0);
  if (simt)
    text += constant("kRowWarps", int64_t{way.row_warps}) + constant("kKeyWarps", int64_t{way.key_warps}) +
            constant("kRowLanes", int64_t{way.row_lanes}) +
            constant("kShared", simt_attention(problem, sizes, way).shares_buffer);
  return text + "};\n";
}

std::string call(const CudaProblem& problem, const AttentionSizes& sizes, CudaParams& params) {
  const auto size = [&](const Dim& dim) { return "int32_t(" + params.expr(dim) + ")"; };
  std::string text = "  const aicf::attention::Call<Traits> call{in0, in1, in2, ";
  text += sizes.has_mask ? "in3" : "nullptr";
  text += problem.outputs.size() > 1 ? ", out0, out1,\n      " : ", out0, nullptr,\n      ";
  for (size_t i = 0; i < 3; ++i) text += view(params, problem.inputs[i].strides) + ", ";
  text += view(params, sizes.has_mask ? mask_strides(problem.inputs[3]) : std::vector<Dim>(4, Dim(0))) + ", ";
  text += view(params, problem.outputs[0].strides) + ",\n      ";
  return text + size(sizes.heads) + ", " + size(sizes.group) + ", " + size(sizes.queries) + ", " +
         size(sizes.keys) + "};\n";
}

// ---- code ----

// What differs between units.
struct UnitText {
  const char* header;
  std::string name, body;
  int block;
};

std::string suffix(const CudaProblem& problem, const AttentionWay& way) {
  return "_" + std::string(dtype_name(problem.inputs[0].dtype)) + "_" + std::to_string(way.rows) + "x" +
         std::to_string(way.keys);
}

// Whether parts go to the workspace.
bool combines(const AttentionSizes& sizes, const AttentionWay& way) {
  return way.unit == AttentionUnit::kSplit && way.cluster == 0 && !is_single_tile(sizes, way);
}
// As split_parts.cuh counts them.
Dim part_count(const AttentionSizes& sizes, const AttentionPlan& plan) {
  const Dim keys(plan.way.keys), tiles(plan.tiles);
  if (sizes.window == 0) return max(ceildiv(sizes.keys, keys * tiles), Dim(1));
  const Dim first = max(sizes.keys - sizes.queries - Dim(sizes.window - 1), Dim(0));
  return ceildiv(max(ceildiv(sizes.keys, keys), Dim(1)) - floordiv(first, keys), tiles);
}
int launch_cluster(const AttentionWay& way) { return std::max(way.cluster, 1); }
std::string split_name(const AttentionSizes& sizes, const AttentionWay& way) {
  return way.cluster > 1 ? "kCluster" : combines(sizes, way) ? "kWorkspace" : "kSingle";
}

UnitText unit_of(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionPlan& plan) {
  const AttentionWay& way = plan.way;
  const bool roped = prologue_of(problem) != nullptr;
  const std::string name = suffix(problem, way), keys = std::to_string(way.keys);
  switch (way.unit) {
    case AttentionUnit::kSimt:
      return {"attention/cuda/simt.cuh", "attention_simt" + name, "attend_simt(call)",
              32 * way.row_warps * way.key_warps};
    case AttentionUnit::kMma:
      return {"attention/cuda/mma.cuh", "attention_mma" + name,
              "attend_mma<Traits, " + std::to_string(plan.warps) + ", " +
                  std::to_string(way.rows / plan.warps / 16) + ">(call)",
              32 * plan.warps};
    case AttentionUnit::kSplit:
      return {roped ? "attention/cuda/roped.cuh" : "attention/cuda/split.cuh",
              "attention_split" + name + (roped ? "_roped" : ""),
              "attend_split<Traits, " + keys + ", aicf::attention::Split::" + split_name(sizes, way) + ", " +
                  std::to_string(launch_cluster(way)) + ", " + std::to_string(plan.tiles) + ", " +
                  std::to_string(plan.stages) + ">(call, " +
                  (combines(sizes, way) ? "workspace" : "nullptr") + (roped ? ", rope)" : ")"),
              128};
    case AttentionUnit::kShort:
      return {"attention/cuda/short.cuh", "attention_short" + name, "attend_short(call, map0, map1, map2)",
              128};
    case AttentionUnit::kWgmma:
      return {"attention/cuda/wgmma.cuh", "attention_wgmma" + name,
              "attend_hopper(call, all_heads, {map0, map1, map2})", 128 * (way.rows / 64 + 1)};
  }
  AICF_CHECK(false, "an attention unit without a kernel");
}

// What a kernel with the rope as prologue reads before the launches before it have ended, by its numbers:
// caches, mask and position, if all of them are ready.
std::vector<int32_t> early_inputs(const CudaProblem& problem, const Prologue& prologue) {
  std::vector<int32_t> early;
  bool ready = prologue.problem->inputs[kRopePosition].ready;
  for (size_t i = 1; i < problem.inputs.size(); ++i) {
    early.push_back(static_cast<int32_t>(i));
    ready = ready && problem.inputs[i].ready;
  }
  early.push_back(prologue.inputs[kRopePosition]);
  return ready ? early : std::vector<int32_t>();
}

// Defines `rope` from the operands that the whole kernel has of the call.
std::string rope_text(const Prologue& prologue, bool early, CudaParams& params) {
  const auto names = [](const char* prefix, const std::vector<int32_t>& numbers) {
    std::vector<std::string> list;
    for (const int32_t number : numbers) list.push_back(prefix + std::to_string(number));
    return list;
  };
  std::string sizes = rope_sizes_text(*prologue.problem);
  sizes.back() = ',';
  return rope_operands_text(*prologue.problem, names("in", prologue.inputs), names("out", prologue.outputs),
                            params) +
         "  const aicf::attention::Roped" + sizes + (early ? " true," : " false,") +
         " Traits::Element> rope{o, error};\n";
}

std::string function_text(const CudaProblem& problem, const CudaLaunch& launch, bool workspace,
                          const std::string& call_text, const std::string& body, int min_blocks = 0) {
  return cuda_kernel_head(problem, launch, workspace, min_blocks) + call_text + "  aicf::attention::" + body +
         ";\n}\n";
}

// Blocks of a multiprocessor for which the compiler keeps registers; 0: as it likes.
int min_blocks(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionPlan& plan) {
  const AttentionUnit unit = plan.way.unit;
  if (unit == AttentionUnit::kSimt) return simt_attention(problem, sizes, plan.way).resident;
  if (unit == AttentionUnit::kSplit) return split_blocks_held(problem, sizes, plan);
  if (unit == AttentionUnit::kWgmma) return 1;
  return unit == AttentionUnit::kShort ? (short_width(sizes) == 32 ? 4 : 3) : 0;
}

std::vector<TensorMapSpec> tensor_maps(const AttentionSizes& sizes, const AttentionWay& way) {
  std::vector<TensorMapSpec> maps;
  if (way.unit != AttentionUnit::kWgmma && way.unit != AttentionUnit::kShort) return maps;
  const auto columns = static_cast<int32_t>(way.unit == AttentionUnit::kShort ? short_width(sizes) : 64);
  for (int32_t operand = 0; operand < 3; ++operand)
    maps.push_back({operand, {3, 2, 1, 0}, {columns, operand == 0 ? way.rows : way.keys, 1, 1}, 2 * columns});
  return maps;
}

}  // namespace

CudaCode attention_code(const CudaProblem& problem, const AttentionWay& way) {
  const AttentionSizes sizes = sizes_of(problem);
  const AttentionPlan plan = resolve(way, problem);
  const Prologue* prologue = prologue_of(problem);
  const UnitText unit = unit_of(problem, sizes, plan);
  const Dim heads = sizes.batch * sizes.heads;
  const bool split = way.unit == AttentionUnit::kSplit, uses_workspace = combines(sizes, way);

  CudaParams params;
  std::string call_text = call(problem, sizes, params);
  CudaLaunch launch;
  if (prologue != nullptr) {
    launch.early_inputs = early_inputs(problem, *prologue);
    call_text += rope_text(*prologue, !launch.early_inputs.empty(), params);
  }
  if (way.unit == AttentionUnit::kWgmma) call_text += all_heads(sizes, params);
  const CudaProblem& kernel = prologue != nullptr ? *prologue->kernel : problem;
  launch.function = unit.name;
  launch.block = unit.block;
  launch.shared_bytes = plan.shared_bytes;
  launch.params = params.dims();
  launch.reports_errors = prologue != nullptr;
  launch.grid[0] = heads * ceildiv(sizes.queries, Dim(way.rows));
  if (way.unit == AttentionUnit::kWgmma)
    launch.grid[0] = min(launch.grid[0], Dim(problem.machine.multiprocessors));
  launch.tensor_maps = tensor_maps(sizes, way);

  CudaCode code;
  if (way.unit == AttentionUnit::kMma || way.unit == AttentionUnit::kWgmma)
    code.compile_cost = kLongToCompile;
  code.source = "#include \"prelude.cuh\"\n#include \"" + std::string(unit.header) + "\"\n\n" +
                traits(problem, sizes, way) + "\n";
  if (split) {
    const Dim splits = uses_workspace ? part_count(sizes, plan) : Dim(launch_cluster(way));
    launch.cluster = launch_cluster(way);
    launch.grid[0] =
        sizes.batch * sizes.kv_heads * ceildiv(sizes.group * sizes.queries, Dim(way.rows)) * splits;
    if (uses_workspace)
      code.workspace_bytes =
          heads * sizes.queries * splits * Dim((padded_columns(sizes.value_depth) + 2) * 4);
  }
  code.source +=
      function_text(kernel, launch, uses_workspace, call_text, unit.body, min_blocks(problem, sizes, plan));
  code.launches.push_back(launch);
  if (uses_workspace) {
    CudaLaunch combine;
    combine.function = "attention_combine" + suffix(problem, way);
    combine.block = 128;
    combine.params = params.dims();
    combine.grid[0] = heads * sizes.queries;
    code.source += "\n" + function_text(kernel, combine, true, call_text,
                                        "combine_splits<Traits, " + std::to_string(way.keys) + ", " +
                                            std::to_string(plan.tiles) + ">(call, workspace)");
    code.launches.push_back(combine);
  }
  return code;
}

bool takes_rope(const CudaProblem& attention, const CudaProblem& rope) {
  constexpr double kMostGroup = 16;  // heads of one tile of rows
  const AttentionSizes sizes = sizes_of(attention);
  const AttentionWay way = attention_wgmma_way(attention);
  return sizes.window == 0 && way.unit == AttentionUnit::kSplit && !combines(sizes, way) &&
         sizes.queries == Dim(1) && sizes.most_group <= kMostGroup && attention.outputs.size() == 1 &&
         rope.replaces(5) && rope.replaces(6);
}

bool can_run_attention_half(const Problem& problem) {
  return can_attend_cuda(problem, 3, 1) &&
         (problem.inputs[0].dtype == DType::f16 || problem.inputs[0].dtype == DType::bf16);
}

bool can_run_attention_tf32(const Problem& problem) {
  return problem.params.size() > 3 && can_attend_cuda(problem, 3, 1) && problem.inputs[0].dtype == DType::f32;
}

bool can_run_attention_simt(const Problem& problem) {
  return problem.params.size() <= 3 && can_attend_cuda(problem, 3, 1) &&
         (can_run_attention_half(problem) || problem.inputs[0].dtype == DType::f32 ||
          problem.inputs[0].dtype == DType::f64);
}

CudaCode generate_attention_mma(const CudaProblem& problem) {
  return attention_code(problem, attention_way(problem, AttentionUnit::kMma));
}

}  // namespace aicf
