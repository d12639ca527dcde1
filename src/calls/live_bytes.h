// How much memory the values between calls take at most at a time, kept up to date while calls change. Takes
// Legality's index of who reads and writes a value; sizes are those of the upper bounds. An arena is at least
// as large.
#pragma once

#include <vector>

#include "calls/legality.h"
#include "select/call_program.h"

namespace aicf {

class LiveBytes {
 public:
  // Places stay as many as they are.
  LiveBytes(const CallGraph& calls, const Legality& legality);

  int64_t peak() const { return most_[1]; }
  // Of these values readers or writers have changed.
  void update(const std::vector<ValueId>& roots);

 private:
  using Life = Legality::Life;  // of an output, to the end
  void set_life(ValueId root);
  void add(size_t node, size_t begin, size_t end, const Life& life, int64_t bytes);

  const CallGraph& calls_;
  const Legality& legality_;
  std::vector<int64_t> bytes_;  // by root; 0: no memory of its own
  std::vector<bool> leaves_;    // by root: an output
  std::vector<Life> lives_;     // by root
  // A tree over the places: what is live in all of a node's places, and at most in one of them.
  std::vector<int64_t> all_, most_;
};

}  // namespace aicf
