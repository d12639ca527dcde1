// The kernel table of CUDA targets and the launch ABI of its kernels: one row per kernel, declared in
// kernels/<family>/cuda_kernels.def and gathered here. A row turns a problem with symbolic windows into the
// text of a translation unit and its launches; codegen/ compiles the text with NVRTC, plan/ stores the
// launches, the runtime evaluates their sizes at bind. Pure functions of their arguments: nothing here needs
// a GPU.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/dim.h"
#include "base/strided.h"
#include "kernels/common/cuda_launch.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/common/kernel.h"
#include "kernels/common/tile_program.h"
#include "kernels/common/way.h"

namespace aicf {

// A strided view of device memory.
struct CudaWindow : Strided<Dim> {
  // No launch of a run writes this memory (a weight, a constant): it may be read before wait_for_inputs().
  bool constant = false;
  // Nor does a launch that can still be running when this one begins (CodeContext::running): the same.
  bool ready = false;
  // What every element is, where a constant that repeats one says so.
  std::optional<double> value = {};
  bool operator==(const CudaWindow&) const = default;
};

// The y of a product of halves may be stored in panels of so many rows of K, [K / kPanelDepth, N,
// kPanelDepth], where only the copy engine reads it: tiles of wgmma.
inline constexpr int64_t kPanelDepth = 64;

// What a kernel takes in beside its own work and the epilogue; its row knows it.
struct DualGemm {};   // matmul_pair: inputs 1 and 2 are matrices of one form, of which x times each is an
                      // operand of the program, its first two
struct Prologue;      // every block computes the first input itself (prologue.h)
struct ProductGroup;  // the product is the first of several in one launch (product_group.h)
using Fusion = std::variant<std::monostate, DualGemm, const Prologue*, const ProductGroup*>;

// What the text's functions are.
enum class CodeForm : uint8_t {
  kernel,
  // Members of a bundle, as cuda_kernel_head writes them. A row that can say its work so answers with
  // CudaCode::member; the text of any other is of no use then.
  member,
  // A member's text that calls of other sizes can have, too: sizes and strides are launch params even where
  // they are constant. A row that does not know it gives the text of a member.
  member_any_sizes,
};

// What a row is asked for. Sizes are symbolic; `ranges` bounds them.
struct CudaProblem {
  std::vector<CudaWindow> inputs, outputs;  // the kernel's own first, then those of the epilogue
  std::vector<Dim> params;                  // in the order of the row's parameter list
  std::vector<double> fparams;
  const TileProgram* program = nullptr;  // region code, or the epilogue over the result; null if none
  const SymbolRanges* ranges = nullptr;
  int arch = 80;  // compute capability × 10
  CudaMachine machine;
  Way way;  // one of cuda_variants(); nothing: the row chooses
  // Inputs that are the same memory as an output of the same window, which replaces them.
  std::vector<int32_t> replaced = {};
  // tile_gathered, tile_scattered: the input of which the last one numbers the rows.
  std::optional<int32_t> indexed = {};
  Fusion fusion = {};
  CodeForm form = CodeForm::kernel;
  bool replaces(size_t input) const {
    return std::find(replaced.begin(), replaced.end(), static_cast<int32_t>(input)) != replaced.end();
  }
};

inline bool is_fused(const CudaProblem& problem) {
  return !std::holds_alternative<std::monostate>(problem.fusion);
}
inline bool is_dual_gemm(const CudaProblem& problem) {
  return std::holds_alternative<DualGemm>(problem.fusion);
}
// Null where there is none.
inline const Prologue* prologue_of(const CudaProblem& problem) {
  const auto* prologue = std::get_if<const Prologue*>(&problem.fusion);
  return prologue != nullptr ? *prologue : nullptr;
}
inline const ProductGroup* product_group(const CudaProblem& problem) {
  const auto* group = std::get_if<const ProductGroup*>(&problem.fusion);
  return group != nullptr ? *group : nullptr;
}
inline bool is_member(const CudaProblem& problem) { return problem.form != CodeForm::kernel; }
inline bool has_any_sizes(const CudaProblem& problem) { return problem.form == CodeForm::member_any_sizes; }

// Of the symbols in the problem's sizes; empty when it has none.
const SymbolRanges& ranges_of(const CudaProblem& problem);

// One way in which a row can run a problem.
struct KernelVariant {
  Way way;                  // its text is stable: tuning records and forced choices hold it
  double microseconds = 0;  // estimated for the machine in cuda_machine.h, of CudaProblem::machine's size
  bool operator==(const KernelVariant&) const = default;
};

// What a kernel costs to compile whose loops unroll into long code, a product or attention on matrix units,
// in small kernels.
inline constexpr int kLongToCompile = 8;

struct CudaCode {
  std::string source;                // begins with its includes: "prelude.cuh", "matmul/cuda/mma.cuh"
  std::vector<CudaLaunch> launches;  // run in order, each after the one before
  Dim workspace_bytes;               // 0: no workspace argument
  // The functions are members of a bundle: their blocks count along `block_index` alone, synchronise in
  // aicf::sync_threads only, and may follow one another in one block behind it.
  bool member = false;
  int64_t static_shared_bytes = 0;  // of a member, at most
  // Of a member whose blocks write the elements of its only output in their order, so many each; 0: of
  // others.
  int64_t block_elements = 0;
  int compile_cost = 1;  // in small kernels, up to kLongToCompile
  bool operator==(const CudaCode&) const = default;
};

struct CudaKernel : KernelRow {
  int min_arch;
  CudaCode (*generate)(const CudaProblem& problem);
};

const std::vector<CudaKernel>& cuda_kernel_table();
const CudaKernel* find_cuda_kernel(std::string_view name);
// Rows that can run the problem on this architecture, best first.
std::vector<const CudaKernel*> cuda_candidates(const Problem& problem, int arch);

// The ways of a row in the order in which it would choose them; the first is what "" means. Empty for a row
// that has one way only. Needs no program in the problem.
std::vector<KernelVariant> cuda_variants(const CudaKernel& kernel, const CudaProblem& problem);

// Files that generated text may include, by the name after `#include`: every *.cuh under src/kernels.
struct CudaHeader {
  const char* name;
  const char* text;
};
const std::vector<CudaHeader>& cuda_headers();

}  // namespace aicf
