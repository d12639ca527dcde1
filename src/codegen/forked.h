// Work that does not run in parallel within one process, or must not run in the user's, shared out to forked
// ones.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace aicf {

// What this process does while others work.
struct WhileForked {
  // Runs once on a thread of its own, which is waited for; it must not throw. Where no thread can be had it
  // does not run.
  std::function<void()> meanwhile = {};
  // Called in the thread that waits, when some more of the items are done; what it throws ends the work.
  std::function<void(size_t done, size_t count)> on_done = {};
};

// work(0 … count-1), results in order, by up to `processes` workers, forked ones, which take the next item
// whenever they are done with one. They only call work, which must need no thread or lock of the parent, and
// send back its result or its Error, which is thrown here. What a worker leaves undone that dies, or uses no
// processor time for `still_seconds` because it waits for a lock whose owner the fork left behind, is tried
// once more; EnvironmentError compiler_died if that fails too.
std::vector<std::string> run_forked(size_t count, size_t processes,
                                    const std::function<std::string(size_t)>& work, int still_seconds = 30,
                                    const WhileForked& here = {});

}  // namespace aicf
