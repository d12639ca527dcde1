#include "ir/precision.h"
#include "passes/pass.h"

namespace aicf {

Graph narrow_contractions(const Graph& graph, const PassContext& context) {
  if (context.precision == Precision::kTf32) return multiply_in_tf32(graph);
  const std::optional<DType> dtype = contraction_dtype(context.precision);
  return dtype ? narrow_contractions(graph, *dtype) : graph;
}

}  // namespace aicf
