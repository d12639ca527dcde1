// The rules of legality against runs that share no code with them (testing/symbolic_run.h), over random
// calls: nothing illegal is allowed, and nearly all that is legal. AICF_RANDOM_CALLS sets how many lists,
// AICF_SEED runs one; AICF_SOAK=1 runs 100,000.
#include "calls/legality.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include "base/testing/random_seeds.h"
#include "calls/testing/random_calls.h"
#include "calls/testing/symbolic_run.h"
#include "calls/verify_calls.h"

namespace aicf::testing {
namespace {

constexpr int64_t kSymbolSize = 5;  // of symbols
constexpr int kMovesPerList = 24;   // of random ones
constexpr double kLeastAllowed = 0.98;

RandomSeeds seeds() { return seeds_from_environment("AICF_RANDOM_CALLS", soaks() ? 100000 : 2000); }

struct Move {
  size_t from, to;
};

std::vector<size_t> order_after(const Move& move, size_t count) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  const auto at = [&](size_t i) { return order.begin() + static_cast<std::ptrdiff_t>(i); };
  if (move.from < move.to)
    std::rotate(at(move.from), at(move.from + 1), at(move.to + 1));
  else
    std::rotate(at(move.to), at(move.from), at(move.from + 1));
  return order;
}

// What a rule says of a move.
using Rule = std::function<bool(CallGraph&, const Move&)>;

bool may_move_by_root(CallGraph& calls, const Move& move) {
  return Legality(calls).may_move(move.from, move.to);
}

bool may_move_by_byte(CallGraph& calls, const Move& move) {
  for (size_t i = std::min(move.from, move.to); i <= std::max(move.from, move.to); ++i)
    if (i != move.from && must_keep_order_by_byte(calls.calls[move.from], calls.calls[i])) return false;
  return true;
}

struct Count {
  int64_t moves = 0, legal = 0, allowed = 0;
};

// The first move that changes what somebody reads and is allowed all the same, or "". `grain`: that of the
// rule, which a legal move is legal by.
std::string wrong_move(uint64_t seed, const Rule& rule, Grain grain, Count& count) {
  CallProgram program = random_calls(seed);
  std::mt19937_64 random(seed);
  for (size_t g = 0; g < program.graphs.size(); ++g) {
    CallGraph& calls = program.graphs[g];
    const size_t size = calls.calls.size();
    if (size < 2) continue;
    const SymbolicRun exact(program, g, Grain::kElements, kSymbolSize),
        coarse(program, g, grain, kSymbolSize);
    const std::vector<size_t> before = order_after({0, 0}, size);
    const auto exact_seen = exact.run(before), coarse_seen = coarse.run(before);
    for (int i = 0; i < kMovesPerList; ++i) {
      const Move move{random() % size, random() % size};
      if (move.from == move.to) continue;
      const std::vector<size_t> order = order_after(move, size);
      const bool allowed = rule(calls, move), legal = coarse.run(order) == coarse_seen;
      ++count.moves;
      count.legal += legal ? 1 : 0;
      count.allowed += legal && allowed ? 1 : 0;
      if (allowed && !(exact.run(order) == exact_seen))
        return "graph " + std::to_string(g) + ": call " + std::to_string(move.from) + " to " +
               std::to_string(move.to);
    }
  }
  return "";
}

void check_moves(const char* name, const Rule& rule, Grain grain) {
  const RandomSeeds all = seeds();
  Count count;
  int failures = 0;
  for (uint64_t seed = all.first; seed <= all.last && failures < 5; ++seed) {
    const std::string text = wrong_move(seed, rule, grain, count);
    if (text.empty()) continue;
    ++failures;
    ADD_FAILURE() << rerun_text(seed, all, text, [&] { return to_string(random_calls(seed)); });
  }
  std::printf("%s: %lld moves, %lld legal, %lld of them allowed\n", name, static_cast<long long>(count.moves),
              static_cast<long long>(count.legal), static_cast<long long>(count.allowed));
  if (all.one) return;
  EXPECT_GE(static_cast<double>(count.allowed), kLeastAllowed * static_cast<double>(count.legal));
  EXPECT_LT(count.legal, count.moves * 3 / 4) << "the check has lost its sense";
}

TEST(Legality, RandomCallsHoldTogether) {
  const RandomSeeds all = seeds();
  for (uint64_t seed = all.first; seed <= all.last; ++seed)
    verify(random_calls(seed), "seed " + std::to_string(seed));
}

TEST(Legality, ACallNeedsThoseBeforeItThatKeepTheirOrder) {
  const RandomSeeds all = seeds();
  for (uint64_t seed = all.first; seed <= std::min(all.last, all.first + 200); ++seed)
    for (CallGraph& graph : random_calls(seed).graphs) {
      const std::vector<std::vector<size_t>> all_needed = Legality(graph).needed_by_byte();
      for (size_t at = 0; at < graph.calls.size(); ++at) {
        std::vector<size_t> needed;
        for (size_t other = 0; other < at; ++other)
          if (must_keep_order_by_byte(graph.calls[other], graph.calls[at])) needed.push_back(other);
        ASSERT_EQ(all_needed[at], needed) << "seed " << seed << ", call " << at;
      }
    }
}

TEST(Legality, MovesByRootChangeNothingThatIsRead) {
  check_moves("by root", may_move_by_root, Grain::kRoots);
}

TEST(Legality, MovesByByteChangeNothingThatIsRead) {
  check_moves("by byte", may_move_by_byte, Grain::kRanges);
}

TEST(Legality, TheLastPlaceIsTheLastOfAllThatMayBe) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    CallProgram program = random_calls(seed);
    const Legality legality(program.graphs.back());
    const size_t size = program.graphs.back().calls.size();
    for (size_t from = 0; from < size; ++from) {
      size_t last = from;
      while (last + 1 < size && legality.may_move(from, last + 1)) ++last;
      EXPECT_EQ(legality.last_place(from), last) << seed;
    }
  }
}

// Who sees that a value is another one, reads it; who changes its memory, writes it.
TEST(Legality, ReadersWritersAndNeed) {
  const RandomSeeds all = seeds();
  for (uint64_t seed = all.first; seed <= all.last; ++seed) {
    CallProgram program = random_calls(seed);
    CallGraph& calls = program.graphs.back();
    const SymbolicRun symbolic(program, program.graphs.size() - 1, Grain::kElements, kSymbolSize);
    const std::vector<size_t> order = order_after({0, 0}, calls.calls.size());
    const auto seen = symbolic.run(order);
    const auto writers = symbolic.writers();
    const Legality legality(calls);
    for (ValueId root = 0; root < static_cast<ValueId>(writers.size()); ++root) {
      const auto changed = symbolic.run(order, root);
      std::vector<size_t> readers;
      for (const size_t call : order)
        if (changed.calls[call] != seen.calls[call]) readers.push_back(call);
      const bool kept = changed.kept != seen.kept;
      ASSERT_EQ(legality.readers(root), readers) << seed;
      ASSERT_EQ(legality.writers(root), writers[static_cast<size_t>(root)]) << seed;
      ASSERT_EQ(legality.is_kept(root), kept) << seed;
      std::vector<size_t> users = writers[static_cast<size_t>(root)];
      users.insert(users.end(), readers.begin(), readers.end());
      std::sort(users.begin(), users.end());
      const Legality::Life life =
          users.empty() ? Legality::Life() : Legality::Life{users.front(), users.back() + 1};
      ASSERT_TRUE(legality.life(root) == life) << seed;
      std::optional<size_t> first, last;  // before `end`
      for (size_t end = 0; end <= order.size(); ++end) {
        ASSERT_EQ(legality.last_writer(root, end), last) << seed;
        ASSERT_EQ(legality.sole_writer(root, end), first == last ? last : std::nullopt) << seed;
        const auto& all = writers[static_cast<size_t>(root)];
        if (std::find(all.begin(), all.end(), end) == all.end()) continue;
        if (!first) first = end;
        last = end;
      }
      for (const size_t one : order)
        for (const size_t other : order) {
          const bool others = std::any_of(readers.begin(), readers.end(),
                                          [&](size_t reader) { return reader != one && reader != other; });
          ASSERT_EQ(legality.others_need(root, {one, other}), kept || others) << seed;
        }
    }
  }
}

TEST(Legality, CallsThatAreReplacedAndRemovedAreForgotten) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    CallProgram program = random_calls(seed);
    CallGraph& calls = program.graphs.back();
    Legality legality(calls);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 4; ++i) {
      const size_t at = random() % calls.calls.size(), from = random() % calls.calls.size();
      if (random() % 2 == 0)
        legality.replace(at, KernelCall());
      else
        legality.replace(at, calls.calls[from]);
      const Legality anew(calls);
      for (ValueId root = 0; root < static_cast<ValueId>(calls.constant.size()); ++root) {
        ASSERT_EQ(legality.readers(root), anew.readers(root)) << seed;
        ASSERT_EQ(legality.writers(root), anew.writers(root)) << seed;
      }
    }
    legality.finish();
    for (const KernelCall& call : calls.calls) EXPECT_FALSE(is_removed(call));
  }
}

// Whoever moves elsewhere stands in nobody's way.
TEST(Legality, AnObstacleIsTheFirstThatDoesNotMoveElsewhere) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    CallProgram program = random_calls(seed);
    CallGraph& calls = program.graphs.back();
    const Legality legality(calls);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 8; ++i) {
      const size_t size = calls.calls.size(), from = random() % size, to = random() % size;
      const std::vector<size_t> beside = {random() % size, random() % size};
      CallGraph others = calls;
      for (const size_t at : beside)
        if (at != from) others.calls[at] = KernelCall();
      const bool may = Legality(others).may_move(from, to);
      const std::optional<size_t> obstacle = legality.obstacle(from, to, beside);
      ASSERT_EQ(!obstacle, may) << seed;
      if (!obstacle) continue;
      ASSERT_TRUE(must_keep_order(calls.calls[from], calls.calls[*obstacle])) << seed;
    }
  }
}

TEST(Legality, SpreadCallsKeepTheirOrder) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    CallProgram program = random_calls(seed);
    CallGraph& calls = program.graphs.back();
    const CallGraph before = calls;
    Legality legality(calls);
    const std::vector<size_t> places = legality.spread(2);
    ASSERT_EQ(places.size(), before.calls.size() + 1);
    for (size_t i = 0; i < before.calls.size(); ++i) ASSERT_EQ(calls.calls[places[i]], before.calls[i]);
    for (size_t i = 0; i < before.calls.size(); ++i)
      for (size_t room = 1; room <= 2; ++room) ASSERT_TRUE(is_removed(calls.calls[places[i] - room])) << seed;
    for (size_t from = 0; from < before.calls.size(); ++from)
      for (size_t to = 0; to < before.calls.size(); ++to) {
        CallGraph own = before;
        ASSERT_EQ(legality.may_move(places[from], places[to]), Legality(own).may_move(from, to)) << seed;
      }
    legality.finish();
    ASSERT_EQ(calls, before);
  }
}

// ---- faults: a rule that does not look at something is the rule over calls that do not show it.

void each_window(CallGraph& calls, const std::function<void(Window&)>& change) {
  for (KernelCall& call : calls.calls)
    for (auto* list : {&call.inputs, &call.outputs})
      for (Window& w : *list) change(w);
}
void each_other(CallGraph& calls, const Move& move, const std::function<void(KernelCall&)>& change) {
  for (size_t i = 0; i < calls.calls.size(); ++i)
    if (i != move.from) change(calls.calls[i]);
}
void drop_last(std::vector<Window>& windows) {
  if (windows.size() > 1) windows.pop_back();
}
void keep_first(std::vector<Window>& windows) {
  if (windows.size() > 1) windows.resize(1);
}

struct Fault {
  const char* what;
  std::function<void(CallGraph&, Move&)> hide;
};

const std::vector<Fault>& faults_of_both() {
  static const std::vector<Fault> faults = {
      {"what the call reads", [](CallGraph& c, Move& m) { c.calls[m.from].inputs.clear(); }},
      {"what it writes", [](CallGraph& c, Move& m) { c.calls[m.from].outputs.clear(); }},
      {"what others read",
       [](CallGraph& c, Move& m) { each_other(c, m, [](KernelCall& o) { o.inputs.clear(); }); }},
      {"what others write",
       [](CallGraph& c, Move& m) { each_other(c, m, [](KernelCall& o) { o.outputs.clear(); }); }},
      {"writes over writes",
       [](CallGraph& c, Move& m) {
         const KernelCall call = c.calls[m.from];
         each_other(c, m, [&](KernelCall& o) {
           std::erase_if(o.outputs, [&](const Window& w) {
             const auto is_of_it = [&](const Window& own) { return own.root == w.root; };
             return std::any_of(call.outputs.begin(), call.outputs.end(), is_of_it) &&
                    std::none_of(call.inputs.begin(), call.inputs.end(), is_of_it);
           });
         });
       }},
      {"the call at the new place",
       [](CallGraph&, Move& m) { m.to = m.to > m.from   ? m.to - 1
                                        : m.to < m.from ? m.to + 1
                                                        : m.to; }},
      {"the neighbour",
       [](CallGraph& c, Move& m) {
         if (m.to != m.from) {
           KernelCall& next = c.calls[m.to > m.from ? m.from + 1 : m.from - 1];
           next.inputs.clear(), next.outputs.clear();
         }
       }},
      {"moves to the front", [](CallGraph&, Move& m) { m.to = std::max(m.to, m.from); }},
      {"moves to the back", [](CallGraph&, Move& m) { m.to = std::min(m.to, m.from); }},
      {"all operands but the first",
       [](CallGraph& c, Move&) {
         for (KernelCall& o : c.calls) keep_first(o.inputs);
       }},
      {"the last operand",
       [](CallGraph& c, Move&) {
         for (KernelCall& o : c.calls) drop_last(o.inputs);
       }},
      {"all results but the first",
       [](CallGraph& c, Move&) {
         for (KernelCall& o : c.calls) keep_first(o.outputs);
       }},
      {"calls with bodies",
       [](CallGraph& c, Move&) {
         for (KernelCall& o : c.calls)
           if (std::holds_alternative<ControlRun>(o.what)) o.inputs.clear(), o.outputs.clear();
       }},
      {"members but the first",
       [](CallGraph& c, Move&) {
         for (KernelCall& o : c.calls)
           if (const std::vector<StagedCall> all = members_of(o); !all.empty()) o = KernelCall(*all[0].call);
       }},
      {"variables that are updated",
       [](CallGraph& c, Move&) {
         for (KernelCall& o : c.calls)
           std::erase_if(o.outputs, [&](const Window& w) {
             return w.root < c.graph.value_count() && c.graph.value(w.root).role == Role::kState;
           });
       }},
      {"values beside those of the graph",
       [](CallGraph& c, Move&) {
         for (KernelCall& o : c.calls)
           std::erase_if(o.inputs, [&](const Window& w) { return w.root >= c.graph.value_count(); });
       }},
      {"what is written in place",
       [](CallGraph& c, Move&) {
         for (KernelCall& o : c.calls)
           std::erase_if(o.outputs, [&](const Window& w) {
             return std::any_of(o.inputs.begin(), o.inputs.end(),
                                [&](const Window& i) { return i.root == w.root; });
           });
       }},
  };
  return faults;
}

const std::vector<Fault>& faults_of_bytes() {
  static const std::vector<Fault> faults = {
      {"the last of an axis",
       [](CallGraph& c, Move&) {
         each_window(c, [](Window& w) {
           for (Dim& size : w.sizes)
             if (size.is_constant() && size != Dim(1)) size = size - Dim(1);
         });
       }},
      {"the sign of strides",
       [](CallGraph& c, Move&) {
         each_window(c, [](Window& w) {
           for (Dim& stride : w.strides)
             if (*stride.constant() < 0) stride = Dim(0) - stride;
         });
       }},
      {"strides",
       [](CallGraph& c, Move&) {
         each_window(c, [](Window& w) {
           for (Dim& stride : w.strides) stride = Dim(1);
         });
       }},
      {"outer axes",
       [](CallGraph& c, Move&) {
         each_window(c, [](Window& w) {
           for (size_t i = 0; i + 1 < w.sizes.size(); ++i) w.sizes[i] = Dim(1);
         });
       }},
      {"how large elements are",
       [](CallGraph& c, Move&) { each_window(c, [](Window& w) { w.dtype = DType::i8; }); }},
      {"sizes that are not known",
       [](CallGraph& c, Move&) {
         each_window(c, [](Window& w) {
           for (Dim& size : w.sizes)
             if (!size.is_constant()) size = Dim(1);
         });
       }},
  };
  return faults;
}

void expect_found(const Fault& fault, const Rule& rule, Grain grain) {
  const Rule faulty = [&](CallGraph& calls, const Move& move) {
    CallGraph hidden = calls;
    Move other = move;
    fault.hide(hidden, other);
    return rule(hidden, other);
  };
  Count count;
  for (uint64_t seed = 1; seed <= 2000; ++seed)
    if (!wrong_move(seed, faulty, grain, count).empty()) return;
  ADD_FAILURE() << "rules that do not see " << fault.what << " are not found out";
}

TEST(Legality, RulesThatOverlookSomethingAreFoundOut) {
  for (const Fault& fault : faults_of_both()) {
    expect_found(fault, may_move_by_root, Grain::kRoots);
    expect_found(fault, may_move_by_byte, Grain::kRanges);
  }
  for (const Fault& fault : faults_of_bytes()) expect_found(fault, may_move_by_byte, Grain::kRanges);
}

}  // namespace
}  // namespace aicf::testing
