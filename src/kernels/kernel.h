// Kernel tables, and the one of the CPU: one row per kernel, declared in kernels/<family>/kernels.def and
// gathered here; cuda_kernel.h has the table of CUDA kernels. Selection asks can_run with a Problem (shapes
// may be symbolic), the runtime finds the row by name and calls prepare.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/dim.h"
#include "base/dtype.h"
#include "kernels/abi.h"

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

// What every kernel table says of a kernel, whatever it runs on.
struct KernelRow {
  std::string_view name;  // family, types, shape class: "matmul_f32_packed"
  std::string_view family;
  std::string_view params, fparams;  // their names in order, comma separated: "axis, batch_dims"
  std::string_view accumulation;     // what the order of accumulation depends on: "none", "length"
  double tolerance;  // max relative error against the f64 reference, in units of the result dtype's epsilon ×
                     // sqrt(length)
  int priority;      // among rows that can run the highest wins
  bool accepts_program;  // takes an epilogue tile program over its result
  bool (*can_run)(const Problem& problem);
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

IsaLevel detect_isa();                      // the best level this machine runs
std::string_view isa_name(IsaLevel level);  // "portable", "avx2", "avx512"

}  // namespace aicf
