#include "kernels/matmul/matmul_cuda.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "kernels/cuda_text.h"
#include "kernels/made_input.h"
#include "kernels/matmul/wgmma_text.h"
#include "kernels/tile/tile_cuda.h"

namespace aicf {
namespace {

constexpr int64_t kUnknownSize = 4096;  // stands for a size without a useful upper bound
constexpr int64_t kStepBytes = 128;     // of K in a stage of mma.cuh and wgmma.cuh
constexpr int64_t kVectorBytes = 16;
constexpr int64_t kGroup = 8;   // columns that an epilogue takes at a time
constexpr int kMaxMapAxes = 4;  // of the copies in wgmma.cuh

const SymbolRanges& ranges_of(const CudaProblem& problem) {
  static const SymbolRanges kNone;
  return problem.ranges != nullptr ? *problem.ranges : kNone;
}

struct Operand {
  std::vector<Dim> batch;  // strides over the batch axes of the result
  Dim row, column;
};

struct Matrices {
  Shape batch;
  Dim m, n, k;
  Operand x, y;
};

bool is_one(const Dim& size) { return size == Dim(1); }

Operand operand_of(const CudaWindow& window, size_t rank) {
  const size_t own = window.sizes.size();
  Operand operand{{}, window.strides[own - 2], window.strides[own - 1]};
  for (size_t axis = 0; axis + 2 < rank; ++axis) {
    const size_t missing = rank - own;
    const bool broadcast = axis < missing || is_one(window.sizes[axis - missing]);
    operand.batch.push_back(broadcast ? Dim(0) : window.strides[axis - missing]);
  }
  return operand;
}

Matrices matrices_of(const CudaProblem& problem) {
  const Shape& result = problem.outputs[0].sizes;
  const size_t rank = result.size();
  Matrices found{{result.begin(), result.end() - 2},
                 result[rank - 2],
                 result[rank - 1],
                 problem.inputs[0].sizes.back(),
                 operand_of(problem.inputs[0], rank),
                 operand_of(problem.inputs[1], rank)};
  for (size_t axis = found.batch.size(); axis-- > 0;) {
    if (!is_one(found.batch[axis])) continue;
    const auto at = static_cast<std::ptrdiff_t>(axis);
    found.batch.erase(found.batch.begin() + at);
    found.x.batch.erase(found.x.batch.begin() + at);
    found.y.batch.erase(found.y.batch.begin() + at);
  }
  return found;
}

int64_t largest(const Dim& dim, const SymbolRanges& ranges) {
  const Interval range = bounds(dim, ranges);
  const auto magnitude = [](int64_t v) {
    return v == std::numeric_limits<int64_t>::min() ? -(v + 1) : std::abs(v);
  };
  return std::max(magnitude(range.lo), magnitude(range.hi));
}

// Whether every offset inside one matrix, up to a tile beyond its end, fits 32 bits.
bool fits_int32(const Matrices& a, const SymbolRanges& ranges) {
  constexpr int64_t kLimit = int64_t{1} << 30;
  const auto span = [&](const Dim& size, const Dim& stride) {
    const int64_t s = largest(size, ranges), t = largest(stride, ranges);
    return s < kLimit && t < kLimit ? (s + 256) * t : kLimit;
  };
  return largest(a.m, ranges) < kLimit && largest(a.n, ranges) < kLimit && largest(a.k, ranges) < kLimit &&
         span(a.m, a.x.row) + span(a.k, a.x.column) < kLimit &&
         span(a.k, a.y.row) + span(a.n, a.y.column) < kLimit;
}

int64_t per(int64_t bytes, DType dtype) { return bytes / dtype_bytes(dtype); }

bool divides(const Dim& dim, int64_t divisor) { return divide_exactly(dim, Dim(divisor)).has_value(); }

// Rows along `inner` can be read 16 bytes at a time.
bool vector_rows(const CudaWindow& window, const Operand& operand, const Dim& inner, const Dim& outer) {
  const int64_t vector = per(kVectorBytes, window.dtype);
  return is_one(inner) && divides(window.offset, vector) && divides(outer, vector) &&
         std::all_of(operand.batch.begin(), operand.batch.end(),
                     [&](const Dim& s) { return divides(s, vector); });
}

// An axis of halves that a tensor map can have: a stride of whole 16 bytes, more than 0.
bool map_stride(const Dim& stride, const SymbolRanges& ranges) {
  const Interval range = bounds(stride, ranges);
  return divides(stride, per(kVectorBytes, DType::f16)) && range.lo > 0 && range.hi < (int64_t{1} << 38);
}

// How a family reads an operand: which axis its rows run along, and whether 16 bytes at a time.
struct Layout {
  bool along_k, vector;
};

Layout layout_of(const CudaWindow& window, const Operand& operand, const Dim& along_k, const Dim& other) {
  if (vector_rows(window, operand, along_k, other)) return {true, true};
  if (vector_rows(window, operand, other, along_k)) return {false, true};
  return {is_one(along_k) || !is_one(other), false};
}
Layout x_layout(const CudaProblem& problem, const Matrices& a) {
  return layout_of(problem.inputs[0], a.x, a.x.column, a.x.row);
}
Layout y_layout(const CudaProblem& problem, const Matrices& a) {
  return layout_of(problem.inputs[1], a.y, a.y.row, a.y.column);
}

bool map_fits(const CudaWindow& window, const Operand& operand, const Dim& along_k, const Dim& other,
              const SymbolRanges& ranges) {
  const auto batch =
      std::count_if(operand.batch.begin(), operand.batch.end(), [](const Dim& s) { return s != Dim(0); });
  const Layout layout = layout_of(window, operand, along_k, other);
  if (!layout.vector || batch + 2 > kMaxMapAxes || !map_stride(layout.along_k ? other : along_k, ranges))
    return false;
  return std::all_of(operand.batch.begin(), operand.batch.end(),
                     [&](const Dim& s) { return s == Dim(0) || map_stride(s, ranges); }) &&
         std::all_of(window.sizes.begin(), window.sizes.end(), [&](const Dim& size) {
           return bounds(size, ranges).hi <= std::numeric_limits<int32_t>::max() / 2;
         });
}

// Whether the problem's params ask for products in tf32.
template <class AnyProblem>
bool in_tf32(const AnyProblem& problem) {
  return problem.params == std::vector<Dim>{Dim(1)} && problem.inputs[0].dtype == DType::f32;
}

bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

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
int accumulator_bytes(DType dtype) { return dtype == DType::f64 || dtype == DType::i64 ? 8 : 4; }

enum class Role { kWhole, kPart, kSum };  // of a launch: no split or one in a cluster; parts; their sum

// Writes one contraction: its translation unit and launches.
class Writer {
 public:
  Writer(const CudaProblem& problem, const MatmulConfig& config)
      : problem_(problem),
        config_(config),
        a_(matrices_of(problem)),
        dtype_(problem.inputs[0].dtype),
        x_(x_layout(problem, a_)),
        y_(y_layout(problem, a_)),
        wide_(!fits_int32(a_, ranges_of(problem))) {
    for (const Dim& size : a_.batch) batches_ = batches_ * size;
    const int64_t rows = std::max<int64_t>(largest(a_.m, ranges_of(problem)), 1);
    keeps_x_ = keeps_x(matmul_sizes(problem), config) && a_.k.constant() && a_.batch.empty();
    x_rows_ = keeps_x_ ? 0
              : config.family == MatmulFamily::wgmma && x_.along_k && rows < config.block_m
                  ? static_cast<int>((rows + 7) / 8 * 8)
                  : config.block_m;
    tiles_ = batches_ * ceildiv(a_.m, Dim(config.block_m)) * ceildiv(a_.n, Dim(config.block_n));
    const Dim step(config.slices > 0
                       ? kGroup
                       : per(kStepBytes, config.family == MatmulFamily::simt ? DType::f16 : dtype_));
    part_depth_ = ceildiv(ceildiv(a_.k, Dim(config.splits)), step) * step;
  }

  CudaCode write() {
    const CudaEpilogue epilogue = config_.row_blocks > 0
                                      ? cuda_row_epilogue(problem_, kProductInputs, params_)
                                      : cuda_epilogue(problem_, kProductInputs, params_);
    const std::string operands = operands_struct();
    const bool workspace = config_.splits > 1 && !config_.cluster;
    CudaCode code;
    code.member = problem_.member && (config_.family == MatmulFamily::simt || config_.slices > 0);
    code.source = "#include \"matmul/" + header_name() + ".cuh\"\n" + epilogue.text + operands;
    if (problem_.made != nullptr) code.source += problem_.made->text;
    if (keeps_x_) code.source += wgmma_multiply_made_text(dtype_, config_.block_n, y_.along_k);
    if (config_.family == MatmulFamily::wgmma)
      code.source += wgmma_multiply_text(dtype_, config_.block_n, x_.along_k, y_.along_k);
    std::vector<Role> roles{Role::kWhole};
    if (workspace) roles = {Role::kPart, Role::kSum};
    for (const Role role : roles) {
      CudaLaunch launch = launch_of(role);
      std::string call =
          "  aicf::wait_for_inputs();\n  aicf::launch_dependents();\n  const Operands operands = " +
          operands_make_ + ";\n";
      if (config_.family == MatmulFamily::wgmma)
        call.erase(0, call.find("  const Operands"));  // waits after its set-up
      call += "  const Epilogue epilogue = " + epilogue.make + ";\n";
      if (keeps_x_) call += make_text();
      call += "  " + kernel_type(role) + "::run(" + run_arguments(workspace) + ");\n}\n";
      launch.params = params_.dims();
      code.launches.push_back(launch);
      bodies_.push_back(call);
    }
    const CudaProblem& kernel = problem_.made != nullptr ? *problem_.made->kernel : problem_;
    for (size_t i = 0; i < code.launches.size(); ++i)
      code.source += cuda_kernel_head(kernel, code.launches[i], workspace, min_blocks()) + bodies_[i];
    if (workspace)
      code.workspace_bytes = tiles_ * Dim(int64_t{config_.splits} * config_.block_m * config_.block_n *
                                          accumulator_bytes(dtype_));
    return code;
  }

 private:
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
  WgmmaTile wgmma_tile() const {
    return {.x_along_k = x_.along_k,
            .y_along_k = y_.along_k,
            .x_rows = x_rows_,
            .constant_y = problem_.inputs[1].constant,
            .kept_bytes = keeps_x_ ? kept_x_bytes(matmul_sizes(problem_), config_, own_part()) : 0,
            .own_part = own_part(),
            .half_tile = epilogue_tile(*problem_.program).has_value(),
            .reductions = config_.row_blocks > 0 ? row_reductions(*problem_.program) : 0,
            .storers = handed_storers(*problem_.program, a_.k)};
  }

  int64_t shared_bytes(Role role) const {
    if (role == Role::kSum) return 0;
    if (config_.slices > 0) return sliced_bytes(config_);
    if (is_single(config_)) {
      const int64_t bytes = accumulator_bytes(dtype_), depth = single_depth();
      return (kSingleSide * (depth + 16 / bytes) + depth * (kSingleSide + 1)) * bytes;
    }
    const int64_t results = int64_t{config_.block_m} * config_.block_n * accumulator_bytes(dtype_);
    const int64_t pipeline = config_.family == MatmulFamily::simt
                                 ? int64_t{2} * (config_.block_m >= 64 ? 8 : 16) *
                                       (config_.block_m + config_.block_n + 8) * accumulator_bytes(dtype_)
                                 : int64_t{config_.stages} * (config_.block_m + config_.block_n) * kStepBytes;
    return std::max(pipeline, config_.cluster ? results : 0);
  }

  CudaLaunch launch_of(Role role) const {
    const bool wgmma = config_.family == MatmulFamily::wgmma;
    CudaLaunch launch = wgmma ? wgmma_launch(config_, wgmma_tile(), tiles_) : CudaLaunch();
    launch.function = "matmul_" + family_name() + "_" + std::string(dtype_name(dtype_)) + "_" +
                      std::to_string(config_.block_m) + "x" + std::to_string(config_.block_n);
    if (config_.slices > 0) launch.function += "_sliced";
    if (config_.row_blocks > 0) launch.function += "_rows";
    if (config_.handed) launch.function += "_handed";
    if (role == Role::kSum) launch.function += "_sum";
    if (keeps_x_) {
      if (problem_.made != nullptr) launch.function += "_made";
      launch.tensor_maps = {map_of(1, a_.y, y_.along_k, config_.block_n)};
      return launch;
    }
    if (wgmma) {
      launch.tensor_maps = {map_of(0, a_.x, x_.along_k, x_rows_),
                            map_of(1, a_.y, y_.along_k, config_.block_n)};
      return launch;
    }
    launch.block = threads();
    launch.shared_bytes = shared_bytes(role);
    launch.grid[0] = role == Role::kSum ? tiles_ : tiles_ * Dim(config_.splits);
    if (config_.cluster) launch.cluster = config_.splits;
    return launch;
  }

  TensorMapSpec map_of(int operand, const Operand& view, bool along_k, int block) const {
    const CudaWindow& window = problem_.inputs[static_cast<size_t>(operand)];
    const auto rank = static_cast<int32_t>(window.sizes.size());
    const int32_t k_axis = operand == 0 ? rank - 1 : rank - 2, other = operand == 0 ? rank - 2 : rank - 1;
    const auto depth = static_cast<int32_t>(per(kStepBytes, dtype_));
    TensorMapSpec map{operand, {k_axis, other}, {depth, block}, 128};
    if (!along_k) {
      map.axes = {other, k_axis};
      map.box = {64, depth};
    }
    for (const int32_t axis : map_batch_axes(window, view)) {
      map.axes.push_back(axis);
      map.box.push_back(1);
    }
    return map;
  }

  // Axes of the window that the batch moves along, innermost first.
  std::vector<int32_t> map_batch_axes(const CudaWindow& window, const Operand& view) const {
    std::vector<int32_t> axes;
    // Axes of size 1 are gone from a_.batch: walk both from the inside.
    const Shape& result = problem_.outputs[0].sizes;
    const size_t missing = result.size() - window.sizes.size();
    size_t batch = a_.batch.size();
    for (size_t axis = result.size() - 2; axis-- > 0;) {
      if (is_one(result[axis])) continue;
      --batch;
      if (view.batch[batch] != Dim(0)) axes.push_back(static_cast<int32_t>(axis - missing));
    }
    return axes;
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
    const std::string tile = number(config_.block_m) + ", " + number(config_.block_n) + ", ";
    const std::string layouts = flag(x_.along_k) + ", " + flag(y_.along_k) + ", ";
    const std::string last = "aicf::Split::" + split + ", " + number(config_.splits) + ">";
    if (config_.slices > 0) {
      const std::string name = config_.family == MatmulFamily::simt ? "SimtSlice<" : "Tf32Slice<";
      return "aicf::SlicedMatmul<aicf::" + name + tile + number(config_.stages) + ", " + layouts +
             flag(x_.vector) + ", " + flag(y_.vector) + ">, " + tile + number(config_.stages) + ", " +
             number(config_.slices) + ", " + last;
    }
    switch (config_.family) {
      case MatmulFamily::simt:
        if (is_single(config_))
          return "aicf::SingleMatmul<" + std::string(accumulator(dtype_)) + ", " + number(single_depth()) +
                 ", " + flag(x_.along_k) + ", " + flag(y_.along_k) + ">";
        return "aicf::SimtMatmul<" + std::string(accumulator(dtype_)) + ", " + tile + layouts + last;
      case MatmulFamily::mma:
        return "aicf::MmaMatmul<" + std::string(cuda_type(dtype_)) + ", " + tile + number(config_.warp_m) +
               ", " + number(config_.warp_n) + ", " + number(config_.stages) + ", " + layouts +
               flag(x_.vector) + ", " + flag(y_.vector) + ", " + last;
      default:
        return wgmma_type_text(config_, wgmma_tile());
    }
  }

  // The strides of the batch axes, and what needs them.
  std::string operands_struct() {
    const std::string index = wide_ ? "int64_t" : "int32_t";
    std::string text =
        "struct Operands : aicf::MatmulOperands<" + std::string(cuda_type(dtype_)) + ", " + index + "> {\n";
    operands_make_ = "{{in0, in1";
    for (const Dim& dim : {a_.m, a_.n, a_.k, a_.x.row, a_.x.column, a_.y.row, a_.y.column})
      operands_make_ += ", " + index + "(" + params_.param(dim) + ")";
    operands_make_ += "}";
    const auto member = [&](const std::string& name, const Dim& dim) {
      text += "  int64_t " + name + ";\n";
      operands_make_ += ", " + params_.param(dim);
    };
    member("batches", batches_);
    for (size_t axis = 0; axis < a_.batch.size(); ++axis) {
      const std::string number = std::to_string(axis);
      member("size" + number, a_.batch[axis]);
      member("x_stride" + number, a_.x.batch[axis]);
      member("y_stride" + number, a_.y.batch[axis]);
    }
    operands_make_ += "}";
    text += matrix_function("x") + matrix_function("y");
    // Whether the epilogue's groups of eight columns never reach beyond the last column.
    text += std::string("  static constexpr bool kWholeGroups = ") +
            (divides(a_.n, kGroup) ? "true;\n" : "false;\n");
    // Whether every tile lies inside the result: its epilogue then is one straight piece of code.
    text += std::string("  static constexpr bool kWholeTiles = ") +
            (divides(a_.m, config_.block_m) && divides(a_.n, config_.block_n) ? "true;\n" : "false;\n");
    if (config_.family == MatmulFamily::wgmma)
      text += load_function("x", a_.x, x_.along_k, "load_box") +
              load_function("y", a_.y, y_.along_k, reads_y_once() ? "load_box_once" : "load_box");
    return text + "};\n";
  }

  // b<axis>: the batch's index along each axis.
  std::string batch_indices() const {
    std::string text;
    for (size_t axis = a_.batch.size(); axis-- > 0;) {
      const std::string number = std::to_string(axis), size = "uint32_t(size" + number + ")";
      text += "    const uint32_t b" + number + " = " + (axis == 0 ? "batch;\n" : "batch % " + size + ";\n");
      if (axis > 0) text += "    batch /= " + size + ";\n";
    }
    return text;
  }

  std::string matrix_function(const std::string& name) const {
    std::string text = "  __device__ __forceinline__ const Element* " + name +
                       "_of(uint32_t batch) const {\n" + batch_indices() + "    return " + name;
    for (size_t axis = 0; axis < a_.batch.size(); ++axis)
      text += " + b" + std::to_string(axis) + " * " + name + "_stride" + std::to_string(axis);
    return text + ";\n  }\n";
  }

  // One tile has all rows of x.
  bool reads_y_once() const {
    return largest(a_.m, ranges_of(problem_)) <= config_.block_m &&
           std::none_of(a_.y.batch.begin(), a_.y.batch.end(), [](const Dim& s) { return s == Dim(0); });
  }

  std::string load_function(const std::string& name, const Operand& view, bool along_k,
                            const char* load) const {
    std::string text = "  __device__ __forceinline__ void load_" + name +
                       "(const CUtensorMap* map, uint32_t to, uint32_t barrier, int k, int other, uint32_t "
                       "batch) const {\n" +
                       batch_indices() + "    aicf::" + load + "(map, to, barrier, " +
                       (along_k ? "k, other" : "other, k");
    for (size_t axis = a_.batch.size(); axis-- > 0;)
      if (view.batch[axis] != Dim(0)) text += ", int(b" + std::to_string(axis) + ")";
    return text + ");\n  }\n";
  }

  const CudaProblem& problem_;
  const MatmulConfig& config_;
  Matrices a_;
  DType dtype_;
  Layout x_, y_;
  bool wide_;
  Dim batches_{1}, tiles_, part_depth_;
  bool keeps_x_ = false;
  int x_rows_;  // wgmma: see kXRows there
  CudaParams params_;
  std::string operands_make_;
  std::vector<std::string> bodies_;
};

// The families' configurations, those of the first family first.
std::vector<MatmulConfig> configs_of(const CudaProblem& problem, const std::vector<MatmulFamily>& families) {
  std::vector<MatmulConfig> configs;
  for (const MatmulFamily family : families) {
    if (!matmul_family_fits(problem, family)) continue;
    const int bytes = accumulator_bytes(problem.inputs[0].dtype);
    for (const MatmulConfig& config : matmul_configs(matmul_sizes(problem), family, problem.arch, bytes))
      configs.push_back(config);
  }
  return configs;
}

std::vector<KernelVariant> variants_of(const CudaProblem& problem,
                                       const std::vector<MatmulFamily>& families) {
  std::vector<KernelVariant> variants;
  for (const MatmulConfig& config : configs_of(problem, families))
    variants.push_back(
        {to_string(config), matmul_cycles(matmul_sizes(problem), config) / kCyclesPerMicrosecond});
  return variants;
}

CudaCode generate(const CudaProblem& problem, const std::vector<MatmulFamily>& families) {
  for (const MatmulConfig& config : configs_of(problem, families))
    if (problem.variant.empty() || to_string(config) == problem.variant) return matmul_code(problem, config);
  AICF_CHECK(false, "a matmul without this variant: " + problem.variant);
}

const std::vector<MatmulFamily> kTensorCore = {MatmulFamily::wgmma, MatmulFamily::mma},
                                kSimt = {MatmulFamily::simt};

bool has_matrices(const Problem& problem) {
  return problem.inputs.size() >= 2 && !problem.outputs.empty() &&
         (problem.params.empty() || in_tf32(problem)) && problem.has_program &&
         problem.inputs[0].dtype == problem.inputs[1].dtype && problem.inputs[0].sizes.size() >= 2 &&
         problem.inputs[1].sizes.size() >= 2 && problem.outputs[0].sizes.size() >= 2 &&
         problem.inputs[0].sizes.size() <= problem.outputs[0].sizes.size() &&
         problem.inputs[1].sizes.size() <= problem.outputs[0].sizes.size();
}

}  // namespace

bool matmul_family_fits(const CudaProblem& problem, MatmulFamily family) {
  const bool half = is_half(problem.inputs[0].dtype), tf32 = in_tf32(problem);
  if (family == MatmulFamily::simt) return !tf32;
  if (family == MatmulFamily::mma) return half || tf32;
  if (!half) return false;
  const Matrices a = matrices_of(problem);
  const SymbolRanges& ranges = ranges_of(problem);
  // A tensor map has no empty axes; without rows or columns nothing is launched.
  return problem.arch == 90 && bounds(a.k, ranges).lo > 0 && fits_int32(a, ranges) &&
         map_fits(problem.inputs[0], a.x, a.x.column, a.x.row, ranges) &&
         map_fits(problem.inputs[1], a.y, a.y.row, a.y.column, ranges);
}

MatmulSizes matmul_sizes(const CudaProblem& problem) {
  const Matrices a = matrices_of(problem);
  const auto size = [&](const Dim& dim) {
    if (const auto value = dim.constant()) return *value;
    const int64_t most = bounds(dim, ranges_of(problem)).hi;
    return most < (int64_t{1} << 31) ? most : kUnknownSize;
  };
  MatmulSizes sizes{
      1, size(a.m), size(a.n), size(a.k), y_layout(problem, a).along_k, x_layout(problem, a).along_k};
  sizes.f32 = problem.inputs[0].dtype == DType::f32;
  if (in_tf32(problem)) sizes.k *= 2;
  for (const Dim& dim : a.batch) sizes.batch = checked_mul(sizes.batch, size(dim));
  return sizes;
}

CudaCode matmul_code(const CudaProblem& problem, const MatmulConfig& config) {
  AICF_CHECK(matmul_family_fits(problem, config.family),
             "a matmul kernel that cannot run the problem: " + to_string(config));
  MatmulConfig possible = config;
  possible.handed = config.handed && epilogue_tile(*problem.program);  // what is handed on are halves
  return Writer(problem, possible).write();
}

bool takes_made_input(const CudaProblem& problem, const std::string& variant) {
  if (!matmul_family_fits(problem, MatmulFamily::wgmma)) return false;
  const Matrices a = matrices_of(problem);
  if (!a.batch.empty() || !a.k.constant()) return false;
  const std::vector<MatmulConfig> configs = configs_of(problem, {MatmulFamily::wgmma});
  return std::any_of(configs.begin(), configs.end(), [&](const MatmulConfig& config) {
    return to_string(config) == variant && keeps_x(matmul_sizes(problem), config);
  });
}

bool can_run_matmul_tensor_core(const Problem& problem) {
  return has_matrices(problem) && (is_half(problem.inputs[0].dtype) || in_tf32(problem));
}
bool can_run_matmul_simt(const Problem& problem) {
  return has_matrices(problem) && !in_tf32(problem) && problem.inputs[0].dtype != DType::boolean;
}

CudaCode generate_matmul_tensor_core(const CudaProblem& problem) { return generate(problem, kTensorCore); }
CudaCode generate_matmul_simt(const CudaProblem& problem) { return generate(problem, kSimt); }
std::vector<KernelVariant> matmul_tensor_core_variants(const CudaProblem& problem) {
  return variants_of(problem, kTensorCore);
}
std::vector<KernelVariant> matmul_simt_variants(const CudaProblem& problem) {
  return variants_of(problem, kSimt);
}

}  // namespace aicf
