// The reference evaluator: what a program means, computed plainly. It takes a checked program, one of its
// entries and input arrays, and gives outputs and updated variables. Everything is computed in f64 (integers
// in i64); a float result is rounded once to its op's dtype, or never (`round_to_dtype = false`, the "f64
// run" that judges precision).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace aicf {

namespace reference {
class RoundingNoise;
}

struct EvalOptions {
  // false: float values stay f64 through the whole graph and come back as f64 arrays.
  bool round_to_dtype = true;
  // What moves every result as a kernel's rounding might (rounding_noise.h); null: nothing.
  reference::RoundingNoise* noise = nullptr;
};

struct EvalInputs {
  std::map<std::string, Array> inputs;
  SymbolValues sizes;  // sizes that no input's shape decides; the others are bound from the arrays
};

struct EvalResult {
  std::map<std::string, Array> outputs;
  std::map<std::string, Array> updated;  // params and states the entry writes, by name
  SymbolValues sizes;                    // every size that was bound
};

// Float inputs may be given as f64 arrays whatever their dtype, and are then rounded first unless this is an
// f64 run. `variable_overrides` replaces the contents of params and states by name. Errors: missing_input,
// unknown_input, input_dtype, input_shape, size_conflict, size_out_of_range, unset_size, unknown_param,
// index_out_of_range.
EvalResult evaluate(const Program& program, const Graph& entry, const EvalInputs& inputs,
                    const EvalOptions& options = {},
                    const std::map<std::string, Array>* variable_overrides = nullptr);

// One node over its operands (whatever stands for an absent optional one is not read), results rounded to
// their dtypes. Every size in the results' types must be constant or in `sizes`.
std::vector<Array> evaluate_node(const Graph& graph, const Node& node, const std::vector<Array>& operands,
                                 const SymbolValues& sizes);
// About how many elements evaluate_node looks at, for callers that bound what they fold; shapes are constant.
double evaluation_work(const Graph& graph, const Node& node);
// Seconds of it, not minutes: what a file may ask for before it runs.
inline constexpr double kMaxFoldedWork = 1 << 29;

}  // namespace aicf
