#include "calls/join_gathers.h"

#include "calls/join_into_region.h"
#include "calls/row_names.h"

namespace aicf {
namespace {

// Of whole rows.
bool is_gather(const KernelCall& call) {
  return is_row(call, kGather) && row_call(call)->params[0] == Dim(0) && call.inputs[0].sizes.size() >= 2 &&
         !call.inputs[1].sizes.empty() && call.outputs[0].dtype != DType::boolean;
}

}  // namespace

void join_gathers(CallGraph& calls, const Target& /*target*/, const SelectOptions& /*options*/) {
  const auto takes_rows = [&](const KernelCall& region, const KernelCall& gather) {
    if (!is_region_that_reads(region, gather.outputs[0]) ||
        row_call(region)->schedule->inner_rank + 1 != static_cast<int>(gather.inputs[0].sizes.size()))
      return false;
    const TileProgram& program = calls.program_of(region);
    return program.stages.size() > 1 && !sums_rows(program);
  };
  join_into_regions(calls, {.kernel = "tile_gathered",
                            .reason = "reads the rows of a table itself",
                            .source = 0,
                            .indices = 1,
                            .may_join = is_gather,
                            .takes = takes_rows});
}

}  // namespace aicf
