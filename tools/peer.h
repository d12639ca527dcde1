// Another runtime beside ours: a Python process with onnxruntime or torch that runs the same model on the
// same inputs when it has its turn. Within a turn its threads wait as its makers have them wait, spinning;
// between turns the process is stopped, so that it takes nothing of another's. The Python is that of
// VIRTUAL_ENV, else of the environment that this program stands in or was built beside, else python3.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "base/array.h"

namespace aicf::cli {

class Peer {
 public:
  // `name`: onnxruntime or torch (bad_option otherwise). tool_missing if the Python or a package of it is;
  // io_failed if the peer refuses the model.
  Peer(const std::string& name, const std::string& model, const std::map<std::string, Array>& inputs,
       int threads);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const std::string& name() const { return name_; }
  const std::string& version() const { return version_; }
  // A turn: a run that is not timed, then this many that are.
  std::vector<double> turn_ms(int runs);
  // Of the last run, by name.
  std::map<std::string, Array> outputs();
  // Nanoseconds that its threads have run for so far.
  int64_t cpu_ns() const;

 private:
  void start(const std::string& model, const std::map<std::string, Array>& inputs, int threads);
  // Continues the process for one answer and stops it again.
  std::string ask(const std::string& line);
  void stop_running();
  std::string answer();
  void end();

  std::string name_, version_, folder_;
  pid_t pid_ = -1;
  FILE *to_ = nullptr, *from_ = nullptr;
};

void check_peer_name(const std::string& name);  // bad_option

// Nanoseconds that the threads of a process have run for so far, as the kernel's scheduler counts them;
// without the calling thread's.
int64_t cpu_ns_of_threads(pid_t process);
// Whether a thread of this process but the calling one runs, or would if it had a core.
bool other_threads_run();

}  // namespace aicf::cli
