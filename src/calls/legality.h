// What passes may do to the calls of a graph so that each call still reads what it read before: the one
// answer to "may this call stand elsewhere" and "does anything else need this value". It knows memory alone,
// neither what kernels do nor what they cost. Takes calls that hold together (verify_calls.h).
//
// A place is an index into CallGraph::calls. Joins ask by root: two windows of one value touch. Bundles and
// lanes ask by byte, because their calls often work on parts of one value.
#pragma once

#include <initializer_list>
#include <optional>
#include <vector>

#include "select/call_program.h"

namespace aicf {

// Who reads and writes which value. Calls change by `replace` only, which keeps places as they are; `finish`
// closes the gaps. A call that nothing runs for touches nothing and leaves its place empty.
class Legality {
 public:
  explicit Legality(CallGraph& calls);

  // Places of the calls that read a value's storage, or write it, ascending.
  const std::vector<size_t>& readers(ValueId root) const { return uses(root).readers; }
  const std::vector<size_t>& writers(ValueId root) const { return uses(root).writers; }
  // Whether more than the calls have a value's storage: the caller, or what the graph reads and keeps.
  bool is_kept(ValueId root) const { return kept_[static_cast<size_t>(root)]; }
  // From the first call that touches a value to behind the last; {0, 0} if none does.
  struct Life {
    size_t first = 0, end = 0;
    bool operator==(const Life&) const = default;
  };
  Life life(ValueId root) const;
  // The last call before `end` that writes it; and that, if it is the only one before `end`.
  std::optional<size_t> last_writer(ValueId root, size_t end) const;
  std::optional<size_t> sole_writer(ValueId root, size_t end) const;
  // Whether a value is kept, or another call than these reads it. If not, it need not be stored.
  bool others_need(ValueId root, std::initializer_list<size_t> calls) const;

  // Whether the call at `from` may stand at `to`, if those between move up by one; else the first of them
  // that it has to stay before or behind. Those of `beside` move elsewhere, too, and do not count.
  bool may_move(size_t from, size_t to) const { return !obstacle(from, to); }
  std::optional<size_t> obstacle(size_t from, size_t to, const std::vector<size_t>& beside = {}) const;
  // The last place where it may stand.
  size_t last_place(size_t from) const;

  // By call: those before it that it has to stay behind (must_keep_order_by_byte), ascending.
  std::vector<std::vector<size_t>> needed_by_byte() const;

  // Gives the call that stood there.
  KernelCall replace(size_t at, KernelCall call);
  // Closes the gaps, then leaves `room` empty places before each call and behind the last; gives the new
  // place of each old one, of an empty one that of the next call, and at last of the end.
  std::vector<size_t> spread(size_t room);
  void finish();

 private:
  struct Uses {
    std::vector<size_t> readers, writers;
  };
  const Uses& uses(ValueId root) const { return uses_[static_cast<size_t>(root)]; }
  // The first call in [begin, end) before or behind which this one has to stay; `end` if there is none.
  size_t first_obstacle(const KernelCall& call, size_t begin, size_t end,
                        const std::vector<size_t>& beside = {}) const;
  void rebuild();
  void change_uses(size_t at, void (*change)(std::vector<size_t>& places, size_t at));

  CallGraph& calls_;
  std::vector<Uses> uses_;  // by root
  std::vector<bool> kept_;  // by root
};

// Whether one of two calls writes to a value that the other reads or writes.
bool must_keep_order(const KernelCall& a, const KernelCall& b);
// The same by byte. Sizes that are not constant may be anything.
bool must_keep_order_by_byte(const KernelCall& a, const KernelCall& b);

}  // namespace aicf
