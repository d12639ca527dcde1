// The half of the driver of joins that knows memory alone: whether all values of a proposal reach those who
// need them, and whether its calls may come together.
#include <algorithm>

#include "calls/call_windows.h"
#include "calls/join_site.h"

namespace aicf {
namespace {

std::string value_name(ValueId root, const CallGraph& calls) {
  const bool named = !calls.is_extra(root) && !calls.name_of(root).empty();
  return named ? "'" + calls.name_of(root) + "'" : "%" + std::to_string(root);
}

// Whether these results of a later call may be written while an earlier one still runs: over nothing that it
// reads but, in the very same window, an operand of its epilogue, which the thread that writes an element has
// read.
bool may_overwrite(const KernelCall& earlier, const std::vector<Window>& results) {
  const RowCall* row = row_call(earlier);
  const bool ends = row != nullptr && has_program(earlier, ProgramRole::kEpilogue);
  const size_t operands = ends ? static_cast<size_t>(row->programs[0].first_operand) : earlier.inputs.size();
  for (size_t i = 0; i < earlier.inputs.size(); ++i) {
    const Window& read = earlier.inputs[i];
    const bool in_step = i >= operands && std::find(results.begin(), results.end(), read) != results.end();
    if (has_root(results, read.root) && !in_step) return false;
  }
  return true;
}

// Elements of a value that the windows cover.
Dim elements_of(ValueId root, const std::vector<Window>& windows) {
  Dim all(0);
  for (const Window& w : windows) {
    if (w.root != root) continue;
    Dim count(1);
    for (size_t i = 0; i < w.sizes.size(); ++i)
      if (w.strides[i] != Dim(0)) count = count * w.sizes[i];
    all = all + count;
  }
  return all;
}

}  // namespace

Decision JoinSite::needed_by_none_but(ValueId root, const std::vector<size_t>& calls) const {
  if (legality_.is_kept(root)) return Decision::no(value_name(root, graph()) + " is kept after the run");
  for (const size_t reader : legality_.readers(root))
    if (std::find(calls.begin(), calls.end(), reader) == calls.end())
      return Decision::no(value_name(root, graph()) + " is read by " + quoted(call(reader)));
  return {};
}

// Whether all that others need is stored, and nothing is overwritten before all of it is read. Members of a
// group run side by side.
Decision JoinSite::keeps_values(const Proposal& p) const {
  // Parts of one value that different calls write count together.
  std::vector<Window> written;
  for (const size_t at : p.remove)
    for (const Window& w : call(at).outputs)
      if (std::find(written.begin(), written.end(), w) == written.end()) written.push_back(w);
  for (const Window& w : written)
    if (bounds(elements_of(w.root, p.insert.outputs) - elements_of(w.root, written), graph().ranges).lo < 0)
      if (const Decision d = needed_by_none_but(w.root, p.remove); !d) return d;
  for (const size_t earlier : p.remove)
    for (const size_t later : p.remove)
      if (earlier < later && !may_overwrite(call(earlier), call(later).outputs))
        return Decision::no(quoted(call(later)) + " overwrites what " + quoted(call(earlier)) + " reads");
  if (const auto* group = std::get_if<GroupedProducts>(&p.insert.what))
    for (const KernelCall& one : group->members)
      for (const KernelCall& other : group->members)
        if (&one != &other &&
            (share_root(one.outputs, other.inputs) || share_root(one.outputs, other.outputs)))
          return Decision::no("a member would read what another one writes");
  return {};
}

// One program has what it hands on in registers: it cannot read it from memory as well.
Decision JoinSite::reads_once(const Proposal& p) const {
  for (const size_t writer : p.remove)
    for (const Window& w : call(writer).outputs) {
      auto reads = count_root(p.insert.inputs, w.root);
      for (const size_t at : p.remove)
        if (at <= writer) reads -= count_root(call(at).inputs, w.root);
      if (reads > 0) return Decision::no(value_name(w.root, graph()) + " is read a second time");
    }
  return {};
}

// Those between the first and another one that this one has to stay behind.
std::set<size_t> JoinSite::needed_calls(const Proposal& p) const {
  std::set<size_t> needed;
  for (const size_t from : p.remove) {
    std::vector<size_t> known = p.remove;
    while (from > p.at) {
      const std::optional<size_t> next = legality_.obstacle(from, p.at + 1, known);
      if (!next) break;
      known.push_back(*next);
      needed.insert(*next);
    }
  }
  return needed;
}

Decision JoinSite::lift_needed(const Proposal& p, Place& place) const {
  for (const size_t needed : needed_calls(p)) {
    if (!legality_.obstacle(needed, p.at, place.rise))
      place.rise.push_back(needed);
    else
      place.at = needed, place.behind = true;
  }
  for (const size_t from : p.remove)
    if (from > p.at && from < place.at)
      return Decision::no(quoted(call(from)) + " would stand behind " + quoted(call(place.at)));
  return {};
}

// Whether all can come to where the one call stands. Those that go do not pass each other: it does the work
// of both.
Decision JoinSite::legal(const Proposal& p, const Place& place) const {
  std::vector<size_t> beside = place.rise;
  beside.insert(beside.end(), p.remove.begin(), p.remove.end());
  for (const size_t from : p.remove) {
    if (from == place.at) continue;
    const size_t to = from > place.at ? place.at + 1 : place.behind ? place.at : place.at - 1;
    if (const auto obstacle = legality_.obstacle(from, to, beside))
      return Decision::no(quoted(call(from)) + " cannot pass " + quoted(call(*obstacle)));
  }
  return {};
}

}  // namespace aicf
