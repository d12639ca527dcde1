#include "kernels/matmul/cuda/matmul_operands.h"

#include <algorithm>

#include "kernels/common/product_group.h"
#include "kernels/matmul/cuda/matmul_cuda.h"

namespace aicf {
namespace {

// b<axis>: the batch's index along each axis.
std::string batch_indices(const MatmulView& a) {
  std::string text;
  for (size_t axis = a.batch.size(); axis-- > 0;) {
    const std::string number = std::to_string(axis), size = "uint32_t(size" + number + ")";
    text += "    const uint32_t b" + number + " = " + (axis == 0 ? "batch;\n" : "batch % " + size + ";\n");
    if (axis > 0) text += "    batch /= " + size + ";\n";
  }
  return text;
}

// strides: the operand whose these are.
std::string matrix_function(const MatmulView& a, const std::string& name, const std::string& strides) {
  std::string text = "  __device__ __forceinline__ const Element* " + name + "_of(uint32_t batch) const {\n" +
                     batch_indices(a) + "    return " + name;
  for (size_t axis = 0; axis < a.batch.size(); ++axis)
    text += " + b" + std::to_string(axis) + " * " + strides + "_stride" + std::to_string(axis);
  return text + ";\n  }\n";
}

// `k`: where the load begins, in elements.
std::string load_function(const MatmulView& a, const std::string& name, const MatmulOperand& operand,
                          const std::string& load, const std::string& map, const std::string& k) {
  std::string text = "  __device__ __forceinline__ void load_" + name +
                     "(const CUtensorMap* map, uint32_t to, uint32_t barrier, int k, int other, uint32_t "
                     "batch) const {\n" +
                     batch_indices(a) + "    aicf::" + load + "(" + map + ", to, barrier, " +
                     (operand.panels    ? "0, other, k / " + std::to_string(kPanelDepth)
                      : operand.along_k ? k + ", other"
                                        : "other, " + k);
  for (size_t axis = a.batch.size(); axis-- > 0;)
    if (operand.batch[axis] != Dim(0)) text += ", int(b" + std::to_string(axis) + ")";
  return text + ");\n  }\n";
}

// Of a group, whose products have tensor maps of their own.
std::string map_pointers(const ProductGroup& group, bool is_y) {
  std::string list;
  for (size_t i = 0; i < group.products.size(); ++i)
    list += (i == 0 ? "{&map" : ", &map") + std::to_string(2 * i + (is_y ? 1 : 0));
  return list + "}";
}

// Where a group's sums of x go.
std::string sum_pointers(const ProductGroup& group) {
  std::string list;
  for (const ProductGroup::Operands& product : group.products)
    list += (list.empty() ? "{" : ", ") +
            (product.x_sums < 0 ? std::string("nullptr") : "out" + std::to_string(product.x_sums));
  return list + "}";
}

// One tile has all rows of x.
bool reads_y_once(const CudaProblem& problem, const MatmulView& a, const MatmulWay& way) {
  return largest(a.m, ranges_of(problem)) <= way.block_m &&
         std::none_of(a.y.batch.begin(), a.y.batch.end(), [](const Dim& s) { return s == Dim(0); });
}

std::string flag_text(const std::string& name, bool value) {
  return "  static constexpr bool " + name + " = " + (value ? "true;\n" : "false;\n");
}

// Axes of the window that the batch moves along, innermost first.
std::vector<int32_t> map_batch_axes(const CudaProblem& problem, const MatmulView& a, const CudaWindow& window,
                                    const MatmulOperand& operand) {
  std::vector<int32_t> axes;
  // Axes of size 1 are gone from a.batch: walk both from the inside.
  const Shape& result = problem.outputs[0].sizes;
  const size_t missing = result.size() - window.sizes.size();
  size_t batch = a.batch.size();
  for (size_t axis = result.size() - 2; axis-- > 0;) {
    if (is_one(result[axis])) continue;
    --batch;
    if (operand.batch[batch] != Dim(0)) axes.push_back(static_cast<int32_t>(axis - missing));
  }
  return axes;
}

// What the products of a group have each: tensor maps, and where sums of x go.
void add_group(MatmulOperandsText& operands, const ProductGroup& group) {
  const std::string count = "[" + std::to_string(group.products.size()) + "];\n";
  for (const bool is_y : {false, true}) {
    operands.text += std::string("  const CUtensorMap* ") + (is_y ? "y" : "x") + "_maps" + count;
    operands.make += ", " + map_pointers(group, is_y);
  }
  if (!group.x_sums) return;
  const std::string type(cuda_type(*group.x_sums));
  operands.text += flag_text("kSumsX", true) +
                   "  static constexpr uint32_t kColumnsWithSums = " + std::to_string(kColumnsWithSums) +
                   ";\n  using Ones = MultiplyOnes;\n  using SumOfX = " + type + ";\n  " + type +
                   "* sums_of_x" + count + "  __device__ __forceinline__ " + type +
                   "* x_sums(uint32_t batch) const { return aicf::picked(sums_of_x, batch); }\n";
  operands.make += ", " + sum_pointers(group);
}

// The second matrix of a dual GEMM.
void add_other_matrix(MatmulOperandsText& operands, const CudaProblem& problem, const MatmulWay& way) {
  const bool wgmma = is_wgmma(way);
  operands.text += "  const " + std::string(cuda_type(problem.inputs[2].dtype)) + "* y1;\n";
  operands.make += ", in2";
  if (!wgmma) return;
  operands.text += "  const CUtensorMap* y1_map;\n";
  operands.make += ", &map2";
}

// What sliced.cuh asks: constants, or members where members of other sizes share the code.
void add_early_flags(MatmulOperandsText& operands, const CudaProblem& problem, const MatmulView& a,
                     const MatmulWay& way, CudaParams& params) {
  const EarlyOperands early = early_operands(problem, way);
  const std::pair<const char*, bool> flags[] = {
      // Whether rows start at multiples of 16 bytes and their elements are neighbours.
      {"x_vectors", a.x.vector},
      {"y_vectors", a.y.vector},
      // Whether they are read before the launch before has ended; others: of the epilogue.
      {"x_early", early.x},
      {"y_early", early.y},
      {"others_early", early.others}};
  for (const auto& [name, value] : flags) {
    if (has_any_sizes(problem)) {
      operands.text += std::string("  bool ") + name + ";\n";
      operands.make += ", " + params.param(Dim(value ? 1 : 0)) + " != 0";
    } else {
      operands.text += flag_text(name, value);
    }
  }
}

// How matrices and tiles are found.
std::string functions_text(const CudaProblem& problem, const MatmulView& a, const MatmulWay& way) {
  std::string text = matrix_function(a, "x", "x") + matrix_function(a, "y", "y");
  if (is_dual_gemm(problem)) text += flag_text("kDualGemm", true) + matrix_function(a, "y1", "y");
  // Whether the epilogue's groups of columns never reach beyond the last column.
  text += flag_text("kWholeGroups", divides(a.n, kEpilogueGroup));
  // Rows that start at multiples of one or two elements: by eight columns a warp would store single elements
  // that lie far apart.
  if ((has_tensor_maps(way) || way.unit == MatmulUnit::mma || has_whole_products(way) || is_direct(way)) &&
      !is_dual_gemm(problem) && !divides(a.n, 4))
    text += "  static constexpr int kStoredColumns = " + std::string(divides(a.n, 2) ? "2" : "1") + ";\n";
  // Whether every tile lies inside the result: its epilogue then is one straight piece of code.
  text += flag_text("kWholeTiles", !has_any_sizes(problem) &&
                                       divides(a.m, int64_t{way.block_m} * multicast_blocks(way)) &&
                                       divides(a.n, tile_columns(problem, way)));
  if (has_tensor_maps(way)) {
    const auto map = [&](const char* maps) {
      return product_group(problem) != nullptr ? "aicf::picked(" + std::string(maps) + ", batch)"
                                               : std::string("map");
    };
    const int64_t counted = *counted_depth(Dim(1), problem.inputs[0].dtype).constant();
    const std::string k = counted == 1 ? "k" : "k / " + std::to_string(counted);
    text += load_function(a, "x", a.x, "load_box", map("x_maps"), k);
    const int sharers = multicast_blocks(way);
    const std::string load = sharers > 1                     ? "send_box<" + std::to_string(sharers) + ">"
                             : reads_y_once(problem, a, way) ? "load_box_once"
                                                             : "load_box";
    text += load_function(a, "y", a.y, load, map("y_maps"), k);
    if (is_dual_gemm(problem)) text += load_function(a, "y1", a.y, load, "map", k);
  }
  return text;
}

}  // namespace

EarlyOperands early_operands(const CudaProblem& problem, const MatmulWay& way) {
  if (!is_sliced(way) || product_group(problem) != nullptr) return {};
  const auto ready = [](const CudaWindow& window) { return window.ready; };
  return {problem.inputs[0].ready, problem.inputs[1].ready,
          std::all_of(problem.inputs.begin() + 2, problem.inputs.end(), ready)};
}

std::vector<int32_t> EarlyOperands::early_inputs(size_t inputs) const {
  std::vector<int32_t> early;
  for (size_t i = 0; i < inputs; ++i)
    if (i == 0 ? x && y && others : i == 1 ? y : others) early.push_back(static_cast<int32_t>(i));
  return early;
}

MatmulOperandsText matmul_operands_text(const CudaProblem& problem, const MatmulView& a, const MatmulWay& way,
                                        CudaParams& params) {
  const std::string index = fits_int32(a, ranges_of(problem)) ? "int32_t" : "int64_t";
  MatmulOperandsText operands{"struct Operands : aicf::MatmulOperands<" +
                                  std::string(cuda_type(problem.inputs[0].dtype)) + ", " + index + "> {\n",
                              "{{in0, in1"};
  const Dim k = has_tensor_maps(way) ? counted_depth(a.k, problem.inputs[0].dtype) : a.k;
  for (const Dim& dim : {a.m, a.n, k, a.x.row, a.x.column, a.y.row, a.y.column})
    operands.make += ", " + index + "(" + params.param(dim) + ")";
  operands.make += "}";
  const auto member = [&](const std::string& name, const Dim& dim) {
    operands.text += "  int64_t " + name + ";\n";
    operands.make += ", " + params.param(dim);
  };
  member("batches", a.batches());
  for (size_t axis = 0; axis < a.batch.size(); ++axis) {
    const std::string number = std::to_string(axis);
    member("size" + number, a.batch[axis]);
    member("x_stride" + number, a.x.batch[axis]);
    member("y_stride" + number, a.y.batch[axis]);
  }
  if (is_dual_gemm(problem)) add_other_matrix(operands, problem, way);
  if (const ProductGroup* group = product_group(problem)) add_group(operands, *group);
  if (is_sliced(way)) add_early_flags(operands, problem, a, way, params);
  operands.make += "}";
  operands.text += functions_text(problem, a, way) + "};\n";
  return operands;
}

TensorMapSpec matmul_map(const CudaProblem& problem, const MatmulView& a, int operand, int block,
                         int sharers) {
  const CudaWindow& window = problem.inputs[static_cast<size_t>(operand)];
  const MatmulOperand& own = operand == 0 ? a.x : a.y;
  const auto rank = static_cast<int32_t>(window.sizes.size());
  const int32_t k_axis = operand == 0 ? rank - 1 : rank - 2, other = operand == 0 ? rank - 2 : rank - 1;
  const auto depth = static_cast<int32_t>(per(kStageBytes, window.dtype));
  if (own.panels) return {operand, {2, 1, 0}, {depth, block / sharers, 1}, 128};
  TensorMapSpec map{operand, {k_axis, other}, {depth, block / sharers}, 128};
  if (!own.along_k) {
    map.axes = {other, k_axis};
    map.box = {depth, depth / sharers};
  }
  for (const int32_t axis : map_batch_axes(problem, a, window, own)) {
    map.axes.push_back(axis);
    map.box.push_back(1);
  }
  return map;
}

}  // namespace aicf
