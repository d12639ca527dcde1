// Another runtime beside ours: a Python process with onnxruntime or torch that runs the same model on the
// same inputs when told to, so that timings can be taken in turns. The Python is that of VIRTUAL_ENV, else
// python3.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <map>
#include <string>

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
  double run_ms();
  // Of the last run, by name.
  std::map<std::string, Array> outputs();

 private:
  void start(const std::string& model, const std::map<std::string, Array>& inputs, int threads);
  std::string ask(const std::string& line);
  std::string answer();
  void stop();

  std::string name_, version_, folder_;
  pid_t pid_ = -1;
  FILE *to_ = nullptr, *from_ = nullptr;
};

}  // namespace aicf::cli
