// Work that does not run in parallel within one process, or must not run in the user's, shared out to forked
// ones.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace aicf {

// work(0 … count-1), results in order, by up to `processes` workers, forked ones, which take the next item
// whenever they are done with one. They only call work, which must need no thread or lock of the parent, and
// send back its result or its Error, which is thrown here. What a worker leaves undone that dies, or uses no
// processor time for `still_seconds` because it waits for a lock whose owner the fork left behind, is tried
// once more; EnvironmentError compiler_died if that fails too. `meanwhile` runs once on a thread of this
// process, which starts when the first worker is forked and is waited for; it must not throw. Where there is
// no thread to have it does not run.
std::vector<std::string> run_forked(size_t count, size_t processes,
                                    const std::function<std::string(size_t)>& work, int still_seconds = 30,
                                    const std::function<void()>& meanwhile = {});

}  // namespace aicf
