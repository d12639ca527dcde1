// Kernel tables, and the one of the CPU: one row per kernel, declared in kernels/<family>/kernels.def and
// gathered here; cuda_kernel.h has the table of CUDA kernels. Selection asks can_run with a Problem (shapes
// may be symbolic), the runtime finds the row by name and calls prepare.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/dim.h"
#include "base/dtype.h"
#include "kernels/common/abi.h"

namespace aicf {

struct ProblemTensor {
  DType dtype;
  Shape sizes;
};

// What a kernel is asked to do, before any address or layout is known.
struct Problem {
  std::string_view family;  // the op's name: "matmul", "gather", …; "tile" for fused regions
  std::vector<ProblemTensor> inputs, outputs;
  std::vector<Dim> params;
  std::vector<double> fparams;
  bool has_program = false;  // an epilogue is wanted
};

// How the work of a call is counted (work.h). Of most rows: every operand read or written once.
enum class WorkForm : uint8_t {
  kOperands,
  kProduct,             // x and y
  kPair,                // x and two matrices
  kProjectedAttention,  // a product and the attention behind it
  kAttention,
  kAttentionBackward,
  kConv,
  kConvTranspose,
  kConvWeightGradient,
  kRecurrent,          // products of all steps, with w as operand 2
  kRecurrentBackward,  // the same as operand 0
  kGather,             // rows of the first operand, by indices
  kPad,                // some of the first operand's elements
  kScatter,            // the first operand stays where it is
  kAppend,             // to two caches, which stay where they are
  kPool,               // windows of the first operand
  kSize,               // reads nothing
  kSort,               // steps beyond the elements
  kRegion,             // operands that are one window are read once
  kGatheredRegion,     // a region with rows of a table
  kIndexedRegion,      // a region with elements of tables
  kMessages,           // a scatter, and the program that makes its updates from operands behind the indices
};

// What multiplies: the threads' own units, or a GPU's matrix units, for halves alone, for f32 in tf32, too,
// or for f32 as three products in tf32.
enum class Units : uint8_t { kScalar, kMatrix, kMatrixTf32, kMatrixTf32x3 };
// Whether products on these units have the same precision, so that the cheaper may run.
constexpr bool same_precision(Units a, Units b) {
  const auto whole = [](Units units) { return units == Units::kMatrixTf32x3 ? Units::kScalar : units; };
  return whole(a) == whole(b);
}

// The logarithms of the sums of attention's rows: a second result, or a last operand.
enum class RowSums : uint8_t { kNone, kLeft, kTaken };

// What rules over calls take a row's calls for: a rule asks this fact, never a row's name.
enum class JoinForm : uint8_t {
  kNone,
  kProduct,          // on matrix units, x and y, with any epilogue; may make its x itself (prologue.h)
  kAttention,        // over q, k, v; may make its q itself
  kAppend,           // of a step to two caches, with its q rotated
  kGather,           // of rows along an axis
  kGatherElements,   // along an axis, by an index for each element
  kScatter,          // of rows
  kScatterElements,  // along an axis, by an index for each element
};

// How the order learned from measurements (select/measured_order.h) tells a row's candidates from others: by
// their way, or by the row where ways do not say; not at all of a row that is younger than the measurements.
enum class MeasuredForm : uint8_t { kByWay, kConvSimt, kConvDepthwise, kAttentionMma, kAttentionSimt, kNone };

template <class... Numbers>
constexpr uint32_t operand_bits(Numbers... numbers) {
  return ((uint32_t{1} << numbers) | ...);
}

// What is known of a row beside what it takes; a row names those that differ.
struct KernelFacts {
  WorkForm work = WorkForm::kOperands;
  Units units = Units::kScalar;
  RowSums row_sums = RowSums::kNone;
  JoinForm join_form = JoinForm::kNone;
  MeasuredForm measured_form = MeasuredForm::kByWay;
  bool is_join = false;      // no op is of its family: rules over calls make its calls
  bool needs_way = false;    // a problem for which the row lists no way is one that it cannot run
  int panel_matrices = 0;    // so many operands behind the first may lie in panels (kPanelDepth)
  uint32_t overwritten = 0;  // operand_bits of inputs that the result may be written over, as one window: it
                             // changes the elements that it is told to and leaves the others alone
  bool operator==(const KernelFacts&) const = default;
};

// What every kernel table says of a kernel, whatever it runs on.
struct KernelRow {
  std::string_view name;  // family, types, shape class: "matmul_f32_packed"
  std::string_view family;
  std::string_view params, fparams;  // their names in order, comma separated: "axis, batch_dims"
  std::string_view accumulation;     // what the order of accumulation depends on: "none", "length"
  double tolerance;  // max relative error against the f64 reference, in units of the result dtype's epsilon ×
                     // sqrt(length)
  int priority;      // among rows that can run the highest wins; of CUDA rows of one precision that price
                     // their ways, the cheapest
  bool accepts_program;  // takes an epilogue tile program over its result
  bool (*can_run)(const Problem& problem);
  KernelFacts facts;

  bool overwrites(size_t input) const { return input < 32 && (facts.overwritten >> input & 1) != 0; }
};

struct Kernel : KernelRow {
  // Per-worker scratch bytes are known after prepare; it validates sizes and strides (they may come from a
  // stranger's file) and throws UserError bad_artifact if they do not fit the kernel.
  void (*prepare)(BoundCall& call);
};

const std::vector<Kernel>& kernel_table();
const Kernel* find_kernel(std::string_view name);
// Rows that can run the problem, best first.
std::vector<const Kernel*> candidates(const Problem& problem);

// The row of this name, of the CPU's or of CUDA's table: where both have it, their facts are the same. Null
// if neither has.
const KernelRow* find_row(std::string_view name);
// Its facts; those of no row are the defaults.
const KernelFacts& facts_of(std::string_view kernel);
// Whether rows of a family may write their result over this input.
bool overwrites_operand(std::string_view family, size_t input);

IsaLevel detect_isa();                      // the best level this machine runs
std::string_view isa_name(IsaLevel level);  // "portable", "avx2", "avx512"

}  // namespace aicf
