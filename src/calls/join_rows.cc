// Which regions over rows become the end of the product before them, on a GPU with clusters: where a product
// and a region that reduces rows of its results take less time as one kernel (matmul_rows), one call takes
// the place of both, with a joined program. A choice of the caller's that names the product decides over it.
#include <algorithm>
#include <optional>
#include <utility>

#include "calls/call_forms.h"
#include "calls/join_site.h"

namespace aicf {
namespace {

bool reduces_rows(const KernelCall& call, const CallGraph& graph) {
  return is_region(call) && row_call(call)->schedule->inner_rank == 1 &&
         graph.program_of(call).stages.size() > 1;
}

// The first region that reads the product's results by rows.
std::optional<size_t> find_rows(const JoinSite& site, size_t product) {
  std::optional<size_t> rows;
  for (const Window& w : site.call(product).outputs)
    for (const size_t reader : site.legality().readers(w.root))
      if (reader > product && reduces_rows(site.call(reader), site.graph()))
        rows = std::min(rows.value_or(reader), reader);
  return rows;
}

// The region over the axes of the product, and where what one stores is what the other reads: the product's
// result `from`, the region's input `middle`.
struct RowEpilogue {
  BoundProgram region = {};
  size_t from = 0, middle = 0;
};

Decision find_epilogue(const std::vector<Window>& results, const KernelCall& rows, const CallGraph& graph,
                       RowEpilogue& e) {
  const auto region = over_rows(bound_program(rows, graph), results[0].sizes.size());
  if (!region) return Decision::no("an operand of the region does not lie over the product's rows");
  e.region = *region;
  const std::vector<Window>& inputs = e.region.inputs;
  const auto middle = std::find_first_of(inputs.begin(), inputs.end(), results.begin(), results.end());
  if (middle == inputs.end()) return Decision::no("the region reads no whole result");
  e.middle = static_cast<size_t>(middle - inputs.begin());
  e.from = static_cast<size_t>(std::find(results.begin(), results.end(), *middle) - results.begin());
  return {};
}

Decision forwards_f32(const TileProgram& program, size_t from) {
  if (const Decision d = forwards_half(program, from); !d) return d;
  const auto operand = static_cast<int16_t>(program.inputs.size() + from);
  const bool stores =
      std::any_of(program.stages[0].begin(), program.stages[0].end(), [&](const TileInstr& instr) {
        return instr.op == TileOp::store && instr.operand == operand && instr.type == TileType::f32 &&
               instr.a < kTileScalarBase;
      });
  return stores ? Decision() : Decision::no("the result between them is not computed in f32");
}

}  // namespace

void join_rows(JoinSite& site, size_t at) {
  const KernelCall& product = site.call(at);
  if (!is_joinable_product(product, site.graph())) return;
  const std::optional<size_t> rows = find_rows(site, at);
  if (!rows) return;
  const std::vector<size_t> calls = {at, *rows};
  RowEpilogue e;
  Decision decision = find_epilogue(product.outputs, site.call(*rows), site.graph(), e);
  if (decision) decision = forwards_f32(site.program_of(product), e.from);
  if (!decision) return site.refuse(calls, decision.why());
  const BoundProgram both =
      site.joined_behind(at, bound_program(product, site.graph()), e.from, *rows, e.region, e.middle);
  KernelCall call;
  call.what = RowCall{.row = "matmul_rows", .programs = row_call(product)->programs};
  call.inputs = {product.inputs[0], product.inputs[1]};
  call.inputs.insert(call.inputs.end(), both.inputs.begin(), both.inputs.end());
  call.outputs = both.outputs;
  call.choice.key = product.choice.key;
  site.offer({.remove = calls,
              .insert = std::move(call),
              .at = at,
              .program = both.program,
              .open = {at},
              .price = {{"a product and its rows", site.apart(calls)}}});
}

}  // namespace aicf
