#include "build/forked.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"

namespace aicf {
namespace {

struct Child {
  size_t item;
  pid_t process;
  int pipe;
  std::string result;
};

void send_all(int pipe, const std::string& text) {
  size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t n = write(pipe, text.data() + sent, text.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(1);
    sent += static_cast<size_t>(n);
  }
}

Child start(size_t item, const std::function<std::string(size_t)>& work) {
  int ends[2];
  if (pipe(ends) != 0) throw EnvironmentError(ErrorCode::kE_io_failed, "cannot make a pipe");
  const pid_t process = fork();
  if (process < 0) {
    close(ends[0]);
    close(ends[1]);
    throw EnvironmentError(ErrorCode::kE_io_failed, "cannot start a process to compile in");
  }
  if (process == 0) {
    close(ends[0]);
    // What a library remarks there beside its log is no message of ours.
    if (const int nowhere = open("/dev/null", O_WRONLY); nowhere >= 0) dup2(nowhere, STDERR_FILENO);
    try {
      send_all(ends[1], work(item));
    } catch (...) {
      _exit(1);  // without the parent's exit handlers
    }
    _exit(0);
  }
  close(ends[1]);
  return {item, process, ends[0], {}};
}

// Reads what is there; true at the end of the child's result.
bool read_some(Child& child) {
  char chunk[1 << 16];
  const ssize_t n = read(child.pipe, chunk, sizeof(chunk));
  if (n < 0) return errno != EINTR;
  child.result.append(chunk, static_cast<size_t>(n));
  return n == 0;
}

// True if the child did its work.
bool finish(Child& child) {
  close(child.pipe);
  int status = 0;
  while (waitpid(child.process, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

std::vector<std::string> run_forked(size_t count, size_t processes, std::mutex& quiet,
                                    const std::function<std::string(size_t)>& work) {
  std::vector<std::string> results(count);
  const auto run_here = [&](size_t i) {
    const std::lock_guard lock(quiet);
    results[i] = work(i);
  };
  if (count < 2 || processes < 2) {
    for (size_t i = 0; i < count; ++i) run_here(i);
    return results;
  }
  std::vector<Child> children;
  std::vector<size_t> failed;
  size_t next = 0;
  while (next < count || !children.empty()) {
    while (next < count && children.size() < processes) {
      const std::lock_guard lock(quiet);
      children.push_back(start(next++, work));
    }
    std::vector<pollfd> waiting;
    for (const Child& child : children) waiting.push_back({child.pipe, POLLIN, 0});
    if (poll(waiting.data(), waiting.size(), -1) < 0) continue;
    for (size_t i = children.size(); i-- > 0;) {
      if (waiting[i].revents == 0 || !read_some(children[i])) continue;
      if (finish(children[i])) {
        results[children[i].item] = std::move(children[i].result);
      } else {
        failed.push_back(children[i].item);
      }
      children.erase(children.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  std::sort(failed.begin(), failed.end());
  for (size_t i : failed) run_here(i);
  return results;
}

}  // namespace aicf
