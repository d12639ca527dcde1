// Work that does not run in parallel within one process, or must not run in the user's, shared out to forked
// ones.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace aicf {

// work(0 … count-1), results in order, at most `processes` at a time. Each call has a child of its own, which
// only calls work, needs no thread or lock of the parent, and sends back its result or its Error, which is
// thrown here. A child that dies, or uses no processor time for `still_seconds` because it waits for a lock
// whose owner the fork left behind, is replaced once; EnvironmentError compiler_died if that one fails too.
std::vector<std::string> run_forked(size_t count, size_t processes,
                                    const std::function<std::string(size_t)>& work, int still_seconds = 30);

}  // namespace aicf
