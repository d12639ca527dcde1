// Which regions over rows read rows of a table where a gather would put them first (an embedding before its
// norm): one call of the kernel tile_gathered takes the place of two.
#include "calls/call_forms.h"
#include "calls/join_into_region.h"

namespace aicf {
namespace {

// Of whole rows.
bool is_row_gather(const KernelCall& call) {
  return is_form(call, JoinForm::kGather) && row_call(call)->params[0] == Dim(0) &&
         call.inputs[0].sizes.size() >= 2 && !call.inputs[1].sizes.empty() &&
         call.outputs[0].dtype != DType::boolean;
}

Decision reads_rows(const KernelCall& region, const KernelCall& gather, const CallGraph& graph) {
  const TileProgram& program = graph.program_of(region);
  if (row_call(region)->schedule->inner_rank + 1 != static_cast<int>(gather.inputs[0].sizes.size()))
    return Decision::no("a row of the region is no row of the table");
  if (program.stages.size() < 2 || sums_rows(program))
    return Decision::no("the region does not reduce its rows one by one");
  return {};
}

}  // namespace

void join_gathers(JoinSite& site, size_t at) {
  if (is_row_gather(site.call(at)))
    join_into_region(site, at,
                     {.kernel = "tile_gathered",
                      .reason = "reads the rows of a table itself",
                      .source = 0,
                      .takes = reads_rows});
}

}  // namespace aicf
