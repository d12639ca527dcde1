// The text and launches of one contraction in one configuration.
#include <algorithm>

#include "base/error.h"
#include "kernels/cuda_text.h"
#include "kernels/made_input.h"
#include "kernels/matmul/cuda/matmul_cuda.h"
#include "kernels/matmul/cuda/matmul_cycles.h"
#include "kernels/matmul/cuda/matmul_operands.h"
#include "kernels/matmul/cuda/wgmma_text.h"
#include "kernels/product_group.h"
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
    if (is_sum_over_rows(instr)) return static_cast<size_t>(instr.operand) - program.inputs.size();
  AICF_CHECK(false, "a program without sums over rows");
}

// Results of a tile's column.
size_t accumulators(const CudaProblem& problem) { return product_inputs(problem) - 1; }

enum class Role { kWhole, kPart, kSum };  // of a launch: no split or one in a cluster; parts; their sum

// Writes one contraction: its translation unit and launches.
class Writer {
 public:
  Writer(const CudaProblem& problem, const MatmulConfig& config)
      : problem_(problem), config_(config), a_(matmul_view(problem)), dtype_(problem.inputs[0].dtype) {
    const int64_t rows = std::max<int64_t>(largest(a_.m, ranges_of(problem)), 1);
    keeps_x_ = keeps_x(matmul_sizes(problem), config) && a_.k.constant() && a_.batch.empty();
    x_rows_ = keeps_x_ ? 0
              : config.family == MatmulFamily::wgmma && a_.x.along_k && !config.stays && rows < config.block_m
                  ? static_cast<int>((rows + 7) / 8 * 8)
                  : config.block_m;
    tiles_ = a_.batches() * ceildiv(a_.m, Dim(config.block_m)) * ceildiv(a_.n, Dim(tile_columns(config)));
    const Dim step(config.slices > 0
                       ? kEpilogueGroup
                       : per(kStageBytes, config.family == MatmulFamily::simt ? DType::f16 : dtype_));
    part_depth_ = ceildiv(ceildiv(a_.k, Dim(config.splits)), step) * step;
  }

  CudaCode write() {
    const CudaEpilogue epilogue = config_.row_blocks > 0
                                      ? cuda_row_epilogue(problem_, kProductInputs, params_)
                                      : cuda_epilogue(problem_, product_inputs(problem_), params_);
    const MatmulOperandsText operands = matmul_operands_text(problem_, a_, config_, params_);
    const bool splits = config_.splits > 1 && !config_.cluster, sums = sums_rows(*problem_.program);
    CudaCode code;
    code.member = problem_.member && (config_.family == MatmulFamily::simt || config_.slices > 0);
    if (!is_single(config_) && (config_.family != MatmulFamily::simt || config_.slices > 0))
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
    if (splits) code.workspace_bytes = tiles_ * Dim(config_.splits * result_bytes());
    for (size_t i = 0; i < bodies.size(); ++i)
      code.source +=
          cuda_kernel_head(problem_of_head(), code.launches[i], splits || sums, min_blocks()) + bodies[i];
    return code;
  }

 private:
  std::string includes_text() const {
    return "#include \"matmul/cuda/" + header_name() + ".cuh\"\n" +
           (problem_.group != nullptr ? "#include \"matmul/cuda/grouped.cuh\"\n" : "") +
           (sums_x() ? wgmma_multiply_ones_text(dtype_, a_.x.along_k) : "");
  }
  // What makes x in the block, and the instructions of wgmma.
  std::string multiply_text() const {
    std::string text;
    if (problem_.made != nullptr) text += problem_.made->text;
    if (keeps_x_) text += wgmma_multiply_made_text(dtype_, config_.block_n, a_.y.along_k);
    if (config_.family == MatmulFamily::wgmma)
      text += wgmma_multiply_text(dtype_, config_.block_n, a_.x.along_k, a_.y.along_k);
    return text;
  }
  std::string body_text(Role role, const std::string& operands, const std::string& epilogue, bool workspace) {
    std::string text;
    // wgmma and slices wait after their set-up.
    if (config_.family != MatmulFamily::wgmma && config_.slices == 0)
      text = "  aicf::wait_for_inputs();\n  aicf::launch_dependents();\n";
    text += "  const Operands operands = " + operands + ";\n";
    text += problem_.group != nullptr ? grouped_epilogue_text(epilogue)
                                      : "  const Epilogue epilogue = " + epilogue + ";\n";
    if (keeps_x_) text += make_text();
    return text + "  " + kernel_type(role) + "::run(" + run_arguments(workspace) + ");\n}\n";
  }
  // The problem whose operands are the launch's: of several products or with what makes x, all of them.
  const CudaProblem& problem_of_head() const {
    return problem_.made != nullptr    ? *problem_.made->kernel
           : problem_.group != nullptr ? *problem_.group->kernel
                                       : problem_;
  }
  int64_t result_bytes() const {  // of a tile
    return int64_t{config_.block_m} * config_.block_n * accumulator_bytes(dtype_);
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
    return config_.family == MatmulFamily::simt  ? "simt"
           : config_.family == MatmulFamily::mma ? "mma"
                                                 : "wgmma";
  }
  std::string header_name() const {
    return config_.row_blocks > 0 ? "row_epilogue"
           : keeps_x_             ? "made_x"
           : config_.handed       ? "wgmma_handed"
           : config_.slices > 0   ? "sliced"
           : is_single(config_)   ? "single"
                                  : family_name();
  }
  int threads() const {
    if (is_single(config_)) return kSingleSide * kSingleSide;
    if (config_.slices > 0) return 32 * config_.slices;
    return config_.family == MatmulFamily::simt
               ? config_.block_m / (config_.block_m >= 128 ? 8 : 4) *
                     (config_.block_n / (config_.block_n >= 128 ? 8 : 4))
               : config_.block_m / config_.warp_m * (config_.block_n / config_.warp_n) * 32;
  }
  // Its threads load 4 or 2 elements of each operand.
  int single_depth() const { return 256 / accumulator_bytes(dtype_); }
  int min_blocks() const {
    // Warps of a multiprocessor whose registers are kept: of two launches that follow one another, or of one.
    if (config_.slices > 0) return config_.slices >= 8 ? 2 : 12 / config_.slices;
    return config_.family == MatmulFamily::wgmma ? config_.resident : 0;
  }
  bool sums_x() const { return problem_.group != nullptr && problem_.group->x_sums.has_value(); }
  // Of a block, by the cycles of a step of 64 k: 64 bytes loaded in each, 2,048 products made.
  bool loads_longer_than_it_multiplies() const {
    return (config_.block_m + config_.block_n) * kStepDepth * 2 / 64 >
           config_.block_m * config_.block_n * kStepDepth / 2048;
  }
  bool has_one_tile() const {
    return !config_.alternate && !config_.handed && config_.row_blocks == 0 &&
           largest(tiles_, ranges_of(problem_)) <= concurrent_blocks(config_) / config_.splits;
  }
  // Whether x is read before the wait for the launches before (wgmma.cuh). By two warpgroups only where it is
  // the loads that take long: on an H100 256 x 4096 x 4096 in tiles of 128 x 64 took 19.2 us so, 19.5
  // without, 512 x 4096 x 4096 in tiles of 128 x 128 29.7, and 28.3 without.
  bool early_x() const {
    const CudaWindow &x = problem_.inputs[0], &y = problem_.inputs[1];
    if (config_.family != MatmulFamily::wgmma || problem_.made != nullptr || problem_.group != nullptr ||
        config_.pair)
      return false;
    return (config_.warpgroups == 1 || (loads_longer_than_it_multiplies() && has_one_tile())) && x.settled &&
           y.constant;
  }
  WgmmaTile wgmma_tile() const {
    return {
        .x_along_k = a_.x.along_k,
        .y_along_k = a_.y.along_k,
        .x_rows = config_.stays ? 0 : x_rows_,
        .constant_y = problem_.inputs[1].constant && problem_.group == nullptr &&
                      (!config_.pair || problem_.inputs[2].constant),
        .early_x = early_x(),
        .kept_bytes = keeps_x_ ? kept_x_bytes(matmul_sizes(problem_), config_, own_part()) : 0,
        .kept_steps = config_.stays ? static_cast<int>((*a_.k.constant() + kStepDepth - 1) / kStepDepth) : 0,
        .own_part = own_part(),
        .half_tile = epilogue_tile(*problem_.program, accumulators(problem_)).has_value(),
        .own_bytes = problem_.group != nullptr ? own_operand_bytes(problem_) : 0,
        .reductions = config_.row_blocks > 0 ? row_reductions(*problem_.program) : 0,
        .storers = handed_storers(config_, *problem_.program, a_.k)};
  }

  int64_t shared_bytes(Role role) const {
    if (role == Role::kSum) return 0;
    if (config_.slices > 0) return sliced_bytes(config_);
    if (is_single(config_)) {
      const int64_t bytes = accumulator_bytes(dtype_), depth = single_depth();
      return (kSingleSide * (depth + 16 / bytes) + depth * (kSingleSide + 1)) * bytes;
    }
    const int64_t pipeline =
        config_.family == MatmulFamily::simt
            ? int64_t{2} * (config_.block_m == 64 ? 8 : 16) * (config_.block_m + config_.block_n + 8) *
                  accumulator_bytes(dtype_)
            : int64_t{config_.stages} * (config_.block_m + config_.block_n) * kStageBytes;
    return std::max(pipeline, config_.cluster ? result_bytes() : 0);
  }

  CudaLaunch launch_of(Role role) const {
    const bool wgmma = config_.family == MatmulFamily::wgmma;
    CudaLaunch launch = wgmma ? wgmma_launch(config_, wgmma_tile(), tiles_) : CudaLaunch();
    launch.function = "matmul_" + family_name() + "_" + std::string(dtype_name(dtype_)) + "_" +
                      std::to_string(config_.block_m) + "x" + std::to_string(config_.block_n);
    if (config_.slices > 0) launch.function += "_sliced";
    if (config_.row_blocks > 0) launch.function += "_rows";
    if (config_.pair) launch.function += "_pair";
    if (config_.handed) launch.function += config_.stays ? "_staying" : "_handed";
    if (config_.stays)
      launch.grid[0] =
          ceildiv(a_.m, Dim(config_.block_m)) * Dim(blocks_of_row(matmul_sizes(problem_), config_));
    if (role == Role::kSum) launch.function += "_sum";
    if (keeps_x_) {
      if (problem_.made != nullptr) launch.function += "_made";
      launch.tensor_maps = {matmul_map(problem_, a_, 1, config_.block_n)};
      return launch;
    }
    if (wgmma) {
      if (problem_.group != nullptr) launch.function += "_grouped";
      for (const ProductGroup::Operands& product : products()) {
        launch.tensor_maps.push_back(matmul_map(problem_, a_, 0, x_rows_));
        launch.tensor_maps.back().operand = product.inputs[0];
        launch.tensor_maps.push_back(matmul_map(problem_, a_, 1, tile_columns(config_)));
        launch.tensor_maps.back().operand = product.inputs[1];
      }
      if (config_.pair) {
        launch.tensor_maps.push_back(matmul_map(problem_, a_, 2, tile_columns(config_)));
        if (!launch.early_inputs.empty()) launch.early_inputs.push_back(2);
      }
      return launch;
    }
    launch.block = threads();
    launch.early_inputs = settled_operands(problem_, config_).early_inputs(problem_.inputs.size());
    launch.shared_bytes = shared_bytes(role);
    launch.grid[0] = role == Role::kSum ? tiles_ : tiles_ * Dim(config_.splits);
    if (config_.cluster) launch.cluster = config_.splits;
    return launch;
  }

  // Those of the launch.
  std::vector<ProductGroup::Operands> products() const {
    return problem_.group != nullptr ? problem_.group->products
                                     : std::vector<ProductGroup::Operands>{{{0, 1}, {0}}};
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
    if (is_single(config_)) return "operands, epilogue, block_index";
    const std::string depth = "Operands::Index(" + params_.param(part_depth_) + ")";
    if (keeps_x_) return "operands, &map0, epilogue, " + depth + ", make";
    if (config_.family == MatmulFamily::wgmma) return "operands, &map0, &map1, epilogue, " + depth;
    if (config_.slices > 0) return "operands, epilogue, " + depth + ", block_index";
    return "operands, epilogue, " + depth + (workspace ? ", workspace" : ", nullptr") +
           (config_.family == MatmulFamily::simt ? ", block_index" : "");
  }

  // Whether a block keeps its part of K alone: a copy can, and pieces of one row that end where parts do.
  bool own_part() const {
    if (problem_.made == nullptr) return true;
    const auto part = part_depth_.constant();
    const int64_t piece = problem_.made->code.block_elements;
    return piece > 0 && is_one(a_.m) && part && *part % piece == 0;
  }
  // What made_x.cuh calls Make: a copy, or the member's blocks one after the other.
  std::string make_text() {
    if (problem_.made == nullptr) return "  const aicf::CopiedX<Operands> make{operands};\n";
    const MadeInput& made = *problem_.made;
    const CudaLaunch& launch = made.code.launches[0];
    std::string first, count = "uint32_t(" + params_.expr(launch.grid[0]) + ")", call = made.function + "(";
    if (own_part()) {  // as many for every block, but where the last part of K is shorter
      const std::string piece = std::to_string(made.code.block_elements);
      first = "uint32_t(k_first) / " + piece + " + ";
      count = divides(a_.k, *part_depth_.constant())
                  ? std::to_string(*part_depth_.constant() / made.code.block_elements)
                  : "uint32_t(k_end - k_first + " + piece + " - 1) / " + piece;
    }
    call += first + "i";
    for (const int32_t number : made.inputs) call += ", in" + std::to_string(number);
    call += ", x";
    for (const Dim& param : launch.params) call += ", " + params_.expr(param);
    const std::string threads = std::to_string(launch.block);
    const std::string some = launch.block < kMadeThreads ? "if (threadIdx.x < " + threads + ") " : "";
    // What one block leaves in shared memory of its own is free for the next when all threads have left it.
    const std::string meet = made.code.static_shared_bytes > 0
                                 ? "if (i > 0) aicf::sync_threads<" + std::to_string(kMadeThreads) + ">();\n"
                                 : "";
    return "  const auto make = [&](Operands::Element* x, int, int k_first, int k_end) {\n#pragma unroll\n"
           "    for (uint32_t i = 0; i < " +
           count + "; ++i) {\n" + meet + some + call + ");\n    }\n  };\n";
  }

  std::string kernel_type(Role role) const {
    const auto number = [](int v) { return std::to_string(v); };
    const auto flag = [](bool v) { return std::string(v ? "true" : "false"); };
    const std::string split = role == Role::kSum    ? "kSum"
                              : role == Role::kPart ? "kWorkspace"
                              : config_.cluster     ? "kCluster"
                                                    : "kNone";
    const std::string tile = number(config_.block_m) + ", " + number(tile_columns(config_)) + ", ";
    const std::string layouts = flag(a_.x.along_k) + ", " + flag(a_.y.along_k) + ", ";
    const std::string last = "aicf::Split::" + split + ", " + number(config_.splits) + ">";
    if (config_.slices > 0) {
      const std::string name = config_.family == MatmulFamily::simt ? "SimtSlice<" : "Tf32Slice<";
      return "aicf::SlicedMatmul<aicf::" + name + tile + flag(a_.x.along_k) + ", " + flag(a_.y.along_k) +
             ">, " + tile + number(config_.stages) + ", " + number(config_.slices) +
             ", aicf::Split::" + split + ", " + number(config_.splits) + ">";
    }
    switch (config_.family) {
      case MatmulFamily::simt:
        if (is_single(config_))
          return "aicf::SingleMatmul<" + std::string(accumulator(dtype_)) + ", " + number(single_depth()) +
                 ", " + flag(a_.x.along_k) + ", " + flag(a_.y.along_k) + ">";
        return "aicf::SimtMatmul<" + std::string(accumulator(dtype_)) + ", " + tile + layouts + last;
      case MatmulFamily::mma:
        return "aicf::MmaMatmul<" + std::string(cuda_type(dtype_)) + ", " + tile + number(config_.warp_m) +
               ", " + number(config_.pair ? config_.warp_n / 2 : config_.warp_n) + ", " +
               number(config_.stages) + ", " + layouts + flag(a_.x.vector) + ", " + flag(a_.y.vector) + ", " +
               last;
      default:
        return wgmma_type_text(config_, wgmma_tile());
    }
  }

  const CudaProblem& problem_;
  const MatmulConfig& config_;
  MatmulView a_;
  DType dtype_;
  Dim tiles_, part_depth_;
  bool keeps_x_ = false;
  int x_rows_;  // wgmma: see kXRows there
  CudaParams params_;
};

// The configuration as the problem's epilogue and sizes allow it.
MatmulConfig possible_config(const CudaProblem& problem, const MatmulConfig& config) {
  MatmulConfig possible = config;
  // What is handed on are halves; where they are not, its memory has room for a stage.
  possible.handed = config.handed && epilogue_tile(*problem.program, accumulators(problem));
  if (config.handed && !possible.handed) ++possible.stages;
  const MatmulView a = matmul_view(problem);
  possible.stays = possible.handed && problem.group == nullptr && a.m.constant() && a.k.constant() &&
                   a.batch.empty() && blocks_of_row(matmul_sizes(problem), config) > 0;
  return possible;
}

}  // namespace

CudaCode matmul_code(const CudaProblem& problem, const MatmulConfig& config) {
  AICF_CHECK(matmul_family_fits(problem, config.family),
             "a matmul kernel that cannot run the problem: " + to_string(config));
  return Writer(problem, possible_config(problem, config)).write();
}

}  // namespace aicf
