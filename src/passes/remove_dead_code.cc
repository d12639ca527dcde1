#include "passes/pass.h"

namespace aicf {

Graph remove_dead_code(const Graph& graph, const PassContext&) { return eliminate_dead_code(graph); }

}  // namespace aicf
