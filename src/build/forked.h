// Work that does not run in parallel within one process, shared out to forked ones.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace aicf {

// work(0 … count-1), results in order, at most `processes` at a time. With one process everything happens in
// this one. Otherwise a child only calls work, which must need no thread or lock of the parent, and sends its
// result back; an error of a child is met by calling work again here, which gives the error itself.
std::vector<std::string> run_forked(size_t count, size_t processes, std::mutex& quiet,
                                    const std::function<std::string(size_t)>& work);

}  // namespace aicf
