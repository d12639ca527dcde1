#include "ir/precision.h"
#include "passes/pass.h"

namespace aicf {

Graph narrow_contractions(const Graph& graph, const PassContext& context) {
  const std::optional<DType> dtype = contraction_dtype(context.precision);
  return dtype ? narrow_contractions(graph, *dtype) : graph;
}

}  // namespace aicf
