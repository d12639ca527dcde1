// Tests: what a piece of work gives in a forked process.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

namespace aicf::testing {

// True if `work` ran to its end there and gave true; the process is ended if it hangs.
template <typename Work>
bool in_fork(const Work& work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(work() ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace aicf::testing
