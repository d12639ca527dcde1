// The text and launches of one contraction, as its plan says.
#include <algorithm>

#include "base/error.h"
#include "kernels/common/cuda_text.h"
#include "kernels/common/product_group.h"
#include "kernels/common/prologue.h"
#include "kernels/matmul/cuda/matmul_cuda.h"
#include "kernels/matmul/cuda/matmul_operands.h"
#include "kernels/matmul/cuda/matmul_plan.h"
#include "kernels/matmul/cuda/wgmma_text.h"
#include "kernels/tile/cuda/tile_cuda.h"

namespace aicf {
namespace {

std::string_view accumulator(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "double";
    case DType::i64:
      return "int64_t";
    case DType::i32:
    case DType::i16:
    case DType::i8:
    case DType::u8:
      return "int32_t";
    default:
      return "float";
  }
}

// The result that is a sum over all rows.
size_t summed_output(const TileProgram& program) {
  for (const TileInstr& instr : program.stages[0])
    if (instr.op == TileOp::store_sum) return static_cast<size_t>(instr.operand) - program.inputs.size();
  AICF_CHECK(false, "a program without sums over rows");
}

enum class Role { kWhole, kPart, kSum };  // of a launch: no split or one in a cluster; parts; their sum

// Writes one contraction: its translation unit and launches.
class MatmulWriter {
 public:
  MatmulWriter(const CudaProblem& problem, const MatmulPlan& plan)
      : problem_(problem),
        plan_(plan),
        way_(plan.way),
        a_(plan.view),
        dtype_(problem.inputs[0].dtype),
        prologue_(prologue_of(problem)),
        group_(product_group(problem)) {}

  CudaCode write() {
    const CudaEpilogue epilogue = row_blocks(way_) > 0
                                      ? cuda_row_epilogue(problem_, kProductInputs, params_)
                                      : cuda_epilogue(problem_, product_inputs(problem_), params_);
    const MatmulOperandsText operands = matmul_operands_text(problem_, a_, way_, params_);
    const bool splits = sums_workspace(way_), sums = sums_rows(*problem_.program);
    CudaCode code;
    code.member = is_member(problem_) && (family_of(way_) == MatmulFamily::simt || is_sliced(way_));
    if (way_.unit != MatmulUnit::single && way_.unit != MatmulUnit::simt && !is_batched(way_))
      code.compile_cost = kLongToCompile;
    code.source = includes_text() + epilogue.text + operands.text + multiply_text();
    std::vector<std::string> bodies;
    for (const Role role : splits ? std::vector{Role::kPart, Role::kSum} : std::vector{Role::kWhole}) {
      CudaLaunch launch = launch_of(role);
      bodies.push_back(body_text(role, operands.make, epilogue.make, splits));
      launch.params = params_.dims();
      code.launches.push_back(launch);
    }
    if (sums) {
      bodies.push_back(column_sums_text());
      code.launches.push_back(column_sums_launch(code.launches[0]));
      code.workspace_bytes = sum_parts() * a_.n * Dim(4);
    }
    if (splits) code.workspace_bytes = parts() * Dim(plan_.result_bytes);
    for (size_t i = 0; i < bodies.size(); ++i)
      code.source += cuda_kernel_head(problem_of_head(), code.launches[i], splits || sums,
                                      i == 0 ? plan_.min_blocks : 0) +
                     bodies[i];
    return code;
  }

 private:
  std::string includes_text() const {
    return "#include \"matmul/cuda/" + header_name() + ".cuh\"\n" +
           (group_ != nullptr ? "#include \"matmul/cuda/grouped.cuh\"\n" : "") +
           (sums_x() ? wgmma_multiply_ones_text(dtype_, a_.x.along_k) : "");
  }
  // What makes x in the block, and the instructions of wgmma.
  std::string multiply_text() const {
    std::string text;
    if (prologue_ != nullptr) text += prologue_->text;
    if (plan_.keeps_x) text += wgmma_multiply_rs_text(dtype_, way_.block_n, a_.y.along_k);
    if (is_tf32x3(way_))
      text += wgmma_multiply_tf32_text(way_.block_n) + wgmma_multiply_tf32_text(way_.block_n, false);
    else if (is_tf32_wgmma())
      text += wgmma_multiply_tf32_text(way_.block_n);
    else if (is_wgmma(way_))
      text += wgmma_multiply_text(dtype_, way_.block_n, a_.x.along_k, a_.y.along_k);
    return text;
  }
  std::string body_text(Role role, const std::string& operands, const std::string& epilogue, bool workspace) {
    std::string text;
    // wgmma and slices wait after their set-up.
    if (!has_tensor_maps(way_) && !is_sliced(way_))
      text = "  aicf::wait_for_inputs();\n  aicf::launch_dependents();\n";
    text += "  const Operands operands = " + operands + ";\n";
    text += group_ != nullptr ? grouped_epilogue_text(epilogue)
                              : "  const Epilogue epilogue = " + epilogue + ";\n";
    if (plan_.keeps_x) text += make_text();
    if (role == Role::kSum && is_wgmma(way_))
      return text + "  " + kernel_type(role) + "::sum<" + std::to_string(plan_.sum_warps) +
             ">(operands, epilogue, workspace);\n}\n";
    return text + "  " + kernel_type(role) + "::run(" + run_arguments(workspace) + ");\n}\n";
  }
  // The problem whose operands are the launch's: of several products or with what makes x, all of them.
  const CudaProblem& problem_of_head() const {
    return prologue_ != nullptr ? *prologue_->kernel : group_ != nullptr ? *group_->kernel : problem_;
  }
  // Sums over all rows come in parts of 16, which a second launch adds: 32 columns to a block.
  static constexpr int kSumRows = 16, kSumThreads = 512, kSumColumns = 32;
  Dim sum_parts() const { return ceildiv(a_.m, Dim(kSumRows)); }
  CudaLaunch column_sums_launch(const CudaLaunch& first) {
    CudaLaunch launch;
    launch.function = first.function + "_sums";
    launch.block = kSumThreads;
    launch.grid[0] = ceildiv(a_.n, Dim(kSumColumns));
    launch.params = params_.dims();
    return launch;
  }
  std::string column_sums_text() {
    const size_t output = summed_output(*problem_.program);
    const CudaWindow& window = problem_.outputs[output];
    const std::string across = std::to_string(kSumColumns), n = "int64_t(" + params_.param(a_.n) + ")";
    return "  aicf::wait_for_inputs();\n  aicf::launch_dependents();\n  const int64_t c = "
           "int64_t(block_index) * " +
           across + " + threadIdx.x % " + across + ";\n  const float sum = aicf::tile::sum_column<" + across +
           ", " + std::to_string(kSumThreads / kSumColumns) + ">(static_cast<const float*>(workspace), int(" +
           params_.param(sum_parts()) + "), " + n + ", c);\n  if (threadIdx.x < " + across + " && c < " + n +
           ") out" + std::to_string(output) + "[c * " + params_.param(window.strides.back()) +
           "] = aicf::tile::narrowed<" + std::string(cuda_type(window.dtype)) + ">(sum);\n}\n";
  }

  std::string family_name() const {
    return family_of(way_) == MatmulFamily::simt  ? "simt"
           : family_of(way_) == MatmulFamily::mma ? "mma"
           : is_tf32x3(way_)                      ? "tf32x3"
           : is_batched(way_)                     ? "batched"
           : way_.unit == MatmulUnit::warp        ? "warp"
           : is_direct(way_)                      ? "direct"
                                                  : "wgmma";
  }
  std::string header_name() const {
    return row_blocks(way_) > 0              ? "row_epilogue"
           : plan_.keeps_x                   ? "wgmma_rs"
           : has_epilogue_warps(way_)        ? "wgmma_epilogue_warps"
           : is_sliced(way_)                 ? "sliced"
           : way_.unit == MatmulUnit::single ? "single"
           : way_.unit == MatmulUnit::warp   ? "warp_products"
           : is_tf32x3(way_)                 ? "wgmma_tf32x3"
           : is_tf32_wgmma()                 ? "wgmma_tf32"
                                             : family_name();
  }
  bool is_tf32_wgmma() const { return is_wgmma(way_) && dtype_ == DType::f32; }
  bool sums_x() const { return group_ != nullptr && group_->x_sums.has_value(); }

  std::string function_name() const {
    return "matmul_" + family_name() + "_" + std::string(dtype_name(dtype_)) + "_" +
           std::to_string(way_.block_m) + "x" + std::to_string(way_.block_n);
  }
  // In the workspace.
  Dim parts() const {
    return stream_blocks(way_) > 0 ? plan_.tiles + Dim(stream_blocks(way_))
                                   : plan_.tiles * Dim(split_parts(way_));
  }
  CudaLaunch sum_launch() const {
    CudaLaunch launch;
    launch.function = function_name() + "_sum";
    launch.block = 32 * plan_.sum_warps;
    launch.grid[0] = plan_.tiles * Dim(sum_blocks(way_));
    return launch;
  }
  CudaLaunch launch_of(Role role) const {
    if (role == Role::kSum) return sum_launch();
    const bool maps = has_tensor_maps(way_);
    CudaLaunch launch = is_wgmma(way_)    ? wgmma_launch(way_, plan_.wgmma, plan_.tiles)
                        : is_tf32x3(way_) ? tf32x3_launch(way_, plan_.wgmma, plan_.tiles)
                                          : CudaLaunch();
    launch.function = function_name();
    if (is_sliced(way_)) launch.function += "_sliced";
    if (row_blocks(way_) > 0) launch.function += "_row_reduction";
    if (multicast_blocks(way_) > 1) launch.function += "_multicast";
    if (stream_blocks(way_) > 0) launch.function += "_stream_k";
    if (plan_.dual) launch.function += "_dual";
    if (has_epilogue_warps(way_))
      launch.function += keeps_x_stationary(way_) ? "_stationary_x" : "_epilogue_warps";
    if (keeps_x_stationary(way_)) launch.grid[0] = ceildiv(a_.m, Dim(way_.block_m)) * Dim(plan_.row_blocks);
    if (plan_.keeps_x) {
      if (prologue_ != nullptr) launch.function += "_prologue";
      launch.tensor_maps = {matmul_map(problem_, a_, 1, way_.block_n)};
      return launch;
    }
    if (maps) {
      if (group_ != nullptr) launch.function += "_grouped";
      const bool whole_rows = keeps_x_stationary(way_) || is_tf32x3(way_);
      const int x_rows = whole_rows ? way_.block_m : plan_.wgmma.x_rows;
      for (const ProductGroup::Operands& product : products()) {
        launch.tensor_maps.push_back(matmul_map(problem_, a_, 0, x_rows));
        launch.tensor_maps.back().operand = product.inputs[0];
        launch.tensor_maps.push_back(matmul_map(problem_, a_, 1, plan_.tile_columns, multicast_blocks(way_)));
        launch.tensor_maps.back().operand = product.inputs[1];
      }
      if (plan_.dual) {
        launch.tensor_maps.push_back(matmul_map(problem_, a_, 2, plan_.tile_columns));
        if (!launch.early_inputs.empty()) launch.early_inputs.push_back(2);
      }
      return launch;
    }
    launch.block = plan_.threads;
    launch.early_inputs = early_operands(problem_, way_).early_inputs(problem_.inputs.size());
    launch.shared_bytes = plan_.shared_bytes;
    launch.grid[0] = plan_.tiles * Dim(split_parts(way_));
    if (splits_in_cluster(way_)) launch.cluster = split_parts(way_);
    return launch;
  }

  // Those of the launch.
  std::vector<ProductGroup::Operands> products() const {
    return group_ != nullptr ? group_->products : std::vector<ProductGroup::Operands>{{{0, 1}, {0}}};
  }

  // The first one's epilogue, made anew for the operands of each product.
  std::string grouped_epilogue_text(const std::string& make) const {
    std::string parameters, list;
    const auto named = [](const char* name, size_t i) { return name + std::to_string(i); };
    for (size_t i = kProductInputs; i < problem_.inputs.size(); ++i)
      parameters += "const auto* " + named("in", i) + ", ";
    for (size_t i = 0; i < problem_.outputs.size(); ++i)
      parameters += (i == 0 ? "auto* " : ", auto* ") + named("out", i);
    for (const ProductGroup::Operands& product : products()) {
      list += list.empty() ? "of(" : ", of(";
      for (size_t i = kProductInputs; i < product.inputs.size(); ++i)
        list += named("in", static_cast<size_t>(product.inputs[i])) + ", ";
      for (size_t i = 0; i < product.outputs.size(); ++i)
        list += (i == 0 ? "" : ", ") + named("out", static_cast<size_t>(product.outputs[i]));
      list += ")";
    }
    return "  const auto of = [&](" + parameters + ") { return " + make +
           "; };\n  const aicf::GroupedEpilogue<Epilogue, " + std::to_string(products().size()) +
           "> epilogue{{" + list + "}};\n";
  }

  std::string run_arguments(bool workspace) {
    if (way_.unit == MatmulUnit::single || has_whole_products(way_) || is_direct(way_))
      return "operands, epilogue, block_index";
    const Dim part_depth = has_tensor_maps(way_) ? counted_depth(plan_.part_depth, dtype_) : plan_.part_depth;
    const std::string depth = "Operands::Index(" + params_.param(part_depth) + ")";
    if (plan_.keeps_x) return "operands, &map0, epilogue, " + depth + ", make";
    if (has_tensor_maps(way_))
      return "operands, &map0, &map1, epilogue, " + depth + (workspace ? ", workspace" : "");
    if (is_sliced(way_)) return "operands, epilogue, " + depth + ", block_index";
    return "operands, epilogue, " + depth + (workspace ? ", workspace" : ", nullptr") +
           (family_of(way_) == MatmulFamily::simt ? ", block_index" : "");
  }

  // What wgmma_rs.cuh calls Make: a copy, or the member's blocks one after the other.
  std::string make_text() {
    if (prologue_ == nullptr) return "  const aicf::CopiedX<Operands> make{operands};\n";
    const Prologue& prologue = *prologue_;
    const CudaLaunch& launch = prologue.code.launches[0];
    std::string first, count = "uint32_t(" + params_.expr(launch.grid[0]) + ")",
                       call = prologue.function + "(";
    if (plan_.wgmma.own_part) {  // as many for every block, but where the last part of K is shorter
      const std::string piece = std::to_string(prologue.code.block_elements);
      first = "uint32_t(k_first) / " + piece + " + ";
      count = divides(a_.k, *plan_.part_depth.constant())
                  ? std::to_string(*plan_.part_depth.constant() / prologue.code.block_elements)
                  : "uint32_t(k_end - k_first + " + piece + " - 1) / " + piece;
    }
    call += first + "i";
    for (const int32_t number : prologue.inputs) call += ", in" + std::to_string(number);
    call += ", x";
    for (const Dim& param : launch.params) call += ", " + params_.expr(param);
    const std::string threads = std::to_string(launch.block);
    const std::string some = launch.block < kPrologueThreads ? "if (threadIdx.x < " + threads + ") " : "";
    // What one block leaves in shared memory of its own is free for the next when all threads have left it.
    const std::string barrier =
        prologue.code.static_shared_bytes > 0
            ? "if (i > 0) aicf::sync_threads<" + std::to_string(kPrologueThreads) + ">();\n"
            : "";
    return "  const auto make = [&](Operands::Element* x, int, int k_first, int k_end) {\n#pragma unroll\n"
           "    for (uint32_t i = 0; i < " +
           count + "; ++i) {\n" + barrier + some + call + ");\n    }\n  };\n";
  }

  // How simt.cuh loads, where it is not element by element.
  std::string vectors_text() const {
    const bool x = plan_.x_load != SimtLoad::element, y = plan_.y_load != SimtLoad::element;
    return x || y ? std::string(x ? ", true" : ", false") + (y ? ", true" : ", false") : "";
  }

  std::string kernel_type(Role role) const {
    const auto number = [](int v) { return std::to_string(v); };
    const auto flag = [](bool v) { return std::string(v ? "true" : "false"); };
    const std::string split = role == Role::kSum        ? "kSum"
                              : role == Role::kPart     ? "kWorkspace"
                              : splits_in_cluster(way_) ? "kCluster"
                                                        : "kNone";
    const std::string tile = number(way_.block_m) + ", " + number(plan_.tile_columns) + ", ";
    const std::string layouts = flag(a_.x.along_k) + ", " + flag(a_.y.along_k) + ", ";
    const std::string split_text = "aicf::Split::" + split + ", " + number(split_parts(way_));
    const std::string last = split_text + ">";
    if (is_sliced(way_)) {
      const std::string name = family_of(way_) == MatmulFamily::simt ? "SimtSlice<" : "Tf32Slice<";
      return "aicf::SlicedMatmul<aicf::" + name + tile + flag(a_.x.along_k) + ", " + flag(a_.y.along_k) +
             ">, " + tile + number(way_.stages) + ", " + number(way_.slices) + ", aicf::Split::" + split +
             ", " + number(split_parts(way_)) + ">";
    }
    if (is_tf32x3(way_)) return tf32x3_type_text(way_, plan_.wgmma);
    if (is_batched(way_))
      return "aicf::BatchedMatmul<" + std::string(accumulator(dtype_)) + ", " + tile + number(plan_.depth) +
             ", " + number(way_.batches) + ", " + layouts + flag(a_.x.vector) + ", " + flag(a_.y.vector) +
             ">";
    if (is_direct(way_))
      return "aicf::DirectMatmul<" + std::string(cuda_type(dtype_)) + ", " + number(way_.block_m) + ", " +
             number(way_.slices) + ", " + flag(a_.x.vector) + ", " + flag(a_.y.vector) + ">";
    if (way_.unit == MatmulUnit::warp)
      return "aicf::WarpProducts<" + std::string(cuda_type(dtype_)) + ", " + number(way_.block_m) + ", " +
             number(way_.block_n) + ", " + number(plan_.depth) + ", " + number(way_.batches) + ", " +
             layouts + flag(has_pairs(problem_, a_, true)) + ", " + flag(has_pairs(problem_, a_, false)) +
             ", " + flag(plan_.shared.x) + ", " + flag(plan_.shared.y) + ">";
    switch (family_of(way_)) {
      case MatmulFamily::simt:
        if (way_.unit == MatmulUnit::single)
          return "aicf::SingleMatmul<" + std::string(accumulator(dtype_)) + ", " +
                 number(single_depth(dtype_)) + ", " + flag(a_.x.along_k) + ", " + flag(a_.y.along_k) + ">";
        return "aicf::SimtMatmul<" + std::string(accumulator(dtype_)) + ", " + tile +
               number(simt_thread(way_).m) + ", " + number(simt_thread(way_).n) + ", " + number(way_.stages) +
               ", " + layouts + split_text + vectors_text() + ">";
      case MatmulFamily::mma:
        return "aicf::MmaMatmul<" + std::string(cuda_type(dtype_)) + ", " + tile + number(plan_.warp.m) +
               ", " + number(plan_.dual ? plan_.warp.n / 2 : plan_.warp.n) + ", " + number(way_.stages) +
               ", " + layouts + flag(a_.x.vector) + ", " + flag(a_.y.vector) + ", " + last;
      default:
        const std::string type = wgmma_type_text(way_, plan_.wgmma, role == Role::kSum);
        return is_tf32_wgmma() ? "aicf::WgmmaTf32<" + type + ", Multiply>" : type;
    }
  }

  const CudaProblem& problem_;
  const MatmulPlan& plan_;
  const MatmulWay& way_;
  const MatmulView& a_;
  const DType dtype_;
  const Prologue* prologue_;
  const ProductGroup* group_;
  CudaParams params_;
};

}  // namespace

CudaCode matmul_code(const CudaProblem& problem, const MatmulWay& way) {
  return MatmulWriter(problem, resolve(way, problem)).write();
}

}  // namespace aicf
