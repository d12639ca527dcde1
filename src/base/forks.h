// A forked process has memory, but none of the threads of its parent: who keeps threads compares this count
// with the one of when they were started.
#pragma once

namespace aicf {

// How often the line from the first call of this to the present process has forked; the same number while a
// process lives.
int fork_count();

}  // namespace aicf
