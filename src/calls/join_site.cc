#include "calls/join_site.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "calls/call_windows.h"
#include "calls/joined_program.h"
#include "select/cost_model.h"

namespace aicf {
namespace {

constexpr size_t kRoom = 3;  // empty places between calls, for calls that move

std::string quoted(const KernelCall& call) { return "'" + origin_text(call) + "'"; }

bool has_source(const KernelCall& call, ChoiceSource source) { return call.choice.source == source; }

std::string value_name(ValueId root, const CallGraph& calls) {
  const bool named = !calls.is_extra(root) && !calls.name_of(root).empty();
  return named ? "'" + calls.name_of(root) + "'" : "%" + std::to_string(root);
}

// Those that run the program of a proposal: all members of a group.
std::vector<KernelCall*> calls_with_program(KernelCall& insert) {
  std::vector<KernelCall*> calls;
  if (auto* group = std::get_if<GroupedProducts>(&insert.what))
    for (KernelCall& member : group->members) calls.push_back(&member);
  else
    calls.push_back(&insert);
  return calls;
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

}  // namespace

double JoinSite::microseconds(const KernelCall& call) const {
  const Choice& choice = call.choice;
  return choice.candidates.empty()
             ? estimate_microseconds(call, own_row(call)->row, rule_.target, graph().ranges)
             : choice.candidates[choice.chosen].price_us;
}

double JoinSite::apart(const std::vector<size_t>& calls) const {
  double total = microseconds(call(calls.back()));
  for (size_t i = 0; i + 1 < calls.size(); ++i)
    total += rule_.target.facts().edge_microseconds + microseconds(call(calls[i]));
  return total;
}

bool JoinSite::offer(Proposal p) {
  complete(p);
  Decision decision = keeps_values(p);
  if (decision) decision = legal(p);
  if (decision && p.program) decision = program_fits(*p.program, *calls_with_program(p.insert)[0]);
  if (decision && p.price) decision = take_best_way(p);
  if (decision) return take(p);
  refuse(p.remove, decision.why(), p.microseconds);
  return false;
}

void JoinSite::refuse(const std::vector<size_t>& calls, const std::string& why, double microseconds) const {
  if (!rule_.reports()) return;
  rule_.report(origins_of(calls), false, "not joined: " + why, microseconds);
}

Decision JoinSite::needed_by_none_but(ValueId root, const std::vector<size_t>& calls) const {
  if (legality_.is_kept(root)) return Decision::no(value_name(root, graph()) + " is kept after the run");
  for (const size_t reader : legality_.readers(root))
    if (std::find(calls.begin(), calls.end(), reader) == calls.end())
      return Decision::no(value_name(root, graph()) + " is read by " + quoted(call(reader)));
  return {};
}

std::vector<bool> JoinSite::kept_results(const std::vector<Window>& results,
                                         std::initializer_list<size_t> calls) const {
  std::vector<bool> kept;
  for (const Window& w : results) kept.push_back(legality_.others_need(w.root, calls));
  return kept;
}

void JoinSite::scan(void (*propose)(JoinSite&, size_t at)) {
  while (next_ < calls_.size()) {
    const size_t at = next_++;
    if (!is_removed(calls_[at])) propose(*this, at);
  }
  finish();
}

// The nodes that the calls came from, and the number that the program will have.
void JoinSite::complete(Proposal& p) const {
  p.insert.origins.clear();
  for (const size_t at : p.remove)
    p.insert.origins.insert(p.insert.origins.end(), call(at).origins.begin(), call(at).origins.end());
  if (p.program)
    for (KernelCall* one : calls_with_program(p.insert))
      row_call(*one)->programs[0].index = static_cast<int>(programs_.size());
}

// Whether all that others need is stored, and nothing is overwritten before all of it is read.
Decision JoinSite::keeps_values(const Proposal& p) const {
  for (const size_t at : p.remove)
    for (const Window& w : call(at).outputs)
      if (!has_root(p.insert.outputs, w.root))
        if (const Decision d = needed_by_none_but(w.root, p.remove); !d) return d;
  for (const size_t earlier : p.remove)
    for (const size_t later : p.remove)
      if (earlier < later && !may_overwrite(call(earlier), call(later).outputs))
        return Decision::no(quoted(call(later)) + " overwrites what " + quoted(call(earlier)) + " reads");
  return {};
}

// Whether all can come to where the one call stands.
Decision JoinSite::legal(const Proposal& p) const {
  for (const size_t from : p.remove) {
    if (from == p.at && !p.behind) continue;
    const size_t to = from > p.at ? p.at + 1 : p.behind ? p.at : p.at - 1;
    if (const auto obstacle = legality_.obstacle(from, to, p.rise))
      return Decision::no(quoted(call(from)) + " cannot pass " + quoted(call(*obstacle)));
  }
  for (const size_t at : p.open)
    if (!has_source(call(at), ChoiceSource::kRank))
      return Decision::no(has_source(call(at), ChoiceSource::kRecord)
                              ? "legal, but the record of " + quoted(call(at)) + " wants it apart"
                              : "legal, but the caller's choice wants " + quoted(call(at)) + " apart");
  return {};
}

// The cheapest way, if it is cheaper than the calls apart, or the one that a record of the call's key or the
// caller wants: sets the call's way, choice and reason.
Decision JoinSite::take_best_way(Proposal& p) const {
  KernelCall& joined = p.insert;
  RowCall& row = *row_call(joined);
  Choice& choice = joined.choice;
  const CudaProblem problem = call_problem(joined, context(), p.program ? &*p.program : nullptr);
  for (const KernelVariant& way : cuda_variants(*find_cuda_kernel(row.row), problem))
    choice.candidates.push_back({row.row, way.way, way.microseconds});
  if (choice.candidates.empty()) return Decision::no(row.row + " has no way to do both");
  const auto want = [&](const std::string& name, ChoiceSource source) {
    for (size_t i = choice.candidates.size(); i-- > 0;)
      if (name == row.row || name == to_string(choice.candidates[i]))
        choice.chosen = i, choice.source = source;
  };
  if (const auto recorded = recorded_join(choice.key, row.row, rule_.options)) {
    want(recorded->record->choice, ChoiceSource::kRecord);
    if (has_source(joined, ChoiceSource::kRecord))
      set_price(choice.candidates[choice.chosen], *recorded, p.price->apart);
  }
  for (const ForcedChoice& forced : rule_.options.forced)
    if (std::any_of(p.price->families.begin(), p.price->families.end(),
                    [&](const char* family) { return is_meant(forced, joined, family); }))
      want(forced.candidate, ChoiceSource::kForced);
  const Candidate& chosen = choice.candidates[choice.chosen];
  row.way = chosen.way;
  p.microseconds = chosen.estimate_us;
  const std::string apart = format_fixed(p.price->apart, 1);
  joined.reason = joined_reason(choice.source) + p.price->what + " in one kernel, estimated " +
                  format_fixed(chosen.estimate_us, 1) + " us, apart " + apart + " us";
  for (const size_t at : p.remove)
    if (has_source(call(at), ChoiceSource::kForced) && choice.source != ChoiceSource::kForced)
      return Decision::no("legal, but the caller's choice wants " + quoted(call(at)) + " apart");
  if (choice.source != ChoiceSource::kRank || chosen.price_us < p.price->apart) return {};
  return Decision::no(format_fixed(chosen.price_us, 1) + " us together, " + apart + " us apart");
}

std::vector<std::string> JoinSite::origins_of(const std::vector<size_t>& places) const {
  std::vector<std::string> origins;
  for (const size_t at : places) origins.push_back(origin_text(call(at)));
  return origins;
}

// Of what stood there and what does now.
std::vector<ValueId> JoinSite::roots_at(const std::vector<std::pair<size_t, KernelCall>>& before) const {
  std::vector<ValueId> roots;
  for (const auto& [at, old] : before)
    for (const KernelCall* call : {&old, static_cast<const KernelCall*>(&calls_[at])})
      for (const auto* list : {&call->inputs, &call->outputs})
        for (const Window& w : *list) roots.push_back(w.root);
  return roots;
}

// Empty places for what moves.
void JoinSite::make_room(Proposal& p) {
  const size_t first = p.remove.front();
  const auto is_free = [&](size_t at) { return at < calls_.size() && is_removed(calls_[at]); };
  bool has_room = first >= p.rise.size() && (!p.behind || is_free(p.at + 1));
  for (size_t i = 1; has_room && i <= p.rise.size(); ++i) has_room = is_free(first - i);
  if (has_room) return;
  const std::vector<size_t> places = legality_.spread(std::max(kRoom, p.rise.size()));
  for (auto* list : {&p.remove, &p.rise})
    for (size_t& at : *list) at = places[at];
  p.at = places[p.at];
  next_ = places[next_];
  live_.reset();
}

bool JoinSite::take(Proposal& p) {
  make_room(p);
  if (p.most_memory && !live_) live_.emplace(graph(), legality_);
  const double most = p.most_memory ? *p.most_memory * static_cast<double>(live_->peak()) : 0;
  const std::string reason = p.insert.reason;
  const std::vector<std::string> origins = origins_of(p.remove);
  std::vector<std::pair<size_t, KernelCall>> before;  // what stood where
  const auto put = [&](size_t at, KernelCall call) {
    before.emplace_back(at, legality_.replace(at, std::move(call)));
  };
  const size_t first_risen = p.remove.front() - p.rise.size();
  for (size_t i = 0; i < p.rise.size(); ++i) {
    put(first_risen + i, call(p.rise[i]));
    put(p.rise[i], KernelCall());
  }
  for (const size_t at : p.remove) put(at, KernelCall());
  put(p.behind ? p.at + 1 : p.at, std::move(p.insert));
  if (live_) live_->update(roots_at(before));
  if (p.most_memory && static_cast<double>(live_->peak()) > most) {
    const std::vector<ValueId> roots = roots_at(before);
    for (auto change = before.rbegin(); change != before.rend(); ++change)
      legality_.replace(change->first, std::move(change->second));
    live_->update(roots);
    refuse(p.remove, "values that wait for the call would take more memory", p.microseconds);
    return false;
  }
  if (p.program) {
    check_tile_program(*p.program);
    programs_.push_back(std::move(*p.program));
  }
  if (!p.rise.empty()) next_ = first_risen + 1;
  rule_.report(origins, true, reason, p.microseconds);
  return true;
}

}  // namespace aicf
