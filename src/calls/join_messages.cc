// Which scatters make their updates themselves, where a pointwise region or a gather of rows would put them
// into memory first (the messages of a graph network, and their gradients): one call of the kernel
// scatter_messages takes the place of the scatter, the region and gathers that only the region reads.
#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "calls/call_forms.h"
#include "calls/join_site.h"
#include "kernels/common/scatter_order.h"
#include "kernels/common/tile_program.h"
#include "select/layout.h"

namespace aicf {
namespace {

constexpr size_t kOwn = 2;  // x and indices, before the program's operands

// Whether axes from `first` on have one element.
bool repeats(const std::vector<Dim>& strides, size_t first) {
  return std::all_of(strides.begin() + static_cast<std::ptrdiff_t>(first), strides.end(),
                     [](const Dim& stride) { return stride == Dim(0); });
}

// Indices of rows [..., 1], whether they say one for each row or for every element of it the same.
std::optional<Window> row_indices(const KernelCall& call) {
  Window indices = call.inputs[1];
  const std::vector<Dim>& params = row_call(call)->params;
  if (is_form(call, JoinForm::kScatter))
    return indices.sizes.back() == Dim(1) ? std::optional(indices) : std::nullopt;
  const bool is_first =
      is_form(call, JoinForm::kScatterElements) && params[0] == Dim(0) && !indices.sizes.empty();
  if (!is_first || !repeats(indices.strides, 1)) return std::nullopt;
  indices.sizes = {indices.sizes[0], Dim(1)};
  indices.strides = {indices.strides[0], Dim(0)};
  return indices;
}

// The indices of a scatter of rows along the first axis, [..., 1]: an index for each of the updates. Rows
// have more than one element, and each is reached as a whole.
std::optional<Window> row_scatter(const KernelCall& call) {
  const RowCall* row = row_call(call);
  if (row == nullptr || facts_of(row->row).work != WorkForm::kScatter) return std::nullopt;
  const Window &updates = call.inputs[2], &out = call.outputs[0];
  std::optional<Window> indices = row_indices(call);
  if (!indices || row->params.back() == Dim(0) || out.dtype == DType::boolean || out.sizes.size() < 2)
    return std::nullopt;
  Shape domain(indices->sizes.begin(), indices->sizes.end() - 1);
  domain.insert(domain.end(), out.sizes.begin() + 1, out.sizes.end());
  const bool whole =
      updates.sizes == domain && is_row_major(updates) && element_count(out.sizes) != out.sizes[0];
  return whole ? indices : std::nullopt;
}

// What a call reads rows of, and what numbers them; of results [..., row].
struct RowGather {
  Window table, indices;
};

std::optional<RowGather> row_gather(const KernelCall& call) {
  if (!(is_form(call, JoinForm::kGather) || is_form(call, JoinForm::kGatherElements)) ||
      row_call(call)->params[0] != Dim(0))
    return std::nullopt;
  const Window& table = call.inputs[0];
  Window indices = call.inputs[1];
  if (table.sizes.empty() || call.outputs[0].dtype == DType::boolean || !is_row_major(call.outputs[0]))
    return std::nullopt;
  if (is_form(call, JoinForm::kGather)) return RowGather{table, indices};
  // Of gather_elements: the same index for every element of a row.
  if (indices.sizes.empty() || !repeats(indices.strides, 1) ||
      !std::equal(indices.sizes.begin() + 1, indices.sizes.end(), table.sizes.begin() + 1))
    return std::nullopt;
  indices.sizes.resize(1);
  indices.strides.resize(1);
  return RowGather{table, indices};
}

// The table in the form of an operand that reads the gather's result, its rows in the place of the
// first axes: of all elements of a row, or of one for all.
std::optional<Window> table_for(const Window& operand, const RowGather& gather, const Window& result) {
  const size_t rows = gather.indices.sizes.size();
  if (operand.sizes.size() < rows || operand.offset != result.offset ||
      !std::equal(operand.sizes.begin(), operand.sizes.begin() + static_cast<std::ptrdiff_t>(rows),
                  result.sizes.begin()) ||
      !std::equal(operand.strides.begin(), operand.strides.begin() + static_cast<std::ptrdiff_t>(rows),
                  result.strides.begin()))
    return std::nullopt;
  Window table = gather.table;
  table.sizes.resize(1);
  table.strides.resize(1);
  const bool same_axes = operand.sizes.size() == result.sizes.size();
  for (size_t i = rows; i < operand.sizes.size(); ++i) {
    const bool repeats = operand.strides[i] == Dim(0);
    if (!repeats &&
        !(same_axes && operand.sizes[i] == result.sizes[i] && operand.strides[i] == result.strides[i]))
      return std::nullopt;
    table.sizes.push_back(operand.sizes[i]);
    table.strides.push_back(repeats ? Dim(0) : gather.table.strides[1 + i - rows]);
  }
  return table;
}

TileProgram copy_program(DType dtype) {
  const TileType type = tile_register_type(dtype);
  return {{dtype},
          {dtype},
          {{type}},
          {},
          {{{.op = TileOp::load, .type = type, .dst = 0, .operand = 0},
            {.op = TileOp::store, .type = type, .a = 0, .operand = 1}}}};
}

// What makes updates: a program over operands, the calls that go because of it, and what numbers the rows of
// operands that are tables.
struct Messages {
  TileProgram program;
  std::vector<Window> operands, lists = {};
  std::vector<Dim> tables = {};  // by operand: the call's input that numbers its rows; -1: it is no table
  std::vector<size_t> calls;     // ascending; the scatter is the last
};

std::optional<Messages> messages_of(const JoinSite& site, size_t producer, size_t scatter) {
  const KernelCall& call = site.call(producer);
  if (is_pointwise_region(call, site.graph()))
    return Messages{.program = site.program_of(call), .operands = call.inputs, .calls = {producer, scatter}};
  if (!row_gather(call)) return std::nullopt;
  return Messages{
      .program = copy_program(call.outputs[0].dtype), .operands = {call.outputs[0]}, .calls = {scatter}};
}

// In place of a gather's result that none but these calls needs, the table.
void take_gather(const JoinSite& site, Window& operand, Messages& messages) {
  messages.tables.emplace_back(-1);
  const std::optional<size_t> writer = site.legality().sole_writer(operand.root, messages.calls.back());
  if (!writer || !site.needed_by_none_but(operand.root, messages.calls)) return;
  const KernelCall& call = site.call(*writer);
  const std::optional<RowGather> gather = row_gather(call);
  const std::optional<Window> table =
      gather ? table_for(operand, *gather, call.outputs[0]) : std::optional<Window>();
  if (!table) return;
  operand = *table;
  auto& lists = messages.lists;
  const auto list = std::find(lists.begin(), lists.end(), gather->indices);
  messages.tables.back() =
      Dim(static_cast<int64_t>(kOwn + messages.operands.size()) + (list - lists.begin()));
  if (list == lists.end()) lists.push_back(gather->indices);
  auto& calls = messages.calls;
  if (const auto place = std::lower_bound(calls.begin(), calls.end(), *writer); *place != *writer)
    calls.insert(place, *writer);
}

// The call that makes the updates of the scatter where they are combined.
KernelCall with_messages(const KernelCall& call, const Window& indices, const Messages& messages) {
  KernelCall joined = call;
  RowCall row{.row = "scatter_messages", .params = {row_call(call)->params.back()}};
  row.params.insert(row.params.end(), messages.tables.begin(), messages.tables.end());
  row.programs = {{ProgramRole::kPrologue, -1, kOwn}};
  joined.inputs = {call.inputs[0], indices};
  joined.inputs.insert(joined.inputs.end(), messages.operands.begin(), messages.operands.end());
  joined.inputs.insert(joined.inputs.end(), messages.lists.begin(), messages.lists.end());
  if (order_memory(call.inputs.size(), call.outputs.size()) == OrderMemory::kTaken)
    joined.inputs.push_back(call.inputs.back());
  joined.elementwise.clear();
  joined.choice = {};
  joined.reason = "makes its updates itself; " + call.reason;
  joined.what = std::move(row);
  return joined;
}

Decision are_updates(const JoinSite& site, size_t producer, size_t scatter, const Window& updates) {
  const KernelCall& call = site.call(producer);
  if (const Decision d = site.needed_by_none_but(updates.root, {producer, scatter}); !d) return d;
  if (call.outputs.size() != 1 || !(call.outputs[0] == updates))
    return Decision::no("the updates are not all that is made, or of another form");
  return {};
}

// Instructions of an element: a function takes about as many as thirty others.
double instructions_of(const TileProgram& program) {
  double count = 0;
  for (const TileInstr& instr : program.stages[0]) count += is_tile_function(instr.op) ? 30 : 1;
  return count;
}

// In microseconds, against the scatter of stored updates. What calls hand each other mostly comes from the
// second-level cache.
struct Balance {
  double saved = 0, added = 0;
};

Balance balance_of(const JoinSite& site, const KernelCall& scatter, const Messages& messages) {
  constexpr double kNear = 1.7;     // times the memory's rate
  constexpr double kIssued = 0.25;  // of the rate of flops, beside what waits for memory
  constexpr double kLatency = 1.3;  // of updates asked for together: an index, then the row
  constexpr double kAhead = 4;      // those of a thread
  constexpr double kMostRun = 128;  // of updates that a thread adds up
  constexpr double kThreads = 512;  // of a multiprocessor
  const TargetFacts& facts = site.context().target.facts();
  const auto number = [&](const Dim& dim) {
    return static_cast<double>(std::max<int64_t>(bounds(dim, site.graph().ranges).hi, 1));
  };
  const Window &updates = scatter.inputs[2], &out = scatter.outputs[0];
  const double elements = number(element_count(updates.sizes)), places = number(out.sizes[0]),
               all = number(element_count(out.sizes)), run = elements / all;
  const double pass = elements * dtype_bytes(updates.dtype) / (kNear * facts.bytes_per_microsecond);
  const auto gathered = static_cast<double>(std::count_if(messages.tables.begin(), messages.tables.end(),
                                                          [](const Dim& d) { return d != Dim(-1); }));
  const auto gone = static_cast<double>(messages.calls.size() - 1);
  Balance balance;
  balance.saved = gone * (facts.edge_microseconds + 2 * pass);
  double wait = 0;
  if (gathered > 0) {
    const double threads = places * std::max(1.0, all / places * dtype_bytes(out.dtype) / 16);
    wait = kLatency * std::ceil(std::min(run, kMostRun) / kAhead) *
           std::max(1.0, threads / (kThreads * facts.multiprocessors));
  }
  balance.added = std::max(gathered * pass, wait) +
                  elements * instructions_of(messages.program) / (kIssued * facts.float_flops);
  return balance;
}

}  // namespace

void join_messages(JoinSite& site, size_t at) {
  const KernelCall& scatter = site.call(at);
  const std::optional<Window> indices = row_scatter(scatter);
  if (!indices) return;
  const Window& updates = scatter.inputs[2];
  const std::optional<size_t> producer = site.legality().sole_writer(updates.root, at);
  std::optional<Messages> messages = producer ? messages_of(site, *producer, at) : std::nullopt;
  if (!messages) return;
  if (const Decision d = are_updates(site, *producer, at, updates); !d)
    return site.refuse({*producer, at}, d.why());
  for (size_t i = 0; i < messages->operands.size(); ++i) take_gather(site, messages->operands[i], *messages);
  KernelCall joined = with_messages(scatter, *indices, *messages);
  const Balance balance = balance_of(site, scatter, *messages);
  const double together = site.price(at) + balance.added, apart = site.price(at) + balance.saved;
  if (together >= apart)
    return site.refuse(
        messages->calls,
        "priced " + format_fixed(together, 1) + " us together, " + format_fixed(apart, 1) + " us apart",
        together);
  site.offer({.remove = std::move(messages->calls),
              .insert = std::move(joined),
              .at = at,
              .program = std::move(messages->program),
              .microseconds = together});
}

}  // namespace aicf
