#include "calls/join_site.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "calls/call_costs.h"
#include "calls/call_forms.h"
#include "calls/call_windows.h"

namespace aicf {
namespace {

constexpr size_t kRoom = 3;  // empty places between calls, for calls that move

bool has_source(const KernelCall& call, ChoiceSource source) { return call.choice.source == source; }

// The record of this problem, if it names the joined kernel in one of its ways, as it is now. Such a kernel
// is no candidate of the problem.
std::optional<Records::Found> recorded_join(const std::optional<ProblemKey>& key, std::string_view kernel,
                                            const SelectOptions& options) {
  if (!key || options.records == nullptr) return std::nullopt;
  return options.records->find(*key, [&](const Record& record, Records::Match) {
    return kernel_of(record.choice) == kernel && !is_stale(record);
  });
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

}  // namespace

double JoinSite::price(size_t at) const { return price_of(call(at), context()); }

double JoinSite::apart(const std::vector<size_t>& calls) const {
  double total = price(calls.back());
  for (size_t i = 0; i + 1 < calls.size(); ++i)
    total += rule_.target.facts().edge_microseconds + price(calls[i]);
  return total;
}

bool JoinSite::offer(Proposal p) {
  complete(p);
  Place place{p.at};
  Decision decision = keeps_values(p);
  if (decision && p.program) decision = reads_once(p);
  if (decision && p.lift) decision = lift_needed(p, place);
  if (decision) decision = legal(p, place);
  if (decision) decision = is_open(p);
  if (decision) decision = fits(p);
  if (decision && p.price) decision = take_best_way(p);
  if (decision) decision = take(p, place);
  if (!decision && p.program) programs_.pop_back();
  if (!decision) refuse(p.remove, decision.why(), p.microseconds);
  return static_cast<bool>(decision);
}

void JoinSite::refuse(const std::vector<size_t>& calls, const std::string& why, double microseconds) const {
  std::vector<const KernelCall*> apart;
  for (const size_t at : calls) apart.push_back(&call(at));
  rule_.report(apart, false, "not joined: " + why, microseconds);
}

BoundProgram JoinSite::joined_behind(size_t call, const BoundProgram& own, size_t from, size_t reader,
                                     const BoundProgram& next, size_t middle) const {
  std::vector<bool> kept;
  for (const Window& w : own.outputs) kept.push_back(legality_.others_need(w.root, {call, reader}));
  return joined(own, from, kept, next, middle);
}

void JoinSite::scan(void (*propose)(JoinSite&, size_t at)) {
  while (next_ < calls_.size()) {
    const size_t at = next_++;
    if (!is_removed(calls_[at])) propose(*this, at);
  }
  finish();
}

// The nodes that the calls came from; the program and its number.
void JoinSite::complete(Proposal& p) const {
  p.insert.origins.clear();
  for (const size_t at : p.remove)
    p.insert.origins.insert(p.insert.origins.end(), call(at).origins.begin(), call(at).origins.end());
  if (!p.program) return;
  for (KernelCall* one : calls_with_program(p.insert))
    row_call(*one)->programs[0].index = static_cast<int>(programs_.size());
  programs_.push_back(*p.program);
}

// Whether neither a record nor the caller wants one of the calls as it is.
Decision JoinSite::is_open(const Proposal& p) const {
  for (const size_t at : p.open)
    if (!has_source(call(at), ChoiceSource::kRank))
      return Decision::no(has_source(call(at), ChoiceSource::kRecord)
                              ? "legal, but the record of " + quoted(call(at)) + " wants it apart"
                              : "legal, but the caller's choice wants " + quoted(call(at)) + " apart");
  return {};
}

// Whether kernels take so many operands, and the way is one of the row's for what it now does.
Decision JoinSite::fits(const Proposal& p) const {
  const auto* group = std::get_if<GroupedProducts>(&p.insert.what);
  const KernelCall& one = group != nullptr ? group->members[0] : p.insert;
  if (p.program)
    if (const Decision d = program_fits(*p.program, one); !d) return d;
  if (group != nullptr && !arguments_fit(p.insert)) return Decision::no("a kernel takes no more arguments");
  const RowCall* row = row_call(one);
  if (row == nullptr || !is_named(row->way) || has_way(ways_of(p.insert, context()), row->way)) return {};
  return Decision::no("its way, " + to_string(row->way) + ", does not do all of it");
}

// The cheapest way, if it is cheaper than the calls apart, or the one that a record of the call's key or the
// caller wants: sets the call's way, choice and reason.
Decision JoinSite::take_best_way(Proposal& p) const {
  KernelCall& joined = p.insert;
  RowCall& row = *row_call(joined);
  Choice& choice = joined.choice;
  for (const KernelVariant& way : ways_of(joined, context()))
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
  const char* source = choice.source == ChoiceSource::kForced   ? "forced; "
                       : choice.source == ChoiceSource::kRecord ? "recorded; "
                                                                : "";
  joined.reason = std::string(source) + p.price->what + " in one kernel, " + time_text(chosen) +
                  ", apart priced " + apart + " us";
  for (const size_t at : p.remove)
    if (has_source(call(at), ChoiceSource::kForced) && choice.source != ChoiceSource::kForced)
      return Decision::no("legal, but the caller's choice wants " + quoted(call(at)) + " apart");
  if (choice.source != ChoiceSource::kRank || chosen.price_us < p.price->apart) return {};
  return Decision::no("priced " + format_fixed(chosen.price_us, 1) + " us together, " + apart + " us apart");
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
void JoinSite::make_room(Proposal& p, Place& place) {
  const size_t first = p.remove.front();
  const auto is_free = [&](size_t at) { return at < calls_.size() && is_removed(calls_[at]); };
  bool has_room = first >= place.rise.size() && (!place.behind || is_free(place.at + 1));
  for (size_t i = 1; has_room && i <= place.rise.size(); ++i) has_room = is_free(first - i);
  if (has_room) return;
  const std::vector<size_t> places = legality_.spread(std::max(kRoom, place.rise.size()));
  for (auto* list : {&p.remove, &place.rise})
    for (size_t& at : *list) at = places[at];
  place.at = places[place.at];
  next_ = places[next_];
  live_.reset();
}

Decision JoinSite::take(Proposal& p, Place place) {
  make_room(p, place);
  if (p.most_memory && !live_) live_.emplace(graph(), legality_);
  const double most = p.most_memory ? *p.most_memory * static_cast<double>(live_->peak()) : 0;
  const std::string reason = p.insert.reason;
  std::vector<std::pair<size_t, KernelCall>> before;  // what stood where
  const auto put = [&](size_t at, KernelCall call) {
    before.emplace_back(at, legality_.replace(at, std::move(call)));
  };
  const size_t first_risen = p.remove.front() - place.rise.size();
  for (size_t i = 0; i < place.rise.size(); ++i) {
    put(first_risen + i, call(place.rise[i]));
    put(place.rise[i], KernelCall());
  }
  for (const size_t at : p.remove) put(at, KernelCall());
  put(place.behind ? place.at + 1 : place.at, std::move(p.insert));
  if (live_) live_->update(roots_at(before));
  if (p.most_memory && static_cast<double>(live_->peak()) > most) {
    const std::vector<ValueId> roots = roots_at(before);
    for (auto change = before.rbegin(); change != before.rend(); ++change)
      legality_.replace(change->first, std::move(change->second));
    live_->update(roots);
    return Decision::no("values that wait for the call would take more memory");
  }
  if (p.program) check_tile_program(*p.program);
  if (!place.rise.empty()) next_ = first_risen + 1;
  std::vector<const KernelCall*> joined;  // behind those that have risen, each of which left two places
  for (size_t i = 0; i < p.remove.size(); ++i) joined.push_back(&before[2 * place.rise.size() + i].second);
  rule_.report(joined, true, reason, p.microseconds);
  return {};
}

}  // namespace aicf
