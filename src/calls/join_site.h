// Where joins are proposed and taken. A join looks at one call of a graph at a time, with Legality and the
// cost model at hand, and offers a Proposal: which calls go, which one does what they did, where it stands.
// The site does what all joins have in common: does every value reach those who need it, and may the calls
// come together (legality); do kernels take what the one call has, and in which ways; is the best of them
// cheaper than the calls apart, or do a record or the caller decide (price); then it changes the calls
// (take). What is refused leaves calls and programs as they were, and its reason.
//
// Calls are looked at in their order, and what is taken is not given up again: the order of the list decides
// which of two joins that want one call gets it.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "calls/call_code.h"
#include "calls/decision.h"
#include "calls/joined_program.h"
#include "calls/legality.h"
#include "calls/live_bytes.h"
#include "calls/rule_site.h"

namespace aicf {

// What decides between together and apart.
struct JoinPrice {
  const char* what;                                // "a product and its rows"
  double apart;                                    // microseconds, by the prices of the calls
  std::vector<const char*> families = {"matmul"};  // of ops by which the caller may mean the call
};

struct Proposal {
  std::vector<size_t> remove;  // the calls whose work one call does
  KernelCall insert;           // that call; the site gives it its origins, and the number of its program
  size_t at = 0;               // of those removed, the one in whose place it stands
  // `at` is the first. Calls that the others need rise before it if they may; else the one call stands behind
  // the last of them.
  bool lift = false;
  std::optional<TileProgram> program = {};

  std::vector<size_t> open = {};        // calls whose kernel neither a record nor the caller may have chosen
  std::optional<JoinPrice> price = {};  // none: one launch less for the same work, or the join has seen
  double microseconds = 0;              // estimated, of the call, if the join has seen
  std::optional<double> most_memory = {};  // times the peak of live bytes before
};

class JoinSite {
 public:
  explicit JoinSite(const RuleSite& rule)
      : rule_(rule), calls_(rule.graph.calls), programs_(rule.graph.programs), legality_(rule.graph) {}

  const RuleSite& rule() const { return rule_; }
  const CallGraph& graph() const { return rule_.graph; }
  const KernelCall& call(size_t at) const { return calls_[at]; }
  const TileProgram& program_of(const KernelCall& call) const { return rule_.graph.program_of(call); }
  const Legality& legality() const { return legality_; }
  CodeContext context() const { return context_of(rule_.graph, rule_.target); }
  // Of the call if it stays as it is, in microseconds (call_costs.h).
  double price(size_t at) const;
  // Of several, one after the other.
  double apart(const std::vector<size_t>& calls) const;

  // Whether it is taken. Places and references to calls do not outlive that.
  bool offer(Proposal proposal);
  // For what a join finds that all but fits.
  void refuse(const std::vector<size_t>& calls, const std::string& why, double microseconds = 0) const;
  // No if the caller or the graph keeps a value or another call than these reads it.
  Decision needed_by_none_but(ValueId root, const std::vector<size_t>& calls) const;
  // One program for a call's own and for `next`, the program of the call at `reader`, which reads result
  // `from` as its input `middle`. Results that others read are stored.
  BoundProgram joined_behind(size_t call, const BoundProgram& own, size_t from, size_t reader,
                             const BoundProgram& next, size_t middle) const;

  // Every call once, those that a join moves before others' places included.
  void scan(void (*propose)(JoinSite&, size_t at));
  void finish() { legality_.finish(); }

 private:
  // Where the one call stands: in a place or behind it; and what first moves before the first of those
  // removed, in their order.
  struct Place {
    size_t at;
    bool behind = false;
    std::vector<size_t> rise = {};
  };

  void complete(Proposal& p) const;
  Decision keeps_values(const Proposal& p) const;
  Decision reads_once(const Proposal& p) const;
  std::set<size_t> needed_calls(const Proposal& p) const;
  Decision lift_needed(const Proposal& p, Place& place) const;
  Decision legal(const Proposal& p, const Place& place) const;
  Decision is_open(const Proposal& p) const;
  Decision fits(const Proposal& p) const;
  Decision take_best_way(Proposal& p) const;
  void make_room(Proposal& p, Place& place);
  Decision take(Proposal& p, Place place);
  std::vector<ValueId> roots_at(const std::vector<std::pair<size_t, KernelCall>>& before) const;

  const RuleSite rule_;
  std::vector<KernelCall>& calls_;
  std::vector<TileProgram>& programs_;
  Legality legality_;              // changes the calls
  std::optional<LiveBytes> live_;  // once it is asked
  size_t next_ = 0;                // to be looked at
};

}  // namespace aicf
