// A run of calls in which memory holds tokens: what a call writes is new, and every call is told apart by
// what it reads. Two orders of calls mean the same if every reader sees the same tokens. It shares no code
// with the rules that it judges (calls/legality.h).
#pragma once

#include <cstdint>
#include <vector>

#include "select/call_program.h"

namespace aicf::testing {

// What a window touches: its elements; all bytes from its first to its last; or all of its root. With the
// coarser ones, what lies between its elements is read, and mixed with what is written.
enum class Grain : uint8_t { kElements, kRanges, kRoots };

class SymbolicRun {
 public:
  // `graph`: of the program's graphs. Symbols have `size`.
  SymbolicRun(const CallProgram& program, size_t graph, Grain grain, int64_t size);

  // Hashes of what each call, by its place in the graph, reads with those of its members and bodies, and of
  // what variables, inputs and outputs hold at the end.
  struct Seen {
    std::vector<uint64_t> calls, kept;
    bool operator==(const Seen&) const = default;
  };
  // `changed`: a root whose contents are other ones, from the start and with every write.
  Seen run(const std::vector<size_t>& order, ValueId changed = kNoValue) const;
  // By root: the calls of the graph that write it, in order.
  std::vector<std::vector<size_t>> writers() const;

 private:
  using Tokens = std::vector<uint64_t>;  // by byte
  struct Touched {
    ValueId root;
    std::vector<int64_t> bytes;  // of the elements, in the order of the window
    std::vector<int64_t> mixed;  // beside them
  };
  // A call, or a member of one.
  struct Act {
    int stage;
    std::vector<Touched> reads, writes;
    std::vector<SymbolicRun> bodies;
  };

  Touched touched(const Window& w) const;
  Act act_of(const StagedCall& staged, const CallProgram& program, const CallGraph& graph) const;
  uint64_t run_call(size_t call, uint64_t id, ValueId changed, std::vector<Tokens>& memory) const;
  uint64_t run_body(const Act& act, uint64_t id, const std::vector<Tokens>& memory,
                    std::vector<Tokens>& written) const;
  std::vector<Tokens> memory_at_start(ValueId changed) const;

  Grain grain_;
  int64_t size_;
  std::vector<int64_t> bytes_;             // by root
  std::vector<bool> kept_;                 // by root
  std::vector<ValueId> inputs_, outputs_;  // roots
  std::vector<std::vector<Act>> calls_;
};

}  // namespace aicf::testing
