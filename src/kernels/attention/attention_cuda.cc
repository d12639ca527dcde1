#include "kernels/attention/attention_cuda.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "kernels/cuda_text.h"

namespace aicf {

namespace {

constexpr int64_t kMaxDepth = 256;
constexpr int64_t kMultiprocessors = 132;            // of the machine the choices were measured on
constexpr double kCachedBytes = 32.0 * 1024 * 1024;  // of keys and values that stay in its L2 cache
constexpr double kFewRows = 32;  // rows that share keys; up to here keys are split among blocks

// Sizes of a problem with their upper bounds.
struct Sizes {
  Dim batch, heads, kv_heads, queries, keys, group;
  int64_t depth, value_depth;
  double most_batch, most_heads, most_group, most_queries, most_keys;
  bool has_mask, causal;
};

const SymbolRanges& ranges_of(const CudaProblem& problem) {
  static const SymbolRanges none;
  return problem.ranges != nullptr ? *problem.ranges : none;
}

Sizes sizes_of(const CudaProblem& problem) {
  const Shape &q = problem.inputs[0].sizes, &k = problem.inputs[1].sizes, &v = problem.inputs[2].sizes;
  const auto most = [&](const Dim& dim) {
    return static_cast<double>(std::max<int64_t>(1, bounds(dim, ranges_of(problem)).hi));
  };
  Sizes sizes{q[0],       q[1],       k[1], q[2],       k[2],       Dim(1), 0,    0,
              most(q[0]), most(q[1]), 1,    most(q[2]), most(k[2]), false,  false};
  if (!(q[1] == k[1])) {
    const auto exact = divide_exactly(q[1], k[1]);
    sizes.group = exact ? *exact : floordiv(q[1], max(k[1], Dim(1)));
    sizes.most_group = most(sizes.group);
  }
  sizes.depth = q[3].require_constant("head depth");
  sizes.value_depth = v[3].require_constant("value depth");
  sizes.causal = problem.params[0].require_constant("causal") != 0;
  sizes.has_mask = problem.params[1].require_constant("has_mask") != 0;
  return sizes;
}

bool divisible(const Dim& dim, int64_t by) { return divide_exactly(dim, Dim(by)).has_value(); }

// Whether rows of the window start at multiples of `elements` and lie dense.
bool has_vector_rows(const CudaWindow& window, int64_t elements) {
  if (!(window.strides[3] == Dim(1)) || !divisible(window.offset, elements)) return false;
  return divisible(window.strides[0], elements) && divisible(window.strides[1], elements) &&
         divisible(window.strides[2], elements);
}

int64_t shared_limit(int arch) {
  if (arch >= 90) return 227 * 1024;
  return arch == 80 ? 163 * 1024 : 99 * 1024;
}

// Strides over [batch, head, query, key]; an axis of one element is repeated.
std::vector<Dim> mask_strides(const CudaWindow& mask) {
  std::vector<Dim> strides(4, Dim(0));
  const size_t rank = mask.sizes.size();
  for (size_t i = 0; i < rank; ++i)
    if (!(mask.sizes[i] == Dim(1))) strides[4 - rank + i] = mask.strides[i];
  return strides;
}

// Whether all rows of a tile have the same mask; with split keys they are rows of several heads.
bool is_per_key(const CudaProblem& problem, const Sizes& sizes, const AttentionTile& tile) {
  if (!sizes.has_mask) return false;
  const std::vector<Dim> strides = mask_strides(problem.inputs[3]);
  const bool one_head = tile.unit != AttentionUnit::kSplit || sizes.group == Dim(1) || strides[1] == Dim(0);
  return strides[2] == Dim(0) && one_head;
}

// ---- bytes of shared memory, as the .cuh lay it out ----

int64_t padded(int64_t columns) { return (columns + 15) / 16 * 16; }
int64_t half_row_bytes(int64_t columns) { return (padded(columns) + 8) * 2; }

int64_t simt_shared(const CudaProblem& problem, const Sizes& sizes, const AttentionTile& tile) {
  const int64_t bytes = problem.inputs[0].dtype == DType::f64 ? 8 : 4, unit = 16 / bytes;
  const auto stride = [&](int64_t columns) { return ((columns + unit - 1) / unit | 1) * unit; };
  return bytes *
         (tile.rows * stride(sizes.depth) + tile.keys * stride(std::max(sizes.depth, sizes.value_depth)) +
          tile.rows * stride(tile.keys));
}

int64_t shared_bytes(const CudaProblem& problem, const Sizes& sizes, const AttentionTile& tile) {
  const int64_t key_value = tile.keys * (half_row_bytes(sizes.depth) + half_row_bytes(sizes.value_depth));
  const int64_t queries = tile.rows * half_row_bytes(sizes.depth);
  switch (tile.unit) {
    case AttentionUnit::kSimt:
      return simt_shared(problem, sizes, tile);
    case AttentionUnit::kMma:
      return queries + key_value + (is_per_key(problem, sizes, tile) ? 2 * 4 * tile.keys : 0);
    case AttentionUnit::kSplit:
      return queries +
             std::max(tile.stages * key_value, 4 * 16 * 4 * (padded(sizes.value_depth) + 8) + 5 * 16 * 8);
    case AttentionUnit::kWgmma: {
      constexpr int64_t kHalf = 128 * 128, kAlign = 1024, kBarriers = 72;
      const int64_t depth = (sizes.depth + 63) / 64, value_depth = (sizes.value_depth + 63) / 64;
      return kAlign + tile.rows * 128 * depth + kHalf * 2 * (depth + value_depth) + kBarriers;
    }
  }
  return 0;
}

// ---- tiles ----

// What fits in 99 KiB, the least of all architectures: the order of accumulation must not depend on them.
AttentionTile simt_tile(const CudaProblem& problem, const Sizes& sizes) {
  const int64_t depth = std::max(sizes.depth, sizes.value_depth);
  AttentionTile tile{AttentionUnit::kSimt, 64, 64, 8};
  if (problem.inputs[0].dtype == DType::f64)
    tile.rows = tile.keys = depth <= 32 ? 64 : depth <= 128 ? 32 : 16;
  else if (depth > 128)
    tile.rows = tile.keys = 32;
  const double blocks = sizes.most_batch * sizes.most_heads * std::ceil(sizes.most_queries / tile.rows);
  while (tile.rows > 16 && (blocks < kMultiprocessors || sizes.most_queries <= tile.rows / 2)) {
    tile.rows /= 2;
    if (sizes.most_batch * sizes.most_heads * std::ceil(sizes.most_queries / tile.rows) >= kMultiprocessors)
      break;
  }
  return tile;
}

// Up to 2,048 keys a cluster's eight blocks hold one tile each, or two of half the size in turn: one launch.
// Longer sequences need more blocks than a cluster has.
AttentionTile split_tile(const CudaProblem& problem, const Sizes& sizes, int most_keys) {
  AttentionTile tile{AttentionUnit::kSplit, 16, most_keys, 4};
  if (sizes.most_keys <= most_keys) return tile;
  constexpr int kCluster = 8;
  const double clusters = sizes.most_batch * sizes.most_heads / sizes.most_group *
                          std::ceil(sizes.most_group * sizes.most_queries / 16);
  if (problem.arch >= 90 && sizes.most_keys <= 2048 && kCluster * clusters >= kMultiprocessors / 3.0) {
    tile.cluster = kCluster;
    if (sizes.most_keys <= kCluster * most_keys) return tile;
  }
  tile.keys = 64;
  if (tile.cluster == 1) tile.tiles = sizes.most_keys <= 2048 ? 1 : sizes.most_keys <= 8192 ? 4 : 8;
  if (tile.cluster > 1 || tile.tiles > 1) tile.stages = 2;
  if (shared_bytes(problem, sizes, tile) > shared_limit(problem.arch)) tile.stages = 1;
  return tile;
}

AttentionTile mma_tile(const CudaProblem& problem, const Sizes& sizes) {
  const int64_t depth = std::max(sizes.depth, sizes.value_depth);
  const double heads = sizes.most_batch * sizes.most_heads;
  const int most_keys = depth > 128 ? 64 : 128;  // that a block with few rows holds at once
  const bool is_short =
      sizes.most_keys <= most_keys && heads * std::ceil(sizes.most_queries / 64) < kMultiprocessors;
  if (is_short || sizes.most_group * sizes.most_queries <= kFewRows)
    return split_tile(problem, sizes, most_keys);
  AttentionTile tile{AttentionUnit::kMma, 64, 64, 4};
  if (sizes.most_keys <= 128 && sizes.most_keys > 64 && depth <= 64) tile.keys = 128;
  if (sizes.most_queries <= 32)
    tile.rows = 32, tile.warps = 2;
  else if (tile.keys == 64 && sizes.most_keys > 256 && depth <= 128 &&
           heads * std::ceil(sizes.most_queries / 128) >= 2 * kMultiprocessors)
    tile.rows = 128;
  return tile;
}

// Whether a tensor map can describe the window: sizes of at least one, positive strides of multiples of 16
// bytes.
bool has_tensor_map(const CudaProblem& problem, const CudaWindow& window) {
  if (!has_vector_rows(window, 8)) return false;
  for (size_t axis = 0; axis < 4; ++axis) {
    if (bounds(window.sizes[axis], ranges_of(problem)).lo < 1) return false;
    if (bounds(window.strides[axis], ranges_of(problem)).lo < 1) return false;
  }
  return true;
}

bool suits_wgmma(const CudaProblem& problem, const Sizes& sizes) {
  if (problem.arch != 90) return false;
  const int64_t least = std::min(sizes.depth, sizes.value_depth),
                most = std::max(sizes.depth, sizes.value_depth);
  if (least < 64 || most > 128 || sizes.most_queries < 256 || sizes.most_keys < 256) return false;
  if (sizes.most_batch * sizes.most_heads * std::ceil(sizes.most_queries / 128) < kMultiprocessors / 2)
    return false;
  for (size_t i = 0; i < 3; ++i)
    if (!has_tensor_map(problem, problem.inputs[i])) return false;
  return true;
}

// ---- text ----

std::string number(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

std::string constant(const char* name, int64_t value) {
  return std::string("  static constexpr int ") + name + " = " + std::to_string(value) + ";\n";
}
std::string constant(const char* name, bool value) {
  return std::string("  static constexpr bool ") + name + (value ? " = true;\n" : " = false;\n");
}
std::string constant(const char* name, double value) {
  return std::string("  static constexpr double ") + name + " = " + number(value) + ";\n";
}

int64_t head_group(const CudaProblem& problem, const Sizes& sizes) {
  const double bytes = sizes.most_keys * static_cast<double>(sizes.depth + sizes.value_depth) *
                       static_cast<double>(dtype_bytes(problem.inputs[0].dtype)) / sizes.most_group;
  return static_cast<int64_t>(std::clamp(kCachedBytes / bytes, 1.0, 65536.0));
}

std::string traits(const CudaProblem& problem, const Sizes& sizes, const AttentionTile& tile) {
  const bool simt = tile.unit == AttentionUnit::kSimt;
  const int64_t unit = simt ? 16 / dtype_bytes(problem.inputs[0].dtype) : 8;
  const auto vector = [&](const CudaWindow& window, int64_t depth) {
    return has_vector_rows(window, unit) && (!simt || depth % unit == 0);
  };
  const CudaWindow& out = problem.outputs[0];
  std::string text = "struct Traits {\n  using Element = ";
  text += cuda_type(problem.inputs[0].dtype);
  text += ";\n  using Mask = ";
  text += sizes.has_mask ? cuda_type(problem.inputs[3].dtype) : "bool";
  text += ";\n" + constant("kHasMask", sizes.has_mask) +
          constant("kMaskPerKey", is_per_key(problem, sizes, tile)) + constant("kCausal", sizes.causal) +
          constant("kDepth", sizes.depth) + constant("kValueDepth", sizes.value_depth) +
          constant("kScale", problem.fparams[0]) + constant("kSoftcap", problem.fparams[1]) +
          constant("kRows", int64_t{tile.rows}) + constant("kKeys", int64_t{tile.keys}) +
          constant("kHeadGroup", head_group(problem, sizes)) +
          constant("kVectorQ", vector(problem.inputs[0], sizes.depth)) +
          constant("kVectorK", vector(problem.inputs[1], sizes.depth)) +
          constant("kVectorV", vector(problem.inputs[2], sizes.value_depth)) +
          constant("kVectorOut", has_vector_rows(out, unit) && sizes.value_depth % unit == 0);
  return text + "};\n";
}

std::string view(CudaParams& params, const std::vector<Dim>& strides) {
  std::string text = "{";
  for (size_t i = 0; i < 4; ++i) text += (i > 0 ? ", " : "") + params.expr(strides[i]);
  return text + "}";
}

std::string call(const CudaProblem& problem, const Sizes& sizes, CudaParams& params) {
  const auto size = [&](const Dim& dim) { return "int32_t(" + params.expr(dim) + ")"; };
  std::string text = "  const aicf::attention::Call<Traits> call{in0, in1, in2, ";
  text += sizes.has_mask ? "in3" : "nullptr";
  text += ", out0, nullptr,\n      ";
  for (size_t i = 0; i < 3; ++i) text += view(params, problem.inputs[i].strides) + ", ";
  text += view(params, sizes.has_mask ? mask_strides(problem.inputs[3]) : std::vector<Dim>(4, Dim(0))) + ", ";
  text += view(params, problem.outputs[0].strides) + ",\n      ";
  return text + size(sizes.heads) + ", " + size(sizes.group) + ", " + size(sizes.queries) + ", " +
         size(sizes.keys) + "};\n";
}

// ---- code ----

// What differs between units.
struct Unit {
  const char* header;
  std::string name, body;
  int block;
};

std::string suffix(const CudaProblem& problem, const AttentionTile& tile) {
  return "_" + std::string(dtype_name(problem.inputs[0].dtype)) + "_" + std::to_string(tile.rows) + "x" +
         std::to_string(tile.keys);
}

bool is_single(const Sizes& sizes, const AttentionTile& tile) {
  return sizes.most_keys <= static_cast<double>(tile.keys);
}
// Whether parts go to the workspace.
bool combines(const Sizes& sizes, const AttentionTile& tile) {
  return tile.unit == AttentionUnit::kSplit && tile.cluster == 1 && !is_single(sizes, tile);
}
std::string split_name(const Sizes& sizes, const AttentionTile& tile) {
  return is_single(sizes, tile) ? "kSingle" : tile.cluster > 1 ? "kCluster" : "kWorkspace";
}

Unit unit_of(const CudaProblem& problem, const Sizes& sizes, const AttentionTile& tile) {
  const std::string name = suffix(problem, tile), keys = std::to_string(tile.keys);
  switch (tile.unit) {
    case AttentionUnit::kSimt:
      return {"attention/simt.cuh", "attention_simt" + name, "attend_simt(call)", 256};
    case AttentionUnit::kMma:
      return {"attention/mma.cuh", "attention_mma" + name,
              "attend_mma<Traits, " + std::to_string(tile.warps) + ", " +
                  std::to_string(tile.rows / tile.warps / 16) + ">(call)",
              32 * tile.warps};
    case AttentionUnit::kSplit:
      return {"attention/split.cuh", "attention_split" + name,
              "attend_split<Traits, " + keys + ", aicf::attention::Split::" + split_name(sizes, tile) + ", " +
                  std::to_string(tile.tiles) + ", " + std::to_string(tile.stages) + ">(call, " +
                  (combines(sizes, tile) ? "workspace)" : "nullptr)"),
              128};
    case AttentionUnit::kWgmma:
      return {"attention/wgmma.cuh", "attention_wgmma" + name, "attend_hopper(call, map0, map1, map2)",
              128 * (tile.rows / 64 + 1)};
  }
  AICF_CHECK(false, "an attention unit without a kernel");
}

std::string function_text(const CudaProblem& problem, const CudaLaunch& launch, bool workspace,
                          const std::string& call_text, const std::string& body) {
  return cuda_kernel_head(problem, launch, workspace, launch.tensor_maps.empty() ? 0 : 1) + call_text +
         "  aicf::attention::" + body + ";\n}\n";
}

}  // namespace

AttentionTile attention_tile(const CudaProblem& problem, AttentionUnit unit) {
  const Sizes sizes = sizes_of(problem);
  if (unit == AttentionUnit::kSimt) return simt_tile(problem, sizes);
  if (unit == AttentionUnit::kWgmma && suits_wgmma(problem, sizes))
    return {AttentionUnit::kWgmma, std::max(sizes.depth, sizes.value_depth) <= 64 ? 192 : 128, 128};
  return mma_tile(problem, sizes);
}

CudaCode attention_code(const CudaProblem& problem, const AttentionTile& tile) {
  const Sizes sizes = sizes_of(problem);
  const Unit unit = unit_of(problem, sizes, tile);
  const Dim heads = sizes.batch * sizes.heads;
  const bool split = tile.unit == AttentionUnit::kSplit, uses_workspace = combines(sizes, tile);

  CudaParams params;
  const std::string call_text = call(problem, sizes, params);
  CudaLaunch launch;
  launch.function = unit.name;
  launch.block = unit.block;
  launch.shared_bytes = shared_bytes(problem, sizes, tile);
  launch.params = params.dims();
  launch.grid[0] = heads * ceildiv(sizes.queries, Dim(tile.rows));
  AICF_CHECK(launch.shared_bytes <= shared_limit(problem.arch), "attention tile beyond shared memory");
  if (tile.unit == AttentionUnit::kWgmma)
    for (int32_t operand = 0; operand < 3; ++operand)
      launch.tensor_maps.push_back({operand, {3, 2, 1, 0}, {64, operand == 0 ? tile.rows : 128, 1, 1}, 128});

  CudaCode code;
  code.source = "#include \"prelude.cuh\"\n#include \"" + std::string(unit.header) + "\"\n\n" +
                traits(problem, sizes, tile) + "\n";
  if (split) {
    const Dim splits =
        uses_workspace ? max(ceildiv(sizes.keys, Dim(tile.keys * tile.tiles)), Dim(1)) : Dim(tile.cluster);
    launch.cluster = tile.cluster;
    launch.grid[0] =
        sizes.batch * sizes.kv_heads * ceildiv(sizes.group * sizes.queries, Dim(tile.rows)) * splits;
    if (uses_workspace)
      code.workspace_bytes = heads * sizes.queries * splits * Dim((padded(sizes.value_depth) + 2) * 4);
  }
  code.source += function_text(problem, launch, uses_workspace, call_text, unit.body);
  code.launches.push_back(launch);
  if (uses_workspace) {
    CudaLaunch combine;
    combine.function = "attention_combine" + suffix(problem, tile);
    combine.block = 128;
    combine.params = params.dims();
    combine.grid[0] = heads * sizes.queries;
    code.source += "\n" + function_text(problem, combine, true, call_text,
                                        "combine_splits<Traits, " + std::to_string(tile.keys * tile.tiles) +
                                            ">(call, workspace)");
    code.launches.push_back(combine);
  }
  return code;
}

namespace {

bool fits(const Problem& problem) {
  const auto& inputs = problem.inputs;
  if (inputs.size() < 3 || inputs.size() > 4 || problem.outputs.size() != 1) return false;
  const DType dtype = inputs[0].dtype;
  for (size_t i = 0; i < 3; ++i)
    if (inputs[i].dtype != dtype || inputs[i].sizes.size() != 4) return false;
  for (const Dim& depth : {inputs[0].sizes[3], inputs[2].sizes[3]}) {
    const auto value = depth.constant();
    if (!value || *value < 1 || *value > kMaxDepth) return false;
  }
  for (double value : problem.fparams)
    if (!std::isfinite(value)) return false;
  if (inputs.size() == 3) return true;
  const DType mask = inputs[3].dtype;
  return inputs[3].sizes.size() <= 4 && (mask == DType::boolean || mask == DType::f32 || mask == dtype);
}

}  // namespace

bool can_run_attention_half(const Problem& problem) {
  return fits(problem) && (problem.inputs[0].dtype == DType::f16 || problem.inputs[0].dtype == DType::bf16);
}

bool can_run_attention_simt(const Problem& problem) {
  return fits(problem) && (can_run_attention_half(problem) || problem.inputs[0].dtype == DType::f32 ||
                           problem.inputs[0].dtype == DType::f64);
}

CudaCode generate_attention_simt(const CudaProblem& problem) {
  return attention_code(problem, attention_tile(problem, AttentionUnit::kSimt));
}
CudaCode generate_attention_mma(const CudaProblem& problem) {
  return attention_code(problem, attention_tile(problem, AttentionUnit::kMma));
}
CudaCode generate_attention_wgmma(const CudaProblem& problem) {
  return attention_code(problem, attention_tile(problem, AttentionUnit::kWgmma));
}

}  // namespace aicf
