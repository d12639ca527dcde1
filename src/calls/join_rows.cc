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

constexpr char kRowsKernel[] = "matmul_rows";

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

// The two calls, and where what one stores is what the other reads: result `from`, input `middle`.
struct RowEpilogue {
  const KernelCall &product, &rows;
  size_t from = 0, middle = 0;
  std::vector<Window> inputs = {}, outputs = {};  // of the region, over the axes of the product
  std::vector<bool> kept = {};                    // of the product's results
};

Decision merge_operands(RowEpilogue& e) {
  const size_t rank = e.product.outputs[0].sizes.size();
  for (const auto& [from, to] :
       {std::pair(&e.rows.inputs, &e.inputs), std::pair(&e.rows.outputs, &e.outputs)})
    for (const Window& w : *from) {
      const auto merged = over_rows(w, rank);
      if (!merged) return Decision::no("an operand of the region does not lie over the product's rows");
      to->push_back(*merged);
    }
  const std::vector<Window>& results = e.product.outputs;
  const auto middle = std::find_first_of(e.inputs.begin(), e.inputs.end(), results.begin(), results.end());
  if (middle == e.inputs.end()) return Decision::no("the region reads no whole result");
  if (!(e.outputs[0].sizes == results[0].sizes)) return Decision::no("the outputs do not cover the result");
  e.middle = static_cast<size_t>(middle - e.inputs.begin());
  e.from = static_cast<size_t>(std::find(results.begin(), results.end(), *middle) - results.begin());
  // Only the thread that made them has seen the product's results.
  for (size_t i = 0; i < e.inputs.size(); ++i)
    if (i != e.middle && has_root(results, e.inputs[i].root))
      return Decision::no("the region reads the product twice");
  return {};
}

KernelCall operands_of_both(const RowEpilogue& e) {
  KernelCall joined;
  joined.what = RowCall{.row = kRowsKernel, .programs = row_call(e.product)->programs};
  joined.inputs = e.product.inputs;
  for (size_t i = 0; i < e.inputs.size(); ++i)
    if (i != e.middle) joined.inputs.push_back(e.inputs[i]);
  for (size_t i = 0; i < e.kept.size(); ++i)
    if (e.kept[i]) joined.outputs.push_back(e.product.outputs[i]);
  joined.outputs.insert(joined.outputs.end(), e.outputs.begin(), e.outputs.end());
  joined.origins = united_origins(e.product, e.rows);
  joined.choice.key = e.product.choice.key;
  return joined;
}

Decision programs_fit(const RowEpilogue& e, const CallGraph& graph, const KernelCall& joined) {
  const TileProgram& first = graph.program_of(e.product);
  const size_t operands = joined.inputs.size() + joined.outputs.size();
  if (Decision d = can_join(first, e.from, graph.program_of(e.rows), operands); !d) return d;
  const auto operand = static_cast<int16_t>(first.inputs.size() + e.from);
  const bool stores =
      std::any_of(first.stages[0].begin(), first.stages[0].end(), [&](const TileInstr& instr) {
        return instr.op == TileOp::store && instr.operand == operand && instr.type == TileType::f32 &&
               instr.a < kTileScalarBase;
      });
  return stores ? Decision() : Decision::no("the result between them is not computed in f32");
}

}  // namespace

void join_rows(JoinSite& site, size_t at) {
  if (!is_joinable_product(site.call(at), site.graph())) return;
  const std::optional<size_t> found = find_rows(site, at);
  if (!found) return;
  const std::vector<size_t> both = {at, *found};
  RowEpilogue e{site.call(at), site.call(*found)};
  if (const Decision d = merge_operands(e); !d) return site.refuse(both, d.why());
  for (const Window& w : e.product.outputs)
    e.kept.push_back(site.legality().others_need(w.root, {at, *found}));
  KernelCall joined = operands_of_both(e);
  if (const Decision d = programs_fit(e, site.graph(), joined); !d) return site.refuse(both, d.why());
  row_call(joined)->programs[0].index = site.next_program();
  const double apart =
      site.microseconds(e.product) + site.rule().target.facts().edge_microseconds + site.microseconds(e.rows);
  site.offer({.remove = both,
              .insert = std::move(joined),
              .at = at,
              .program = joined_program(site.program_of(e.product), e.from, e.kept, site.program_of(e.rows),
                                        e.middle),
              .open = {at},
              .price = {{"a product and its rows", apart}}});
}

}  // namespace aicf
