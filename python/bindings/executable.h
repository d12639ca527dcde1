// What Python holds of an executable, for the files of the extension that run one.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "bindings.h"
#include "compile/compile.h"
#include "runtime/executable.h"

namespace aicf::python {

using Report = std::shared_ptr<const CompileReport>;

// A model was compiled for the GPU that it runs on; files of it are to run on other GPUs and on the CPU, too.
class Portable {
 public:
  Portable(const Program& program, CompileOptions options, const std::string& targets)
      : program_(program), options_(std::move(options)) {
    options_.target = targets;
  }
  // With the variants of all targets, which are compiled for the first file.
  Artifact widened(Artifact artifact);

 private:
  Program program_;
  CompileOptions options_;
  std::mutex mutex_;
  std::string why_not_;  // the model does not compile for all of them
  Artifact all_;
};

// An Executable and, if it was compiled in this process, how. Other weights put another in its place: who
// lets other threads of Python run meanwhile holds the one it began with.
struct PyExecutable {
  std::shared_ptr<Executable> exe;
  Report report;
  std::shared_ptr<Portable> portable = nullptr;  // null: a file holds what runs
  std::optional<Stream> stream = std::nullopt;   // what use_stream() chose
  // What a file of it holds, made of what the runtime has.
  Artifact file(Artifact artifact) const {
    return portable != nullptr ? portable->widened(std::move(artifact)) : artifact;
  }
};

// Runs an entry with arrays by position and by name. Results are on the device if an input is or `on_device`
// says so: of our own types, or tensors of the type `like` if it has DLPack's C exchange interface.
nb::tuple run(PyExecutable& self, const std::string& entry_name, nb::tuple args, nb::dict by_name,
              nb::object like, bool on_device);

}  // namespace aicf::python
